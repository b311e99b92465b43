//! What makes no sense is refused.

use std::ops::Range;

use gpipe_remat::planner::{Described, PlanRequest, Planner};

use crate::small::{POLICIES, Random, Small, orders};

#[test]
fn what_makes_no_sense_is_refused_with_words() {
    let mut random = Random(3);
    let small = Small::new(&mut random, 8, 2, true);
    let refused_at = |min_gain: f64, change: &dyn Fn(&mut Small)| {
        let mut small = Small {
            layers: small.layers.clone(),
            weights: small.weights.clone(),
            workers: small.workers.clone(),
            link: small.link,
            batch: small.batch,
            freezes: false,
        };
        change(&mut small);
        let orders = orders();
        let price =
            |samples: &[Range<usize>]| Described::costed(&small.layers, small.batch, samples);
        let request = PlanRequest {
            weights: &small.weights,
            batch: small.batch,
            price: &price,
            workers: small.workers.clone(),
            link: small.link,
            replication: Default::default(),
            cores: None,
            orders: &orders,
            micro_batches: vec![2],
            stages: None,
            cut: None,
            min_gain,
            policies: POLICIES.to_vec(),
        };
        let answer = Planner::new(&request).and_then(Planner::answer);
        answer.expect_err("refused").to_string()
    };
    for min_gain in [-0.1, 1.0, f64::NAN] {
        let said = refused_at(min_gain, &|_| {});
        assert!(said.contains("a share from 0 up and below 1"), "{said}");
    }
    let refused = |change: &dyn Fn(&mut Small)| refused_at(0.0, change);
    type Case<'a> = (&'a dyn Fn(&mut Small), &'a str);
    let cases: [Case<'_>; 10] = [
        (
            &|small| small.layers[0].forward = f64::NAN,
            "layer 0 costs NaN",
        ),
        (
            &|small| small.layers[0].weight_grad = -1.0,
            "layer 0 costs -",
        ),
        (
            &|small| {
                for layer in &mut small.layers {
                    (layer.forward, layer.input_grad, layer.weight_grad) = (0.0, 0.0, 0.0);
                }
            },
            "all layers cost nothing",
        ),
        (&|small| small.workers.clear(), "no worker"),
        (
            &|small| small.workers[1].speed = 0.0,
            "worker 1 has speed 0",
        ),
        (&|small| small.link.latency = f64::NAN, "a link of NaN s"),
        (&|small| small.link.latency = 1e308, "a link of 1e308 s"),
        (
            &|small| small.link.bytes_per_second = f64::MIN_POSITIVE,
            "takes longer than a number holds",
        ),
        (
            &|small| small.workers[1].speed = f64::MIN_POSITIVE,
            "takes longer than a number holds",
        ),
        (
            &|small| {
                small
                    .workers
                    .iter_mut()
                    .for_each(|worker| worker.memory = Some(1))
            },
            "does not fit",
        ),
    ];
    for (change, words) in cases {
        let message = refused(change);
        assert!(message.contains(words), "{words}: {message}");
    }
}
