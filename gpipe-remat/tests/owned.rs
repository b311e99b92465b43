//! Parameters and optimizer state go out of one pipeline and into another of another cut: training
//! goes on to the same bits.

mod common;

use common::{Model, Order, Outcome, Run};
use gpipe_layers::{AdamW, Decay, Optimizer, Sgd};
use gpipe_remat::{
    Assembled, NonFiniteState, ParamState, Policy, copy_owned, first_non_finite_state, put_states,
    put_values,
};
use gpipe_tensor::Tensor;

fn run(stages: usize, order: Order, policy: Policy) -> Run {
    let model = Model {
        blocks: 2,
        tied: true,
        dropout: 0.1,
    };
    Run {
        stages,
        order,
        policy,
        ..Run::new(model, 6, 3)
    }
}

fn train(run: &Run, assembled: &mut Assembled, steps: std::ops::Range<u64>) -> Outcome {
    let mut outcome = Outcome::default();
    for step in steps {
        outcome.step(assembled, run.items(step), run, step, true);
    }
    outcome.read(assembled);
    outcome
}

fn out(assembled: &mut Assembled) -> Vec<ParamState> {
    let device = assembled.transit.host().device(gpipe_tensor::DeviceId::Cpu);
    copy_owned(&mut assembled.pipeline, &device.unwrap()).unwrap()
}

fn put(assembled: &mut Assembled, owned: Vec<ParamState>) -> gpipe_remat::Result<()> {
    let (values, states) = owned
        .into_iter()
        .map(|owned| ((owned.name.clone(), owned.value), (owned.name, owned.state)))
        .unzip();
    put_values(&mut assembled.pipeline, values)?;
    put_states(&mut assembled.pipeline, states)
}

#[test]
fn training_goes_on_in_another_pipeline_to_the_same_bits() {
    for optimizer in [
        Optimizer::from(AdamW {
            beta2: 0.95,
            weight_decay: 0.1,
            decay: Decay::Matrices,
            ..AdamW::default()
        }),
        Optimizer::from(Sgd {
            momentum: 0.9,
            weight_decay: 0.1,
            decay: Decay::All,
            ..Sgd::default()
        }),
        Optimizer::from(Sgd::default()),
    ] {
        let with = |run: Run| Run {
            optimizer: optimizer.clone(),
            ..run
        };
        let first = with(run(4, Order::Gpipe, Policy::Stage));
        let mut unbroken = first.assemble();
        train(&first, &mut unbroken, 0..3);
        let owned = out(&mut unbroken);
        let expected = train(&first, &mut unbroken, 3..6);
        for (stages, order, policy) in [
            (1, Order::Gpipe, Policy::Keep),
            (3, Order::OneFOneB, Policy::Every(2)),
        ] {
            let other = with(run(stages, order, policy));
            let mut resumed = other.assemble();
            // What it did before must not matter.
            train(&other, &mut resumed, 7..8);
            put(&mut resumed, owned.clone()).unwrap();
            assert_eq!(train(&other, &mut resumed, 3..6), expected);
        }
    }
}

#[test]
fn copies_do_not_see_the_next_step() {
    let run = run(2, Order::Gpipe, Policy::Keep);
    let mut assembled = run.assemble();
    train(&run, &mut assembled, 0..1);
    let bits = |owned: &[ParamState]| -> Vec<u32> {
        let tensors = owned
            .iter()
            .flat_map(|owned| std::iter::once(&owned.value).chain(&owned.state));
        tensors
            .flat_map(|tensor| tensor.f32s().unwrap().iter().map(|x| x.to_bits()))
            .collect()
    };
    let owned = out(&mut assembled);
    let before = bits(&owned);
    train(&run, &mut assembled, 1..2);
    assert_eq!(bits(&owned), before);
    assert_ne!(bits(&out(&mut assembled)), before);
}

/// Makes what was taken out unfit to be put back.
type Spoil<'a> = &'a dyn Fn(&mut Vec<ParamState>);

