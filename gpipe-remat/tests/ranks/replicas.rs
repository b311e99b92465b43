//! Replicas of a pipeline on ranks of their own: the bits of one process with as many groups.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gpipe_layers::layers::{Identity, Layout, Linear};
use gpipe_layers::{Cost, Flow, Layer, Loss, Optimizer, Param, PassContext, Pending, Saved, Sgd};
use gpipe_remat::{
    Assembly, ParamState, ParameterBytes, Policy, Trainer, TrainingLoss, copy_owned,
    first_non_finite_state, gradient_norm, put_states, put_values, sum_replicas,
};
use gpipe_sched::{Schedule, ScheduleError, World, gpipe, interleaved, one_f_one_b, zb_h1, zb_v};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};

use super::common::{CONTEXT, Model, Outcome, Run, VOCAB};
use super::on_ranks;

/// Each replica computes its share of the micro-batches alone: what it is handed of others' is not looked at.
#[test]
fn replicas_share_an_evaluation_to_the_bits_of_one() {
    const REPLICAS: usize = 3;
    let model = Model {
        blocks: 2,
        tied: true,
        dropout: 0.2,
    };
    let run = Run {
        stages: 2,
        groups: REPLICAS,
        ..Run::new(model, 11, 7)
    };
    let host = Host::new(run.threads).unwrap();
    let device = host.device(DeviceId::Cpu).unwrap();
    // As many samples, of which those outside of `own` are others.
    let tokens = |samples: usize, own: Range<usize>, shift: usize| {
        let tokens = (0..samples * CONTEXT).map(|i| {
            let other = usize::from(!own.contains(&(i / CONTEXT)));
            ((i * 7 + shift + 5 * other) % VOCAB) as u32
        });
        Tensor::from_u32(&device, [samples, CONTEXT], tokens.collect()).unwrap()
    };
    let trainer_of = |assembled| Trainer::new(assembled, run.optimizer.clone(), |_| 1e-3);
    let mut whole = trainer_of(run.assemble_with(gpipe(2, 7).unwrap()));
    // In 7, 4 and 2 micro-batches: of 2, the first replica has none.
    let evaluated = [11, 4, 2].map(|samples| {
        let of = |shift| tokens(samples, 0..samples, shift);
        let expected = whole.evaluate(&[of(0)], &of(3)).unwrap();
        let parts = gpipe_remat::micro_batches(samples, samples.min(7)).unwrap();
        let shares = [0, 1, 2].map(|replica| {
            let share = |replica: usize| {
                let part = replica * parts.len() / REPLICAS;
                parts.get(part).map_or(samples, |part| part.start)
            };
            share(replica)..share(replica + 1)
        });
        (samples, shares, expected)
    });
    on_ranks(REPLICAS, |world| {
        let run = Run {
            replica: [world.rank(), REPLICAS],
            ..run.clone()
        };
        let own = run.groups_of_replica().own_micro_batches().len();
        let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
        let assembly = run.assembly(gpipe(2, own).unwrap());
        let host = Host::new(run.threads).unwrap();
        let mut trainer = trainer_of(assembly.build_over(&host, Some(&world), end).unwrap());
        for (samples, shares, expected) in &evaluated {
            let of = |shift| tokens(*samples, shares[world.rank()].clone(), shift);
            let got = trainer.evaluate(&[of(0)], &of(3)).unwrap();
            assert_eq!(got.to_bits(), expected.to_bits(), "{samples} samples");
        }
    });
}

