//! Portals: tensors that pass whole stages go straight from the stage that gives them to the one that takes
//! them, at the same bits, and cost the stages between nothing.

#[path = "portals/nets.rs"]
mod nets;

use gpipe_layers::{Flow, Loss, Optimizer, Sgd};
use gpipe_partition::CutRule;
use gpipe_remat::{
    Assembled, Assembly, AssemblyBuilder, ModelCosts, ParameterBytes, Policy, Portals, Target,
    Trainer, TrainingLoss, batch_items, copy_owned, micro_batches, predict_memory,
};
use gpipe_sched::{
    InMemory, Portal, Schedule, World, gpipe, interleaved, looped_bfs, one_f_one_b, zb_h1, zb_v,
};
use gpipe_tensor::{DType, DeviceId, Host, Tensor};
use nets::{Net, WIDTH, long, nested, nets, wide};

/// Uneven: micro-batches of three samples and of two.
const SAMPLES: usize = 11;
const MICRO_BATCHES: usize = 4;
const STEPS: u64 = 2;

/// `[samples, 1, WIDTH]`, and indices `[samples, 1]` if wanted.
fn input(samples: usize, indices: bool) -> Vec<Flow> {
    let floats = Flow::f32([samples, 1, WIDTH]);
    let with = indices.then(|| Flow {
        shape: [samples, 1].into(),
        dtype: DType::U32,
    });
    [floats].into_iter().chain(with).collect()
}

struct Case {
    layers: Net,
    indices: bool,
    schedule: Schedule,
    policy: Policy,
    /// Layers of each stage; balanced if empty.
    sizes: Vec<usize>,
}

impl Case {
    fn new(layers: Net, schedule: Schedule, sizes: &[usize]) -> Self {
        Self {
            layers,
            indices: false,
            schedule,
            policy: Policy::Stage,
            sizes: sizes.to_vec(),
        }
    }

    fn builder(&self) -> AssemblyBuilder {
        let indices = self.indices;
        let builder = Assembly::builder((self.layers)())
            .batch(SAMPLES, move |samples| input(samples, indices))
            .stages(self.schedule.stages())
            .with_schedule(self.schedule.clone())
            .policy(self.policy)
            .loss(Loss::SquaredError)
            .optimizer(&Sgd::default().into());
        match self.sizes.is_empty() {
            true => builder,
            false => builder.cut(CutRule::Sizes(self.sizes.clone())),
        }
    }

    fn trainer(&self, host: &Host) -> Trainer {
        let assembled = self.builder().build(host).expect("an assembly");
        trainer(assembled)
    }

    /// The costs, the predicted peak of each stage and the portals.
    fn prediction(&self) -> (ModelCosts, Vec<u64>, Portals) {
        let mut plan = self.builder().plan(2).expect("a plan");
        let ranges = micro_batches(SAMPLES, self.schedule.micro_batches()).expect("a size");
        let costs = ModelCosts::new(&plan.layers, &ranges, |n| input(n, self.indices));
        let costs = costs.expect("a model");
        let bytes = ParameterBytes::new(&mut plan.layers, Some(&Sgd::default().into()));
        let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
        let portals = Portals::clone(plan.remat_plan.portals());
        assert_eq!(portals, Portals::new(&costs, &plan.cut));
        (costs, memory.iter().map(|m| m.peak()).collect(), portals)
    }
}

fn trainer(assembled: Assembled) -> Trainer {
    Trainer::new(assembled, Optimizer::from(Sgd::default()), |_| 0.01)
}

/// Trains one step; the bits of its loss.
fn step(trainer: &mut Trainer, indices: bool) -> Result<u64, gpipe_remat::Error> {
    let host = Host::new(1).expect("a thread");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let floats = |factor: usize| {
        let value = |i: usize| ((i * factor + 3) % 17) as f32 / 8.0 - 1.0;
        let values: Vec<f32> = (0..SAMPLES * WIDTH).map(value).collect();
        Tensor::from_f32(&cpu, [SAMPLES, 1, WIDTH], values).expect("a value each")
    };
    let ids = (0..SAMPLES as u32).map(|i| i * i % 5).collect();
    let ids = Tensor::from_u32(&cpu, [SAMPLES, 1], ids).expect("an index each");
    let inputs: Vec<Tensor> = [floats(5)]
        .into_iter()
        .chain(indices.then_some(ids))
        .collect();
    let target = |rows: std::ops::Range<usize>| {
        Ok(Target {
            values: floats(7).rows(rows)?,
            divisor: SAMPLES as f64,
        })
    };
    let parts = trainer.pipeline().schedule().micro_batches();
    let batch = |step| batch_items(&inputs, parts, step, true, target);
    Ok(trainer.step_on(batch)?.loss.to_bits())
}