#[test]
fn what_does_not_fit_is_named_and_changes_nothing() {
    let run = run(2, Order::Gpipe, Policy::Keep);
    let mut assembled = run.assemble();
    let good = out(&mut assembled);
    let mut before = Outcome::default();
    before.read(&mut assembled);
    let other = |owned: &ParamState| {
        let device = owned.value.device();
        Tensor::zeros(device, [owned.value.elements() + 1]).unwrap()
    };
    let index = |owned: &ParamState| {
        let shape = owned.value.shape().clone();
        let zeros = vec![0; owned.value.elements()];
        Tensor::from_u32(owned.value.device(), shape, zeros).unwrap()
    };
    let cases: [(&str, Spoil); 6] = [
        ("is missing", &|all| drop(all.pop())),
        ("is there twice", &|all| all.push(all[0].clone())),
        ("no such parameter", &|all| {
            let mut strange = all[0].clone();
            strange.name = "strange".into();
            all.push(strange);
        }),
        ("of shape", &|all| {
            let last = all.last_mut().unwrap();
            last.value = other(last);
        }),
        ("value is u32", &|all| {
            let last = all.last_mut().unwrap();
            last.value = index(last);
        }),
        ("is 1 tensors, not 2", &|all| {
            for owned in all {
                owned.state.pop();
            }
        }),
    ];
    for (words, spoil) in cases {
        let mut spoiled = good.clone();
        // Values that differ from the model's, so that a change would show.
        for owned in &mut spoiled {
            owned.value = Tensor::zeros(owned.value.device(), owned.value.shape().clone()).unwrap();
        }
        spoil(&mut spoiled);
        if words.contains("tensors") {
            for (owned, good) in spoiled.iter_mut().zip(&good) {
                owned.value = good.value.clone();
            }
        }
        let error = put(&mut assembled, spoiled).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        let mut after = Outcome::default();
        after.read(&mut assembled);
        assert_eq!(after, before, "{words}");
    }
}

#[test]
fn a_state_that_is_not_finite_is_found_wherever_it_is() {
    let run = run(3, Order::Gpipe, Policy::Keep);
    let mut assembled = run.assemble();
    train(&run, &mut assembled, 0..1);
    let device = assembled.transit.clone();
    let owned = out(&mut assembled);
    assert_eq!(
        first_non_finite_state(&mut assembled.pipeline).unwrap(),
        None
    );
    let mut tried = 0;
    for place in 0..owned.len() {
        let tensors = 1 + owned[place].state.len();
        for (which, bad) in (0..tensors).zip([f32::NAN, f32::INFINITY, f32::NEG_INFINITY]) {
            let mut spoiled = owned.clone();
            let ParamState { name, value, state } = &mut spoiled[place];
            let tensor = if which == 0 {
                value
            } else {
                &mut state[which - 1]
            };
            // The largest finite values are no reason.
            let mut elements = vec![f32::MAX; tensor.shape().elements().unwrap()];
            *elements.last_mut().unwrap() = bad;
            *tensor = Tensor::from_f32(&device, tensor.shape().clone(), elements).unwrap();
            let (name, state) = (name.clone(), which.checked_sub(1));
            put(&mut assembled, spoiled).unwrap();
            let found = first_non_finite_state(&mut assembled.pipeline).unwrap();
            let found = found.expect("it was planted");
            assert_eq!((&found.name, found.state), (&name, state));
            assert_eq!(found.found.to_bits(), bad.to_bits());
            tried += 1;
        }
    }
    let largest = owned.iter().cloned().map(|mut owned| {
        let (device, shape) = (&device, owned.value.shape().clone());
        let elements = vec![f32::MAX; shape.elements().unwrap()];
        owned.value = Tensor::from_f32(device, shape, elements).unwrap();
        owned
    });
    put(&mut assembled, largest.collect()).unwrap();
    let found: Option<NonFiniteState> = first_non_finite_state(&mut assembled.pipeline).unwrap();
    assert_eq!(found, None);
    println!("exam L3 {tried}/{tried}");
    println!("exam L3 teeth {tried}/{tried}");
}
