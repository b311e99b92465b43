//! Cost honesty: the predicted peak of every stage is the counted one, to the byte.

mod common;

use std::ops::Range;

use common::{CONTEXT, Model, Order, Outcome, Run};
use gpipe_layers::{Flow, Layer, Optimizer, models};
use gpipe_remat::{
    ModelCosts, ParameterBytes, Policy, RematPlan, StageMemory, micro_batches, predict_held,
    predict_memory,
};
use gpipe_sched::{
    Costs, Held, Schedule, Timeline, dualpipe_v, gpipe, interleaved, looped_bfs, one_f_one_b,
    v_half, v_min, zb_h1, zb_h2, zb_v,
};

const POLICIES: [Policy; 6] = [
    Policy::Keep,
    Policy::Stage,
    Policy::ExceptLast,
    Policy::Every(1),
    Policy::Every(2),
    Policy::Every(3),
];

struct Plan {
    layers: Vec<Box<dyn Layer>>,
    cut: Vec<Range<usize>>,
    samples: Vec<Range<usize>>,
    context: usize,
}

impl Plan {
    fn predict(
        &mut self,
        schedule: &Schedule,
        policy: Policy,
        optimizer: Option<&Optimizer>,
        groups: usize,
    ) -> (Vec<StageMemory>, Vec<Vec<Held>>) {
        let tokens = |samples| vec![Flow::u32([samples, self.context])];
        let costs = ModelCosts::new(&self.layers, &self.samples, tokens).expect("a valid model");
        let weights = ParameterBytes::new(&mut self.layers, optimizer);
        let costs = costs.with_groups(groups, &weights).expect("groups");
        let remat_plan =
            RematPlan::new(policy, &weights, &costs, &self.cut, schedule).expect("a remat plan");
        let memory = predict_memory(&weights, &costs, &self.cut, schedule, &remat_plan);
        let held = predict_held(&memory, &costs, &self.cut, schedule, &remat_plan);
        (memory, held)
    }
}

fn assert_honest(run: &Run) {
    assert_honest_under(run, &run.schedule());
}

fn assert_honest_under(run: &Run, schedule: &Schedule) {
    let layers = run.model.layers();
    let mut plan = Plan {
        cut: run.cut(layers.len()),
        layers,
        samples: micro_batches(run.batch, run.micro_batches).expect("a valid size"),
        context: CONTEXT,
    };
    let (predicted, held) = plan.predict(schedule, run.policy, Some(&run.optimizer), run.groups);
    let mut assembled = run.assemble_with(schedule.clone());
    let mut outcome = Outcome::default();
    for step in 0..2 {
        let timeline = outcome.step(&mut assembled, run.items(step), run, step, true);
        // Not only the peaks: the bytes at the beginning and the end of every action.
        let expected = Timeline::new(timeline.devices(), timeline.spans().to_vec());
        assert_eq!(timeline, expected.with_held(&held), "{run:?}");
        for (stage, (device, memory)) in assembled.devices.iter().zip(&predicted).enumerate() {
            assert_eq!(
                device.peak_bytes(),
                memory.peak(),
                "stage {stage} of {run:?}: {memory:?}"
            );
            let fixed = memory.values + memory.gradients + memory.optimizer;
            assert_eq!(
                device.live_bytes(),
                fixed,
                "left over on stage {stage} of {run:?}"
            );
        }
        assert_eq!(
            assembled.transit.live_bytes(),
            0,
            "lost between the stages of {run:?}"
        );
    }
}

#[test]
fn predicted_is_counted() {
    for (tied, dropout) in [(true, 0.0), (true, 0.2), (false, 0.0), (false, 0.2)] {
        for (batch, micro_batches) in [(8, 4), (7, 3)] {
            for stages in [1, 2, 3, 5] {
                for order in [Order::Gpipe, Order::OneFOneB] {
                    let model = Model {
                        blocks: 3,
                        tied,
                        dropout,
                    };
                    let run = Run {
                        stages,
                        order,
                        ..Run::new(model, batch, micro_batches)
                    };
                    let budgets = run.budgets(&run.schedule());
                    for policy in POLICIES.into_iter().chain(budgets) {
                        assert_honest(&Run {
                            policy,
                            ..run.clone()
                        });
                    }
                }
            }
        }
    }
}

