//! A model over ranks, threads with nothing in common but messages: the bits of one process.

mod common;
#[path = "ranks/replicas.rs"]
mod replicas;

use std::sync::Arc;
use std::thread;

use common::{CONTEXT, Model, Outcome, Run, VOCAB};
use gpipe_layers::{Loss, freeze};
use gpipe_remat::{
    Assembled, ParameterBytes, Trainer, TrainingLoss, copy_owned, first_non_finite_state,
    put_states, put_values,
};
use gpipe_sched::{InMemory, Schedule, World, interleaved, one_f_one_b, zb_v};
use gpipe_tensor::{DeviceId, Host, Tensor};

fn on_ranks(ranks: usize, run: impl Fn(Arc<World>) + Sync) {
    thread::scope(|scope| {
        let run = &run;
        for transport in InMemory::new(ranks) {
            scope.spawn(move || run(World::new(transport)));
        }
    });
}

fn cases() -> Vec<(Schedule, usize)> {
    [
        (one_f_one_b(4, 5), 2),
        (one_f_one_b(4, 5), 4),
        (interleaved(2, 2, 4), 2),
        (zb_v(2, 5), 2),
    ]
    .map(|(schedule, ranks)| (schedule.expect("a valid size"), ranks))
    .into()
}

#[test]
fn ranks_train_to_the_bits_of_one_process() {
    for (schedule, ranks) in cases() {
        let model = Model {
            blocks: 3,
            tied: true,
            dropout: 0.2,
        };
        let run = Run {
            stages: schedule.stages(),
            groups: 2,
            ..Run::new(model, 11, schedule.micro_batches())
        };
        let mut expected = Outcome::default();
        let mut whole = run.assemble_with(schedule.clone());
        for step in 0..run.steps {
            expected.step(&mut whole, run.items(step), &run, step, true);
        }
        expected.read(&mut whole);
        let device = whole.transit.clone();
        let copies = copy_owned(&mut whole.pipeline, &device).unwrap();
        on_ranks(ranks, |world| {
            let host = Host::new(run.threads).unwrap();
            let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
            let assembly = run.assembly(schedule.clone());
            let mut part = assembly.build_over(&host, Some(&world), end).unwrap();
            let mut got = Outcome::default();
            for step in 0..run.steps {
                got.step(&mut part, run.items(step), &run, step, true);
            }
            assert_eq!(got.losses, expected.losses);
            assert_eq!(got.norms, expected.norms);
            got.read(&mut part);
            assert!(!got.values.is_empty() && got.values.len() < expected.values.len());
            for (name, value) in &got.values {
                assert_eq!(*value, expected.values[name], "{name}");
                assert_eq!(got.gradients[name], expected.gradients[name], "{name}");
            }
            assert_eq!(first_non_finite_state(&mut part.pipeline).unwrap(), None);
            // A checkpoint is gathered on rank 0, and put back on all.
            let device = host.device(DeviceId::Cpu).unwrap();
            let owned = copy_owned(&mut part.pipeline, &device).unwrap();
            if world.rank() == 0 {
                assert!(
                    owned
                        .iter()
                        .map(|one| &one.name)
                        .eq(copies.iter().map(|one| &one.name))
                );
            }
            let values = copies
                .iter()
                .map(|one| (one.name.clone(), one.value.clone()));
            put_values(&mut part.pipeline, values.collect()).unwrap();
            let states = copies
                .iter()
                .map(|one| (one.name.clone(), one.state.clone()));
            put_states(&mut part.pipeline, states.collect()).unwrap();
            let mut again = Outcome::default();
            again.read(&mut part);
            assert_eq!(again.values, got.values);
        });
    }
}

