//! A step that fails names the place and leaves nothing behind: the next one gives the bits and
//! bytes of a run that never failed. A plan by which every step would fail is refused.

mod common;

use std::sync::Arc;

use common::{CONTEXT, Model, Order, Outcome, Run, VOCAB};
use gpipe_remat::{Assembly, LayerStage, Policy, RematPlan, Retained, RetainedRun};
use gpipe_sched::{Groups, MicroBatch, Part, Place, Stage};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};

const POLICIES: [Policy; 4] = [
    Policy::Keep,
    Policy::Stage,
    Policy::ExceptLast,
    Policy::Every(2),
];

fn run(order: Order, policy: Policy) -> Run {
    let model = Model {
        blocks: 2,
        tied: true,
        dropout: 0.1,
    };
    Run {
        stages: 3,
        order,
        policy,
        ..Run::new(model, 8, 4)
    }
}

/// A token that the vocabulary does not have, in the last place of a micro-batch.
fn spoil(tokens: &mut Tensor) {
    let mut values = tokens.u32s().expect("tokens").to_vec();
    *values.last_mut().expect("not empty") = VOCAB as u32;
    *tokens =
        Tensor::from_u32(tokens.device(), tokens.shape().clone(), values).expect("a small tensor");
}

#[test]
fn the_step_after_a_failure_is_as_if_nothing_had_happened() {
    for order in [Order::Gpipe, Order::OneFOneB] {
        for policy in POLICIES {
            let run = run(order, policy);
            let expected = run.train();
            for m in 0..run.micro_batches {
                let mut assembled = run.assemble();
                let mut bad_input = run.items(0);
                spoil(&mut bad_input[m].input[0]);
                let error = assembled.pipeline.step(bad_input).expect_err("a bad token");
                let place = error.place().map(|place| place.to_string());
                assert_eq!(
                    place,
                    Some(format!("stage 0, micro-batch {m}, forward (0F{m})"))
                );

                let mut bad_target = run.items(0);
                spoil(&mut bad_target[m].target.values);
                let error = assembled
                    .pipeline
                    .step(bad_target)
                    .expect_err("a bad target");
                assert_eq!(error.place(), Some(Place::Loss { micro_batch: m }));
                let message = error.to_string();
                assert!(
                    message.contains(&format!("index {VOCAB} is outside of 0..{VOCAB}")),
                    "{message}"
                );

                let mut got = Outcome::default();
                for step in 0..run.steps {
                    got.step(&mut assembled, run.items(step), &run, step, true);
                }
                got.read(&mut assembled);
                assert_eq!(expected, got, "{run:?} after failures at micro-batch {m}");
                assert_eq!(
                    assembled.transit.live_bytes(),
                    0,
                    "left in flight by {run:?}"
                );
            }
        }
    }
}

#[test]
fn a_visit_that_fails_names_the_stage() {
    let mut assembled = run(Order::Gpipe, Policy::Stage).assemble();
    let visited = assembled.pipeline.each(|index, _| match index {
        1 => Err("planted"),
        _ => Ok(()),
    });
    let error = visited.expect_err("planted");
    assert_eq!(error.place(), Some(Place::Visit(Part::Stage(1))));
}

/// A stage by itself, to be called in any order.
fn stage(policy: Policy) -> (LayerStage, MicroBatch, Tensors) {
    let run = Run {
        stages: 1,
        ..run(Order::Gpipe, policy)
    };
    let host = Host::new(1).expect("a thread");
    let device = || host.device(DeviceId::Cpu).expect("a CPU");
    let (own, transit) = (device(), device());
    let mut layers = run.model.layers();
    for layer in &mut layers {
        gpipe_layers::make(layer.as_mut(), &own, 1).expect("room");
    }
    let remat_plan = Arc::new(run.remat_plan(&mut layers, &run.schedule()));
    let stage = LayerStage::new(0, layers, own, transit, remat_plan, 1);
    let item = run.items(0).swap_remove(1);
    (stage, item.micro_batch, item.input)
}

fn gradient(y: &Tensors) -> Tensors {
    let y = &y[0];
    assert_eq!(y.shape().dims(), [2, CONTEXT, VOCAB]);
    Tensors::from_iter([Tensor::zeros(y.device(), y.shape().clone()).expect("room")])
}

