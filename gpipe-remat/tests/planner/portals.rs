//! Plans of networks whose skips go past stages.

use std::ops::Range;

use gpipe_layers::layers::{Add, Fork, Layout, Linear};
use gpipe_layers::{Flow, Layer};
use gpipe_remat::planner::{Costed, Link, PlanRequest, Planner, Worker};
use gpipe_remat::{ModelCosts, ParameterBytes, Policy, Rates, Times};

use crate::small::orders;

/// A wide skip over narrow layers takes the link from its giver to its taker once in each direction; through both
/// links of the stage between, it would take twice as long.
#[test]
fn a_skip_takes_the_link_between_its_ends_once() {
    const WIDTH: usize = 1024;
    let linear = |name: &str, from, to| -> Box<dyn Layer> {
        Box::new(Linear::new(name, from, to, Layout::OutIn))
    };
    let mut layers: Vec<Box<dyn Layer>> = vec![
        Box::new(Fork::new("fork")),
        linear("down", WIDTH, 1),
        linear("narrow", 1, 1),
        linear("up", 1, WIDTH),
        Box::new(Add::new("add")),
    ];
    let weights = ParameterBytes::new(&mut layers, None);
    let price = |samples: &[Range<usize>]| {
        let costs = ModelCosts::new(&layers, samples, |n| vec![Flow::f32([n, WIDTH])])?;
        // All computing together takes less than a hundredth of a transfer of the skip.
        let times = Times::of_rates(&costs, Rates::of_flops(1e12));
        Ok(Costed {
            costs,
            times,
            scheduling_times: None,
        })
    };
    let worker = Worker {
        speed: 1.0,
        memory: None,
    };
    let request = PlanRequest {
        weights: &weights,
        batch: 4,
        price: &price,
        workers: vec![worker; 3],
        link: Link {
            latency: 0.0,
            bytes_per_second: 1e6,
        },
        replication: Default::default(),
        cores: None,
        orders: &orders(),
        micro_batches: vec![1],
        stages: Some(3),
        cut: Some(vec![0..2, 2..3, 3..5]),
        min_gain: 0.0,
        policies: vec![Policy::Keep],
    };
    let answer = Planner::new(&request).and_then(|planner| planner.answer());
    let seconds = answer.expect("a plan").plan.seconds;
    let once = (4 * WIDTH * 4) as f64 / 1e6;
    assert!(
        (2.0 * once..2.02 * once).contains(&seconds),
        "{seconds}: {once}"
    );
}