/// Replicas of a pipeline give the bits of one process with as many groups, whatever their number, that of their
/// ranks and the schedule.
#[test]
fn replicas_train_to_the_bits_of_one_process() {
    type Make = fn(usize, usize) -> Result<Schedule, ScheduleError>;
    let zb_v: Make = |workers, micro_batches| zb_v(workers, micro_batches);
    let interleaved: Make = |workers, micro_batches| interleaved(workers, 2, micro_batches);
    // Replicas, ranks of each, groups, micro-batches, workers, policy, schedule.
    let cases: [(usize, usize, usize, usize, usize, Policy, Make); 7] = [
        (2, 1, 2, 5, 1, Policy::Keep, gpipe),
        (2, 2, 2, 7, 2, Policy::Stage, one_f_one_b),
        (4, 1, 4, 4, 2, Policy::Keep, one_f_one_b),
        (2, 1, 6, 7, 2, Policy::Stage, zb_h1),
        (3, 2, 9, 11, 2, Policy::Keep, zb_v),
        (2, 2, 4, 8, 2, Policy::Stage, interleaved),
        (5, 1, 5, 11, 3, Policy::Keep, zb_h1),
    ];
    for (replicas, ranks, groups, micro_batches, workers, policy, make) in cases {
        let model = Model {
            blocks: 3,
            tied: true,
            dropout: 0.2,
        };
        let run_of = |schedule: &Schedule, replica| Run {
            stages: schedule.stages(),
            groups,
            replica,
            policy,
            ..Run::new(model.clone(), 13, micro_batches)
        };
        let case = format!("{replicas} x {ranks}, {groups} of {micro_batches}");
        let schedule = make(workers, micro_batches).unwrap();
        let whole = run_of(&schedule, [0, 1]);
        let mut expected = Outcome::default();
        let mut assembled = whole.assemble_with(schedule);
        for step in 0..whole.steps {
            expected.step(&mut assembled, whole.items(step), &whole, step, true);
        }
        expected.read(&mut assembled);
        let device = assembled.transit.clone();
        let copies = copy_owned(&mut assembled.pipeline, &device).unwrap();
        let of = |all: &[ParamState]| -> Vec<(String, Vec<Vec<f32>>)> {
            let of = |one: &ParamState| {
                let tensors = [&one.value].into_iter().chain(&one.state);
                let values = tensors.map(|tensor| tensor.to_f32s().unwrap());
                (one.name.clone(), values.collect())
            };
            all.iter().map(of).collect()
        };
        let train = |world: Arc<World>, sharded| {
            let run = whole.clone();
            let run = Run {
                replica: [world.rank() / ranks, replicas],
                sharded,
                ..run
            };
            let own = run.groups_of_replica().own_micro_batches().len();
            let schedule = make(workers, own).unwrap();
            let host = Host::new(run.threads).unwrap();
            let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
            let assembly = run.assembly(schedule);
            let mut part = assembly.build_over(&host, Some(&world), end).unwrap();
            let mut got = Outcome::default();
            for step in 0..run.steps {
                got.step(&mut part, run.items(step), &run, step, true);
            }
            assert_eq!(got.losses, expected.losses, "{case}");
            assert_eq!(got.norms, expected.norms, "{case}");
            got.read(&mut part);
            assert!(!got.values.is_empty());
            for (name, value) in &got.values {
                assert_eq!(*value, expected.values[name], "{case}: {name}");
                assert!(
                    sharded || got.gradients[name] == expected.gradients[name],
                    "{case}: {name}"
                );
            }
            // A checkpoint is gathered on rank 0, from the replicas that have the states, and put back on all.
            let device = host.device(DeviceId::Cpu).unwrap();
            assert_eq!(first_non_finite_state(&mut part.pipeline).unwrap(), None);
            for _ in 0..2 {
                let owned = copy_owned(&mut part.pipeline, &device).unwrap();
                assert!(
                    world.rank() > 0 || of(&owned) == of(&copies),
                    "{case}: checkpoint"
                );
                let values = copies
                    .iter()
                    .map(|one| (one.name.clone(), one.value.clone()));
                put_values(&mut part.pipeline, values.collect()).unwrap();
                let states = copies
                    .iter()
                    .map(|one| (one.name.clone(), one.state.clone()));
                put_states(&mut part.pipeline, states.collect()).unwrap();
            }
            let stages = part.pipeline.gather(|_, stage| {
                let mut bytes = 0;
                stage.params(|param| {
                    bytes += param
                        .state
                        .iter()
                        .map(|state| 4 * state.elements())
                        .sum::<usize>();
                });
                Ok::<_, gpipe_remat::Error>(bytes)
            });
            let stages = stages.unwrap();
            let weights = ParameterBytes::new(&mut run.model.layers(), Some(&run.optimizer));
            let weights = match sharded {
                true => weights.sharded(world.rank() / ranks, replicas),
                false => weights,
            };
            let cut = run.cut(run.model.layers().len()).into_iter();
            let predicted: Vec<u64> = cut.map(|part| weights.of_stage(part).optimizer).collect();
            for bytes in stages {
                assert!(
                    predicted.contains(&(bytes as u64)),
                    "{case}: {bytes} {predicted:?}"
                );
            }
        };
        for sharded in [false, true] {
            on_ranks(replicas * ranks, |world| train(world, sharded));
        }
    }
}

