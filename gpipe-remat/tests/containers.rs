//! Lingvo's containers: activations fetched and carried to the end of a pipeline.

use std::slice::from_ref;

use gpipe_layers::layers::{Activation, Conv2d, FeatureExtraction, Function};
use gpipe_layers::{Flow, Init, Layer, Loss, Optimizer, Sgd};
use gpipe_remat::{
    Assembly, AssemblyBuilder, Error, ModelCosts, OutputStage, ParameterBytes, Policy, Trainer,
    batch_items, gradient_norm, micro_batches, predict_memory,
};
use gpipe_sched::{Schedule, gpipe, looped_bfs, one_f_one_b, zb_h1};
use gpipe_tensor::ops::Window;
use gpipe_tensor::{Device, DeviceId, Host, Tensor, ops, philox::philox4x32_10};

const BATCH: usize = 16;
const MICRO_BATCHES: usize = 8;
const SHAPE: [usize; 4] = [BATCH, 8, 8, 1];

fn images(samples: usize) -> Vec<Flow> {
    vec![Flow::f32([samples, 8, 8, 1])]
}

/// Sixteen cells of Lingvo's test: ReLU(3 × 3 convolution), all weights 0.1. The output of the first and, if asked
/// for, of the ninth are fetched.
fn cells(fetches: &[&str]) -> Vec<Box<dyn Layer>> {
    let mut list = FeatureExtraction::new("cells");
    for cell in 0..16 {
        let conv = Conv2d::new(format!("conv{cell}"), 1, 1, Window::square(3, 1, 1));
        list = list
            .then(conv.without_bias().init(Init::Values(vec![0.1; 9].into())))
            .then(Activation::new(format!("relu{cell}"), Function::Relu));
    }
    let list = fetches.iter().fold(list, |list, &name| list.fetch(name));
    list.into_layers(&images(BATCH)).expect("a list of cells")
}

/// The inputs of the recorded run: words of Philox as numbers from 0 to 1.
fn inputs(device: &Device) -> Tensor {
    let words = (0..SHAPE.iter().product::<usize>() as u32 / 4)
        .flat_map(|i| philox4x32_10([1245, 0], [i, 0, 12345, 0]));
    let values = words.map(|word| f32::from_bits(0x3F80_0000 | word & 0x7F_FFFF) - 1.0);
    Tensor::from_f32(device, SHAPE, values.collect::<Vec<_>>()).expect("a value each")
}

fn builder(fetches: &[&str], schedule: Schedule, policy: Policy) -> AssemblyBuilder {
    Assembly::builder(cells(fetches))
        .batch(BATCH, images)
        .stages(schedule.stages())
        .with_schedule(schedule)
        .policy(policy)
        .optimizer(&Optimizer::from(Sgd::default()))
}

/// The predicted peak of each stage.
fn predicted(fetches: &[&str], schedule: Schedule, policy: Policy) -> Vec<u64> {
    let parts = schedule.micro_batches();
    let mut plan = builder(fetches, schedule, policy).plan(1).expect("a plan");
    let ranges = micro_batches(BATCH, parts).expect("a size");
    let costs = ModelCosts::new(&plan.layers, &ranges, images).expect("a model");
    let optimizer = Optimizer::from(Sgd::default());
    let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
    let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
    memory.iter().map(|memory| memory.peak()).collect()
}

/// The mean of all outputs of the batch as a loss.
fn mean(y: &Tensor, (): ()) -> Result<(f64, Tensor), Error> {
    let share = 1.0 / SHAPE.iter().product::<usize>() as f32;
    let sum: f64 = y.to_f32s()?.iter().map(|&y| f64::from(y)).sum();
    let dy = vec![share; y.elements()];
    let dy = Tensor::from_f32(y.device(), y.shape().clone(), dy)?;
    Ok((sum * f64::from(share), dy))
}

/// The norm of the gradients, and the peak of each stage.
fn norm(fetches: &[&str], schedule: Schedule, policy: Policy) -> (f64, Vec<u64>) {
    let host = Host::new(2).expect("threads");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let parts = schedule.micro_batches();
    let built = builder(fetches, schedule, policy).build_with_loss(&host, mean);
    let mut run = built.expect("an assembly");
    let items = batch_items(&[inputs(&cpu)], parts, 0, true, |_| Ok(()));
    run.pipeline.step(items.expect("a batch")).expect("a step");
    let norm = gradient_norm(&mut run.pipeline).expect("a norm");
    let peaks = run.devices.iter().map(|device| device.peak_bytes());
    (norm, peaks.collect())
}