/// Split backward passes and several stages a worker: what is pending is predicted as well.
#[test]
fn predicted_is_counted_under_every_schedule() {
    let schedules = [
        interleaved(2, 2, 5),
        looped_bfs(2, 3, 5),
        zb_h1(3, 5),
        zb_h2(3, 5),
        zb_v(2, 5),
        v_half(2, 5),
        v_min(2, 5),
        dualpipe_v(2, 5),
    ];
    // The same with what is computed again ahead of time.
    let early = [gpipe(3, 5), one_f_one_b(3, 5), zb_h1(3, 5), v_half(2, 5)].map(|schedule| {
        let schedule = schedule.expect("a valid size");
        let costs = Costs::even(schedule.stages(), 1.0, 2.0).with_recompute(5, |_, _| true);
        schedule.recompute_early(&costs).expect("costs that fit")
    });
    let schedules = schedules.map(|schedule| schedule.expect("a valid size"));
    for schedule in schedules.into_iter().chain(early) {
        let model = Model {
            blocks: 3,
            tied: true,
            dropout: 0.2,
        };
        let run = Run {
            stages: schedule.stages(),
            ..Run::new(model, 8, 5)
        };
        for policy in POLICIES.into_iter().chain(run.budgets(&schedule)) {
            let run = Run {
                policy,
                ..run.clone()
            };
            assert_honest_under(&run, &schedule);
        }
    }
}

/// The sums of further groups are predicted too, under a budget that they exceed as well.
#[test]
fn predicted_is_counted_for_every_number_of_groups() {
    let model = Model {
        blocks: 2,
        tied: true,
        dropout: 0.2,
    };
    for schedule in [gpipe(2, 7), one_f_one_b(3, 7), zb_v(2, 7), zb_h1(2, 7)] {
        let schedule = schedule.expect("a valid size");
        for groups in [2, 3, 5, 7] {
            let run = Run {
                stages: schedule.stages(),
                groups,
                ..Run::new(model.clone(), 15, 7)
            };
            for policy in [Policy::Keep, Policy::Stage]
                .into_iter()
                .chain(run.budgets(&schedule))
            {
                let run = Run {
                    policy,
                    ..run.clone()
                };
                assert_honest_under(&run, &schedule);
            }
        }
    }
}

/// gpt-mini on two stages, eight micro-batches.
fn gpt_mini(order: Order, policy: Policy) -> Vec<StageMemory> {
    let preset = models::preset("gpt-mini").expect("a preset");
    let layers = models::gpt(&preset.config).expect("a valid model");
    let mut plan = Plan {
        cut: micro_batches(layers.len(), 2).expect("two stages"),
        layers,
        samples: micro_batches(preset.batch, 8).expect("eight micro-batches"),
        context: preset.config.context,
    };
    plan.predict(&order.schedule(2, 8), policy, None, 1).0
}

fn worst(memory: &[StageMemory]) -> u64 {
    memory
        .iter()
        .map(|stage| stage.activations)
        .max()
        .unwrap_or(0)
}

#[test]
fn recomputation_saves_two_thirds() {
    let keep = worst(&gpt_mini(Order::Gpipe, Policy::Keep));
    let stage = worst(&gpt_mini(Order::Gpipe, Policy::Stage));
    assert!(stage * 3 <= keep, "{stage} bytes against {keep}");
}

#[test]
fn one_f_one_b_holds_less_than_gpipe() {
    for (order, policy) in
        [Policy::Keep, Policy::ExceptLast].map(|policy| (Order::OneFOneB, policy))
    {
        let (ours, gpipe) = (gpt_mini(order, policy), gpt_mini(Order::Gpipe, policy));
        assert!(
            worst(&ours) < worst(&gpipe),
            "{policy}: {ours:?} against {gpipe:?}"
        );
    }
}

#[test]
fn shorter_runs_hold_less_at_once() {
    let whole = gpt_mini(Order::Gpipe, Policy::Every(usize::MAX));
    assert_eq!(whole, gpt_mini(Order::Gpipe, Policy::Stage));
    let runs = gpt_mini(Order::OneFOneB, Policy::Every(2));
    assert!(worst(&runs) < worst(&gpt_mini(Order::OneFOneB, Policy::Stage)));
}
