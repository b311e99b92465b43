//! What a builder refuses, and a trainer of what it built.

use gpipe_layers::layers::{Head, Layout, Linear};
use gpipe_layers::{AdamW, Flow, Layer, Optimizer, Sgd};
use gpipe_remat::{Assembly, AssemblyBuilder, Error, Trainer};
use gpipe_sched::one_f_one_b;
use gpipe_tensor::{DeviceId, Host, Tensor};

use super::{builder, mlp};

#[test]
fn a_builder_refuses_what_does_not_fit() {
    let message = |builder: AssemblyBuilder| match builder.plan(2) {
        Ok(_) => panic!("it fits"),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        message(Assembly::builder(mlp())),
        "layers have no cost without a batch: call `batch`"
    );
    let schedule = one_f_one_b(3, 4).expect("a schedule");
    assert_eq!(
        message(builder().with_schedule(schedule).stages(2)),
        "a schedule of 3 stages and 4 micro-batches, 2 devices and 4 micro-batches: give as many of \
         each"
    );
    assert_eq!(
        message(builder().stages(9)),
        "9 stages but 5 layers: use 5 or fewer"
    );
    // Nothing is made for each of them first.
    assert_eq!(
        message(builder().stages(usize::MAX)),
        "18446744073709551615 stages but 5 layers: use 5 or fewer"
    );
    assert_eq!(
        message(builder().micro_batches(13)),
        "13 micro-batches but 12 samples: use 1 to 12 micro-batches"
    );
    let of_nothing = builder().batch(0, |samples| vec![Flow::f32([samples, 3])]);
    assert_eq!(
        message(of_nothing),
        "1 micro-batches but 0 samples: give the batch a sample or more"
    );
    for (replica, replicas) in [(5, 2), (2, 2), (0, 0)] {
        assert_eq!(
            message(builder().groups(4).replica(replica, replicas, true)),
            format!(
                "replica {replica} of {replicas}: use 1 replica or more, and count them from 0"
            )
        );
    }
}

#[test]
fn stages_by_default_are_no_more_than_layers_in_the_pipeline() {
    // Three linear layers with two activations between them.
    for before in 0..5 {
        let plan = builder()
            .before(before)
            .plan(4)
            .expect("as many stages as fit");
        assert_eq!(plan.cut.len(), 4.min(5 - before), "{before}");
    }
    let error = builder().before(5).plan(4).expect_err("no layer is left");
    assert!(
        error.to_string().contains("leave one for the pipeline"),
        "{error}"
    );
}

/// The mend is one that a program with a trainer can make.
#[test]
fn a_pipeline_without_the_state_of_its_optimizer_says_what_to_assemble_it_with() {
    let host = Host::new(2).expect("threads");
    let cpu = host.device(DeviceId::Cpu).expect("the processor");
    let x = Tensor::from_f32(&cpu, [12, 3], vec![0.5; 36]).expect("as many values");
    let y = Tensor::from_u32(&cpu, [12], vec![1; 12]).expect("as many values");
    let adamw = Optimizer::from(AdamW::default());
    let sgd = Optimizer::from(Sgd::default());
    let plain = || Assembly::builder(mlp()).batch(12, |samples| vec![Flow::f32([samples, 3])]);
    for builder in [plain(), plain().optimizer(&sgd)] {
        let assembled = builder.build(&host).expect("a pipeline");
        let mut trainer = Trainer::new(assembled, adamw.clone(), |_| 0.1);
        let error = trainer
            .step(std::slice::from_ref(&x), &y)
            .expect_err("no state");
        let error = error.to_string();
        assert!(
            error.contains("linear_0.weight") && error.contains("`optimizer`"),
            "{error}"
        );
    }
    let assembled = plain().optimizer(&adamw).build(&host).expect("a pipeline");
    let mut trainer = Trainer::new(assembled, adamw, |_| 0.1);
    trainer.step(&[x], &y).expect("a step");
}

/// The values of one would be saved under the name of the other; gradients of a tie without an owner would be dropped.
#[test]
fn parameters_have_one_owner_each() {
    let host = Host::new(1).expect("a thread");
    let refused = |layers: Vec<Box<dyn Layer>>| {
        let builder = Assembly::builder(layers).batch(2, |samples| vec![Flow::f32([samples, 2])]);
        let built = builder.stages(1).build(&host);
        built.expect_err("refused").to_string()
    };
    let linear = || Box::new(Linear::new("one", 2, 2, Layout::OutIn));
    let message = refused(vec![linear(), linear()]);
    assert!(
        message.contains("two parameters are named `one.weight`"),
        "{message}"
    );
    let head = Head::new("head", 2, 2, 0.1).tied_to("other.weight");
    let message = refused(vec![linear(), Box::new(head)]);
    assert!(message.contains("no parameter `other.weight`"), "{message}");
    // Its gradient would be added to each row of the owner's.
    let head = Head::new("head", 2, 1, 0.1).tied_to("one.weight");
    let message = refused(vec![linear(), Box::new(head)]);
    assert_eq!(
        message,
        "parameter `one.weight` is of shape [2, 2], but a place tied to it of [1, 2]: give both one shape"
    );
}

/// A layer has an initial value of its own, which is not that of the parameter that it is tied to.
#[test]
fn places_of_a_parameter_begin_as_its_owner() {
    let host = Host::new(1).expect("a thread");
    let tied = Linear::new("two", 2, 2, Layout::OutIn).without_bias();
    let mut run = Assembly::builder(vec![
        Box::new(Head::new("one", 2, 2, 0.02)),
        Box::new(tied.tied_to("one.weight")),
    ])
    .batch(2, |samples| vec![Flow::f32([samples, 2])])
    .stages(2)
    .build(&host)
    .expect("a pipeline");
    let values = run.pipeline.gather(|_, stage| {
        let mut values = Vec::new();
        stage.try_params(|param| {
            values.extend(param.value()?.f32s()?.iter().copied());
            Ok(())
        })?;
        Ok::<_, Error>(values)
    });
    let values = values.expect("values of two stages");
    assert_eq!(values[0], values[1]);
    assert_ne!(values[0], [0.0; 4]);
}
