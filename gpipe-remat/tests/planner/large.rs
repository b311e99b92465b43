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

/// Forty layers of 5 GB on fast workers of 1 GB and slow ones of 110 GB, listed last: only those hold them.
#[test]
fn the_workers_with_the_most_memory_are_tried_wherever_they_stand() {
    let mut small = Small::new(&mut Random(7), 1, 1, true);
    let layer = Described {
        forward: 1.0,
        input_grad: 1.0,
        weight_grad: 1.0,
        parameters: 5_000_000_000,
        saved: 400,
        output: 400,
        ..Described::default()
    };
    small.layers = vec![layer; 40];
    small.weights = Described::weights(&small.layers);
    small.batch = 8;
    small.link = Link::FREE;
    let worker = |speed, memory| Worker {
        speed,
        memory: Some(memory),
    };
    for speed in [1.0, 2.0] {
        small.workers = vec![worker(speed, 1_000_000_000); 4];
        small.workers.extend([worker(1.0, 110_000_000_000); 4]);
        let answer = small.ask(&[8], &[Policy::Budget(Bytes(u64::MAX))], |planner| {
            planner.answer()
        });
        let mut used = answer.expect("it fits").plan.workers;
        used.sort_unstable();
        assert_eq!(used, [4, 5, 6, 7]);
    }
}