#[test]
fn an_action_out_of_order_names_the_micro_batch() {
    for policy in POLICIES {
        let (mut stage, m, x) = stage(policy);
        stage.begin(0).expect("parameters are made");
        let refused = |result: gpipe_remat::Result<()>, start: &str| {
            let message = result.expect_err("out of order").to_string();
            assert!(message.starts_with(start), "{message}");
        };
        refused(stage.weight_grad(&m), "0W1: it holds nothing");
        refused(stage.recompute(&m), "0R1: it holds nothing");
        let y = stage.forward(&m, x.clone()).expect("a forward pass");
        refused(stage.weight_grad(&m), "0W1: it still holds");
        refused(
            stage.forward(&m, x.clone()).map(drop),
            "0F1: it still holds",
        );
        stage.recompute(&m).expect("in order");
        stage.recompute(&m).expect("idempotent");
        stage.input_grad(&m, gradient(&y)).expect("in order");
        refused(
            stage.input_grad(&m, gradient(&y)).map(drop),
            "0I1: its input gradient",
        );
        refused(
            stage.backward(&m, gradient(&y)).map(drop),
            "0B1: its input gradient",
        );
        refused(stage.forward(&m, x).map(drop), "0F1: its input gradient");
        stage.weight_grad(&m).expect("in order");
        refused(stage.weight_grad(&m), "0W1: it holds nothing");
    }
}

#[test]
fn rows_that_a_cache_does_not_have_are_refused() {
    let (mut stage, m, x) = stage(Policy::Keep);
    let m = MicroBatch::new(0, m.samples, 0, false);
    assert_eq!(m.samples, 2..4);
    let refused = |result: gpipe_remat::Result<()>| {
        let message = result.expect_err("no such row").to_string();
        assert!(message.contains("keep_positions"), "{message}");
    };
    stage.keep_positions(3);
    refused(stage.forward(&m, x.clone()).map(drop));
    refused(stage.select_rows(&[0, 3], &[0, 0]));
    refused(stage.select_rows(&[0, 1], &[0]));
    stage.keep_positions(4);
    stage.forward(&m, x).expect("rows of the cache");
    refused(stage.select_rows(&[3, 0], &[CONTEXT, 1]));
    refused(stage.select_rows(&[3, 3], &[CONTEXT, CONTEXT + 1]));
    stage.select_rows(&[3, 3], &[6, 6]).expect("a row of it");
    refused(stage.select_rows(&[2], &[6]));
    refused(stage.select_rows(&[1], &[7]));
}

/// Why an assembly of 3 stages and 4 micro-batches refuses a plan.
fn refusal(remat_plan: RematPlan) -> String {
    let run = run(Order::Gpipe, Policy::Keep);
    let assembly = Assembly {
        remat_plan,
        ..run.assembly(run.schedule())
    };
    let host = Host::new(1).expect("a thread");
    let built = assembly.build(&host).map(drop);
    built.expect_err("a plan of something else").to_string()
}

#[test]
fn a_plan_of_another_schedule_or_cut_is_refused() {
    let everything = |stages, micro_batches| {
        RematPlan::of_stages(vec![Retained::Everything; stages], micro_batches)
    };
    for (stages, micro_batches) in [(2, 4), (3, 2), (4, 3), (0, 4), (3, 0)] {
        let message = refusal(everything(stages, micro_batches));
        let words = "a schedule of 3 stages and 4 micro-batches, a remat plan of ";
        assert!(message.starts_with(words), "{message}");
    }
    let groups = Groups::new(6, 2).expect("as many groups");
    let message = refusal(everything(3, 4).with_groups(groups));
    assert!(message.contains("whose groups have 6"), "{message}");

    let run = run(Order::Gpipe, Policy::Keep);
    let last = run.cut(run.model.layers().len())[2].len();
    let cases: [&[(usize, usize)]; 5] = [
        &[],
        &[(0, last - 1)],
        &[(0, 1), (1, last + 1)],
        &[(0, 1), (2, last)],
        &[(0, last), (last, last - 1), (last - 1, last)],
    ];
    for runs in cases {
        let kept = false;
        let of_last = runs.iter().map(|&(start, end)| RetainedRun {
            layers: start..end,
            kept,
        });
        let stages = vec![
            Retained::Everything,
            Retained::Inputs { run: 1 },
            Retained::Runs(of_last.collect()),
        ];
        let message = refusal(RematPlan::of_stages(stages, 4));
        let words = "the remat plan of stage 2 has runs that do not cover its";
        assert!(message.starts_with(words), "{runs:?}: {message}");
    }
}