/// The bits of some losses and then of all parameters.
fn train(trainer: &mut Trainer, indices: bool) -> Vec<u64> {
    let losses = (0..STEPS).map(|_| step(trainer, indices).expect("a step"));
    let mut bits: Vec<u64> = losses.collect();
    let run = trainer.run();
    for param in copy_owned(&mut run.pipeline, &run.transit).expect("room") {
        let values = param.value.to_f32s().expect("floats");
        bits.extend(values.iter().map(|value| u64::from(value.to_bits())));
    }
    bits
}

fn schedules(stages: usize) -> Vec<(&'static str, Schedule)> {
    let mut schedules = vec![
        ("gpipe", gpipe(stages, MICRO_BATCHES)),
        ("1f1b", one_f_one_b(stages, MICRO_BATCHES)),
        ("zb-h1", zb_h1(stages, MICRO_BATCHES)),
        ("one worker", looped_bfs(1, stages, MICRO_BATCHES)),
    ];
    if stages.is_multiple_of(2) {
        schedules.push(("interleaved", interleaved(stages / 2, 2, MICRO_BATCHES)));
        schedules.push(("looped-bfs", looped_bfs(stages / 2, 2, MICRO_BATCHES)));
        schedules.push(("zb-v", zb_v(stages / 2, MICRO_BATCHES)));
    }
    let made = schedules.into_iter();
    made.map(|(name, schedule)| (name, schedule.expect("a size")))
        .collect()
}

#[test]
fn portals_give_the_same_bits_and_the_predicted_bytes() {
    let host = Host::new(2).expect("threads");
    let mut portals_seen = 0;
    for (net, layers, indices) in nets() {
        let one = gpipe(1, MICRO_BATCHES).expect("a size");
        let mut one = Case::new(layers, one, &[]);
        one.indices = indices;
        let wanted = train(&mut one.trainer(&host), indices);
        assert!(one.prediction().2.is_empty());
        for stages in 3..=6 {
            for (name, schedule) in schedules(stages) {
                for policy in [
                    Policy::Keep,
                    Policy::Stage,
                    Policy::ExceptLast,
                    Policy::Every(1),
                ] {
                    let what = format!("{net}, {stages} stages, {name}, {policy}");
                    let schedule = schedule.clone();
                    let case = Case {
                        indices,
                        policy,
                        ..Case::new(layers, schedule, &[])
                    };
                    let mut trainer = case.trainer(&host);
                    assert_eq!(train(&mut trainer, indices), wanted, "{what}");

                    let (costs, peaks, portals) = case.prediction();
                    let run = trainer.run();
                    let counted: Vec<u64> = run.devices.iter().map(|d| d.peak_bytes()).collect();
                    assert_eq!(counted, peaks, "{what}");
                    let given = run.portals.given_bytes();
                    assert_eq!(given, STEPS * portals.step_bytes(&costs), "{what}");
                    let transit = run.portals.device();
                    let most = portals.transit_bytes(&costs, &case.schedule);
                    assert!(transit.peak_bytes() <= most, "{what}");
                    let left = transit.live_bytes() + run.transit.live_bytes();
                    assert_eq!(left, 0, "{what}");
                    portals_seen += portals.ends().len();
                }
            }
        }
    }
    assert!(portals_seen > 300, "{portals_seen}");
}

#[test]
fn no_byte_of_a_skip_is_on_the_stages_between_or_in_their_flows() {
    let host = Host::new(2).expect("threads");
    let schedule = gpipe(4, 1).expect("a size");
    let skip = Case::new(|| wide(true), schedule.clone(), &[3, 1, 1, 3]);
    let plain = Case::new(|| wide(false), schedule, &[2, 1, 1, 2]);
    let [with, without] = [&skip, &plain].map(|case| {
        let mut trainer = case.trainer(&host);
        step(&mut trainer, false).expect("a step");
        let run = trainer.run();
        let peaks: Vec<u64> = run.devices.iter().map(|d| d.peak_bytes()).collect();
        // With one micro-batch, one flow at a time is in transit.
        (
            peaks[1..3].to_vec(),
            run.transit.peak_bytes(),
            run.portals.device().peak_bytes(),
            run.portals.given_bytes(),
        )
    });
    let bytes = (SAMPLES * 512 * 4) as u64;
    assert_eq!((with.0, with.1), (without.0, without.1));
    assert_eq!((with.2, with.3), (bytes, 2 * bytes));
    assert_eq!((without.2, without.3), (0, 0));
    let (costs, _, portals) = skip.prediction();
    assert_eq!(portals.ends(), [Portal { from: 0, to: 3 }]);
    assert_eq!(portals.step_bytes(&costs), 2 * bytes);
}

