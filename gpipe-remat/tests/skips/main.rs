//! Lists of layers with skip connections, nested and crossing: the same bits and the predicted bytes at any cut,
//! under any schedule and policy.

mod faults;
mod nets;

use gpipe_layers::layers::{Add, At, Fork, Graph};
use gpipe_remat::Policy;
use gpipe_sched::{gpipe, interleaved, looped_bfs, one_f_one_b, zb_h1, zb_v};
use proptest::prelude::*;

use nets::{Layers, MICRO_BATCHES, Run, WIDTH, linear, network, with_frozen};

/// The exam tries more networks.
fn cases() -> u32 {
    match std::env::var_os("GPIPE_EXAM") {
        Some(_) => 3000,
        None => 60,
    }
}

fn one_stage() -> Run {
    Run {
        schedule: gpipe(1, MICRO_BATCHES).expect("a size"),
        policy: Policy::Keep,
        whole_backward: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_skips_give_the_same_bits_and_the_predicted_bytes_at_any_cut(
        choices in proptest::collection::vec((any::<u8>(), any::<u8>()), 4..18),
        stages in 2..9_usize,
        kind in 0..6_usize,
        policy in 0..6_usize,
        frozen in 0..20_usize,
    ) {
        // Half of the networks train as a whole.
        let frozen = frozen.saturating_sub(10).min(network(&choices).len() - 1);
        let network = || with_frozen(network(&choices), frozen);
        let stages = stages.min(network().len());
        let schedule = match kind {
            0 => gpipe(stages, MICRO_BATCHES),
            1 => one_f_one_b(stages, MICRO_BATCHES),
            2 if stages % 2 == 0 => interleaved(stages / 2, 2, MICRO_BATCHES),
            3 if stages % 2 == 0 => looped_bfs(stages / 2, 2, MICRO_BATCHES),
            4 if stages % 2 == 0 => zb_v(stages / 2, MICRO_BATCHES),
            _ => zb_h1(stages, MICRO_BATCHES),
        };
        let schedule = schedule.expect("a size");
        let policies = [
            Policy::Keep,
            Policy::Stage,
            Policy::ExceptLast,
            Policy::Every(1),
            Policy::Every(2),
        ];
        let run = Run { schedule, policy: policies.get(policy).copied().unwrap_or(Policy::Stage), whole_backward: false };
        let run = match policy {
            5 => run.within_a_budget(network()).expect("a plan"),
            _ => run,
        };
        let one = Run { whole_backward: true, ..one_stage() };
        let (wanted, counted) = one.train(network()).expect("a run");
        prop_assert_eq!(counted, one.predicted(network()).expect("a plan"));
        let (got, counted) = run.train(network()).expect("a run");
        prop_assert_eq!(got, wanted);
        prop_assert_eq!(counted, run.predicted(network()).expect("a plan"));
        println!("exam N3 1/1");
    }
}

/// A skip around four layers, at this place of the flow.
fn skip(place: usize) -> Layers {
    let linear = |i: usize| linear(format!("linear{i}"), WIDTH, WIDTH);
    let mut layers: Layers = vec![
        // The indices that every network is given.
        Box::new(Graph::select("drop", 2, [0])),
        Box::new(linear(0)),
        Box::new(Fork::new("fork")),
    ];
    for i in 1..5 {
        layers.push(Box::new(At::new([1 - place], linear(i))));
    }
    layers.push(Box::new(Add::new("add")));
    layers
}

#[test]
fn a_skip_costs_the_stages_between_the_same_at_any_place() {
    for policy in [Policy::Stage, Policy::Every(1), Policy::Every(2)] {
        let run = Run {
            schedule: gpipe(4, MICRO_BATCHES).expect("a size"),
            policy,
            whole_backward: false,
        };
        let [first, last] = [0, 1].map(|place| run.train(skip(place)).expect("a run"));
        assert_eq!(first, last, "{policy}");
        for place in [0, 1] {
            let predicted = run.predicted(skip(place)).expect("a plan");
            assert_eq!(first.1, predicted, "{policy}");
        }
    }
}