/// Every rank makes the call of one process. A rank that panics between two steps ends the others.
#[test]
fn a_trainer_steps_over_ranks_to_the_bits_of_one_process() {
    let schedule = one_f_one_b(4, 5).expect("a valid size");
    let model = Model {
        blocks: 3,
        tied: true,
        dropout: 0.2,
    };
    let run = Run {
        stages: 4,
        ..Run::new(model, 11, 5)
    };
    let host = Host::new(run.threads).unwrap();
    let device = host.device(DeviceId::Cpu).unwrap();
    let tokens = |shift: usize| {
        let tokens = (0..11 * CONTEXT).map(|i| ((i * 7 + shift) % VOCAB) as u32);
        Tensor::from_u32(&device, [11, CONTEXT], tokens.collect()).unwrap()
    };
    let (inputs, targets) = ([tokens(0)], tokens(3));
    let steps = |run_of: Assembled| -> Trainer {
        let mut trainer = Trainer::new(run_of, run.optimizer.clone(), |_| 1e-3);
        for _ in 0..2 {
            trainer.step(&inputs, &targets).unwrap();
        }
        trainer
    };
    let mut whole = steps(run.assemble_with(schedule.clone()));
    let step = whole.step(&inputs, &targets).unwrap();
    let expected = (step.loss, step.stats.grad_norm);
    let evaluated = whole.evaluate(&inputs, &targets).unwrap();
    let rank = |transport: InMemory| {
        let world = World::new(transport);
        let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
        let assembly = run.assembly(schedule.clone());
        let host = Host::new(run.threads).unwrap();
        let mut trainer = steps(assembly.build_over(&host, Some(&world), end).unwrap());
        let step = trainer.step(&inputs, &targets).unwrap();
        assert_eq!((step.loss, step.stats.grad_norm), expected);
        assert_eq!(trainer.evaluate(&inputs, &targets).unwrap(), evaluated);
        assert_eq!(world.rank(), 0, "of the last rank");
        let error = trainer.step(&inputs, &targets).unwrap_err().to_string();
        assert!(error.contains("a panic"), "{error}");
    };
    let rank = &rank;
    let panicked = thread::scope(|scope| {
        let ranks = InMemory::new(2).into_iter();
        let ranks = ranks.map(|transport| scope.spawn(move || rank(transport)));
        let ranks: Vec<_> = ranks.collect();
        let ends = ranks.into_iter().map(|rank| rank.join().is_err());
        ends.collect::<Vec<_>>()
    });
    assert_eq!(panicked, [false, true]);
}

/// Where first stages have no backward pass, a flow without tensors goes back to them.
#[test]
fn frozen_first_stages_give_the_bits_of_one_process_over_ranks() {
    for (schedule, ranks) in cases() {
        let model = Model {
            blocks: 3,
            tied: false,
            dropout: 0.2,
        };
        let run = Run {
            stages: schedule.stages(),
            ..Run::new(model, 11, schedule.micro_batches())
        };
        let assembly = || {
            let mut assembly = run.assembly(schedule.clone());
            let frozen = assembly.cut[1].end;
            for layer in &mut assembly.layers[..frozen] {
                freeze(layer.as_mut(), |_| true);
            }
            let bytes = ParameterBytes::new(&mut assembly.layers, Some(&run.optimizer));
            let costs = run.costs(&assembly.layers).with_frozen(&bytes);
            assembly.remat_plan = assembly.remat_plan.with_frozen(&costs, &assembly.cut);
            assembly
        };
        let steps = |run_of: Assembled, host: &Host| {
            let device = host.device(DeviceId::Cpu).unwrap();
            let tokens = |shift: usize| {
                let tokens = (0..11 * CONTEXT).map(|i| ((i * 7 + shift) % VOCAB) as u32);
                Tensor::from_u32(&device, [11, CONTEXT], tokens.collect()).unwrap()
            };
            let mut trainer = Trainer::new(run_of, run.optimizer.clone(), |_| 1e-2);
            let steps = (0..3).map(|_| {
                let step = trainer.step(&[tokens(0)], &tokens(3)).unwrap();
                (step.loss, step.stats.grad_norm)
            });
            steps.collect::<Vec<(f64, f64)>>()
        };
        let host = Host::new(run.threads).unwrap();
        let expected = steps(assembly().build(&host).unwrap(), &host);
        on_ranks(ranks, |world| {
            let host = Host::new(run.threads).unwrap();
            let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
            let built = assembly().build_over(&host, Some(&world), end).unwrap();
            assert_eq!(steps(built, &host), expected);
        });
    }
}