#[test]
fn a_failed_step_leaves_nothing_behind() {
    let host = Host::new(2).expect("threads");
    let schedule = one_f_one_b(5, MICRO_BATCHES).expect("a size");
    let case = Case::new(|| nested(2), schedule, &[]);
    let assembled = case.builder().build(&host).expect("an assembly");
    // Without a learning rate, every step is the first again.
    let mut trainer = Trainer::new(assembled, Optimizer::from(Sgd::default()), |_| 0.0);
    let wanted = step(&mut trainer, false).expect("a step");
    let mut handles = trainer.run().devices.clone();
    handles.push(trainer.run().portals.device().clone());
    let mut refused = 0;
    for (index, handle) in handles.iter().enumerate() {
        // Every fourth buffer: failures on all passes, while other stages run.
        for n in (0..).step_by(4) {
            handle.fail_after(n);
            let outcome = step(&mut trainer, false);
            if handle.disarm() {
                assert_eq!(outcome.expect("nothing was refused"), wanted);
                break;
            }
            let what = format!("buffer {n} of handle {index}");
            assert!(outcome.is_err(), "{what}");
            refused += 1;
            let again = step(&mut trainer, false).expect("a step after a failure");
            assert_eq!(again, wanted, "{what}");
            let run = trainer.run();
            let left = run.portals.device().live_bytes() + run.transit.live_bytes();
            assert_eq!(left, 0, "{what}");
        }
    }
    assert!(refused > 20, "{refused}");
}

/// One pass past stages 1 and 2: given by stage 0, taken by stage 3; and one past stage 1 alone.
#[test]
fn between_ranks_a_portal_is_in_the_flows_at_the_same_bits_and_bytes() {
    let cases: [(Schedule, Net, Vec<usize>, bool); 2] = [
        // Stages 0 and 3 are on different ranks.
        (
            one_f_one_b(4, MICRO_BATCHES).expect("a size"),
            || long(6, 0),
            vec![3, 2, 3, 2],
            false,
        ),
        // Stages 0 and 2 are on one rank, stage 1 is on the other.
        (
            interleaved(2, 2, MICRO_BATCHES).expect("a size"),
            || long(3, 0),
            vec![2, 2, 2, 1],
            true,
        ),
    ];
    for (schedule, layers, sizes, through) in cases {
        let case = Case::new(layers, schedule, &sizes);
        let host = Host::new(2).expect("threads");
        let mut whole = case.trainer(&host);
        // The second loss follows from all gradients of the first step.
        let wanted = [0; 2].map(|_| step(&mut whole, false).expect("a step"));
        let (_, peaks, portals) = case.prediction();
        assert_eq!(portals.ends().len(), 1);
        std::thread::scope(|scope| {
            for transport in InMemory::new(2) {
                let (case, peaks) = (&case, &peaks);
                scope.spawn(move || {
                    let world = World::new(transport);
                    let host = Host::new(1).expect("a thread");
                    let plan = case.builder().plan(2).expect("a plan");
                    let loss = plan.loss;
                    let end = move |last, transit| TrainingLoss::new(loss, last, transit);
                    let built = plan.build_over(&host, Some(&world), end);
                    let mut trainer = trainer(built.expect("an assembly"));
                    let got = [0; 2].map(|_| step(&mut trainer, false).expect("a step"));
                    assert_eq!(got, wanted);
                    let run = trainer.run();
                    let given = run.portals.given_bytes();
                    assert_eq!(given > 0, through && world.rank() == 0);
                    let workers = case.schedule.devices();
                    for (stage, &worker) in case.schedule.device_of().iter().enumerate() {
                        if worker * 2 / workers == world.rank() {
                            assert_eq!(run.devices[stage].peak_bytes(), peaks[stage]);
                        }
                    }
                });
            }
        });
    }
}