#[test]
fn lingvo_s_cells_have_the_recorded_gradient_norm() {
    for stages in [1, 2, 4] {
        for schedule in [gpipe, one_f_one_b, zb_h1] {
            let schedule = schedule(stages, MICRO_BATCHES).expect("a size");
            let mut bits = Vec::new();
            for policy in [Policy::Keep, Policy::Stage, Policy::Every(3)] {
                for fetches in [&[][..], &["relu0"], &["relu8", "relu0"]] {
                    let (norm, counted) = norm(fetches, schedule.clone(), policy);
                    assert!((norm - 0.268_087).abs() < 5e-7, "{stages} stages: {norm}");
                    let predicted = predicted(fetches, schedule.clone(), policy);
                    assert_eq!(counted, predicted, "{stages} stages, {policy}, {fetches:?}");
                    bits.push(norm.to_bits());
                }
            }
            // Tensors that the loss ignores have gradients of zero.
            assert!(bits.iter().all(|one| *one == bits[0]), "{bits:?}");
        }
    }
}

#[test]
fn fetched_tensors_come_back_beside_the_output() {
    let host = Host::new(2).expect("threads");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let x = inputs(&cpu);
    let weights = Tensor::from_f32(&cpu, [1, 3, 3, 1], vec![0.1; 9]).expect("weights");
    let window = Window::square(3, 1, 1);
    // The first cell by itself, on each micro-batch.
    let first = |m: usize| {
        let part = x.rows(2 * m..2 * m + 2)?;
        ops::relu(&ops::conv2d(&part, &weights, None, &window)?)?.to_f32s()
    };
    let first: Result<Vec<Vec<f32>>, _> = (0..MICRO_BATCHES).map(first).collect();
    let first = first.expect("convolutions").concat();
    for stages in [1, 4] {
        let run = builder(
            &["relu8", "relu0"],
            gpipe(stages, MICRO_BATCHES).expect("a size"),
            Policy::Keep,
        );
        let built = run.build_to(&host, |last, _| OutputStage::new(last));
        let mut run = built.expect("an assembly");
        let items = batch_items(from_ref(&x), MICRO_BATCHES, 0, false, |_| Ok(()));
        run.pipeline
            .forward(items.expect("a batch"))
            .expect("a pass");
        let (outputs, extras) = run
            .pipeline
            .with_loss_stage(|end| Ok::<_, Error>((end.take(), end.take_extras())))
            .expect("outputs");
        assert_eq!(outputs.len(), MICRO_BATCHES);
        assert!(extras.iter().all(|extras| extras.len() == 2));
        // The order is that of the fetches, not of the cells.
        let fetched = extras.iter().map(|extras| extras[1].to_f32s());
        let fetched: Vec<f32> = fetched.flat_map(|part| part.expect("floats")).collect();
        assert_eq!(fetched.len(), SHAPE.iter().product::<usize>());
        assert_eq!(fetched, first, "{stages} stages");
    }
}

#[test]
fn an_evaluation_keeps_extras_if_asked() {
    let host = Host::new(1).expect("a thread");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let x = inputs(&cpu);
    let schedule = gpipe(2, MICRO_BATCHES).expect("a size");
    let run = builder(&["relu0"], schedule, Policy::Stage).loss(Loss::SquaredError);
    let run = run.build(&host).expect("an assembly");
    let mut trainer = Trainer::new(run, Optimizer::from(Sgd::default()), |_| 0.1);
    let mut extras = |keep: bool| {
        let end = trainer.pipeline();
        end.with_loss_stage(move |end| {
            end.keep_extras(keep);
            Ok::<_, Error>(())
        })
        .expect("a loss stage");
        trainer.step(from_ref(&x), &x).expect("a step");
        trainer.evaluate(from_ref(&x), &x).expect("an evaluation");
        let end = trainer.pipeline();
        let taken = end.with_loss_stage(|end| Ok::<_, Error>(end.take_extras()));
        taken.expect("extras").len()
    };
    assert_eq!((extras(false), extras(true)), (0, MICRO_BATCHES));
}

/// Lingvo's `SeqLayer`: cell i on device i mod D, the whole batch at once.
#[test]
fn one_micro_batch_is_naive_model_parallelism() {
    let whole = |stages| gpipe(stages, 1).expect("a size");
    let one = norm(&["relu0"], whole(1), Policy::Keep).0;
    for (schedule, device_of) in [
        (whole(2), vec![0, 1]),
        (looped_bfs(2, 4, 1).expect("a size"), [0, 1].repeat(4)),
    ] {
        assert_eq!(schedule.device_of(), device_of);
        // No two devices compute at the same time: each action needs the result of the one before.
        let costs = gpipe_sched::Costs::new(vec![
            gpipe_sched::StageCosts {
                forward: 1.0,
                input_grad: 1.0,
                weight_grad: 1.0,
                recompute: 0.0,
            };
            schedule.stages()
        ]);
        let timeline = gpipe_sched::simulate(&schedule, &costs).expect("a timeline");
        assert_eq!(timeline.makespan(), 3.0 * schedule.stages() as f64);
        let (naive, counted) = norm(&["relu0"], schedule.clone(), Policy::Keep);
        assert_eq!(naive.to_bits(), one.to_bits());
        assert_eq!(counted, predicted(&["relu0"], schedule, Policy::Keep));
    }
}
