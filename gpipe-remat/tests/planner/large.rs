//! Hundreds of layers on dozens of workers.

use gpipe_remat::planner::{Described, Link, Worker};
use gpipe_remat::{Bytes, Policy};

use crate::small::{Random, Small};

#[test]
fn large_questions_are_answered_with_a_certificate() {
    let mut random = Random(7);
    let mut small = Small::new(&mut random, 1, 1, true);
    small.layers = (0..400)
        .map(|index| Described {
            name: format!("layer {index}"),
            forward: 80.0 + random.below(40) as f64,
            input_grad: 80.0 + random.below(40) as f64,
            weight_grad: 80.0 + random.below(40) as f64,
            parameters: 4000,
            saved: 400_000,
            output: 40_000,
            ..Described::default()
        })
        .collect();
    small.weights = Described::weights(&small.layers);
    small.workers = vec![
        Worker {
            speed: 1000.0,
            memory: Some(4_000_000),
        };
        32
    ];
    small.batch = 64;
    small.link = Link::FREE;
    let answer = small
        .ask(
            &[8, 16, 32, 64],
            &[Policy::Budget(Bytes(u64::MAX))],
            |planner| planner.answer(),
        )
        .expect("it fits");
    assert!(answer.plan.peaks.iter().all(|&peak| peak <= 4_000_000));
    assert!(answer.bound > 0.0 && answer.bound <= answer.plan.seconds);
    assert!(answer.gap() < 0.06, "{}", answer.gap());
}