/// A replica that fails between the step and its sum ends the others.
#[test]
fn a_replica_that_fails_before_the_sum_ends_the_others() {
    let model = Model {
        blocks: 1,
        tied: false,
        dropout: 0.0,
    };
    on_ranks(2, |world| {
        let run = Run {
            groups: 2,
            replica: [world.rank(), 2],
            ..Run::new(model.clone(), 4, 2)
        };
        let host = Host::new(1).unwrap();
        let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
        let assembly = run.assembly(gpipe(1, 1).unwrap());
        let mut part = assembly.build_over(&host, Some(&world), end).unwrap();
        match world.rank() {
            0 => {
                part.pipeline.step(run.items(0)).unwrap();
                let error = sum_replicas(&mut part.pipeline).unwrap_err().to_string();
                assert!(
                    error.contains("rank 1") && error.contains("no room"),
                    "{error}"
                );
            }
            _ => {
                part.pipeline.step(run.items(0)).unwrap();
                let fails = |_: usize, _: &mut gpipe_remat::LayerStage| Err::<(), _>("no room");
                let error = part.pipeline.each(fails).unwrap_err().to_string();
                assert!(error.contains("no room"), "{error}");
            }
        }
    });
}

/// The identity. Its backward pass panics while the flag is set.
struct Panicking(Arc<AtomicBool>);

impl Layer for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }

    fn cost(&self, inputs: &[Flow]) -> gpipe_layers::Result<Cost> {
        Identity::new("").cost(inputs)
    }

    fn forward(&self, _: &PassContext, x: Tensors) -> gpipe_layers::Result<(Tensors, Saved)> {
        Ok((x, Saved::default()))
    }

    fn input_grad(&self, _: Saved, dy: Tensors) -> gpipe_layers::Result<(Tensors, Pending)> {
        assert!(!self.0.load(Ordering::Relaxed), "out of luck");
        Ok((dy, Pending::default()))
    }

    fn weight_grad(&mut self, _: Pending) -> gpipe_layers::Result<()> {
        Ok(())
    }

    fn params(&mut self, _: &mut dyn FnMut(&mut Param)) {}
}

/// As any failed step.
#[test]
fn a_panic_in_a_backward_pass_leaves_the_next_step_its_replicas() {
    let linear = |name: &str| Linear::new(name, 3, 3, Layout::OutIn);
    let losses = Mutex::new(vec![Vec::new(); 2]);
    on_ranks(2, |world| {
        let (rank, panics) = (world.rank(), Arc::new(AtomicBool::new(false)));
        let layers: Vec<Box<dyn Layer>> = vec![
            Box::new(linear("a")),
            Box::new(Panicking(panics.clone())),
            Box::new(linear("b")),
        ];
        let (host, optimizer) = (Host::new(1).unwrap(), Optimizer::from(Sgd::default()));
        let assembly = Assembly::builder(layers)
            .batch(4, |samples| vec![Flow::f32([samples, 3])])
            .stages(1)
            .micro_batches(2)
            .groups(2)
            .replica(rank, 2, false)
            .optimizer(&optimizer);
        let end = |last, transit| TrainingLoss::new(Loss::SquaredError, last, transit);
        let assembly = assembly.plan(1).unwrap();
        let part = assembly.build_over(&host, Some(&world), end).unwrap();
        let mut trainer = Trainer::new(part, optimizer, |_| 0.1);
        let device = host.device(DeviceId::Cpu).unwrap();
        let x = Tensor::from_f32(&device, [4, 3], vec![0.5; 12]).unwrap();
        panics.store(rank == 0, Ordering::Relaxed);
        let error = trainer
            .step(std::slice::from_ref(&x), &x)
            .unwrap_err()
            .to_string();
        assert!(error.contains("out of luck"), "{error}");
        panics.store(false, Ordering::Relaxed);
        for _ in 0..2 {
            let loss = trainer.step(std::slice::from_ref(&x), &x).unwrap().loss;
            losses.lock().unwrap()[rank].push(loss);
        }
    });
    let losses = losses.into_inner().unwrap();
    assert!(
        losses[0] == losses[1] && losses[0][1] < losses[0][0],
        "{losses:?}"
    );
}

/// Three groups of a replica of two end as sums of two and of one, of which the second is beside the gradients.
#[test]
fn sums_of_groups_are_let_go_when_all_are_added() {
    let model = Model {
        blocks: 1,
        tied: false,
        dropout: 0.0,
    };
    on_ranks(2, |world| {
        let run = Run {
            groups: 6,
            replica: [world.rank(), 2],
            ..Run::new(model.clone(), 6, 6)
        };
        let host = Host::new(1).unwrap();
        let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
        let assembly = run.assembly(gpipe(1, 3).unwrap());
        let mut part = assembly.build_over(&host, Some(&world), end).unwrap();
        let fixed = part.devices[0].live_bytes();
        let mut outcome = Outcome::default();
        outcome.step(&mut part, run.items(0), &run, 0, true);
        assert_eq!(part.devices[0].live_bytes(), fixed);
        // There is nothing left to add.
        let norm = gradient_norm(&mut part.pipeline).unwrap();
        sum_replicas(&mut part.pipeline).unwrap();
        assert_eq!(gradient_norm(&mut part.pipeline).unwrap(), norm);
    });
}
