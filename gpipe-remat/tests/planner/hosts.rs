//! A GPT-3 on hosts of eight workers each, in replicas.

use std::ops::Range;

use gpipe_remat::planner::{CertifiedPlan, Described, Link, PlanRequest, Replication, Worker};
use gpipe_remat::{Bytes, ParameterBytes, Policy};
use gpipe_sched::interleaved;

use crate::models::{self, Model};
use crate::small::{more_orders, order, orders};

/// Samples of a step.
const BATCH: usize = 1536;

fn gpt3() -> (Vec<Described>, ParameterBytes) {
    let is_gpt3 = |model: &Model| model.name == "GPT-3 175B";
    let model = models::all().into_iter().find(is_gpt3).expect("a model");
    let weights = Described::weights(&model.layers);
    (model.layers, weights)
}

/// The step that is found for each number of replicas, in one search of all of them, from one replica up.
fn steps(hosts: usize) -> Vec<f64> {
    let (layers, weights) = gpt3();
    let price = |samples: &[Range<usize>]| Described::costed(&layers, BATCH, samples);
    let interleaved = order("interleaved:2", 2, |k, m| interleaved(k, 2, m));
    let fast = ["zb-h2", "zb-v", "dualpipe-v"];
    let more = more_orders().into_iter();
    let more = more.filter(|order| fast.contains(&&*order.name));
    let more = more.chain([interleaved]);
    let orders: Vec<_> = orders().into_iter().chain(more).collect();
    let worker = Worker {
        speed: 2e14,
        memory: None,
    };
    let request = |replicas: usize| PlanRequest {
        weights: &weights,
        batch: BATCH,
        price: &price,
        workers: vec![worker; 8 * hosts / replicas],
        link: Link {
            latency: 3e-6,
            bytes_per_second: 450e9,
        },
        replication: Replication {
            replicas,
            workers_per_host: 8,
            host_link: Link {
                latency: 1e-5,
                bytes_per_second: 50e9,
            },
            ..Replication::default()
        },
        cores: None,
        orders: &orders,
        micro_batches: (0..=8)
            .map(|power| 1 << power)
            .filter(|parts| parts * replicas <= BATCH)
            .collect(),
        stages: None,
        cut: None,
        min_gain: 0.0,
        policies: vec![Policy::Budget(Bytes(u64::MAX))],
    };
    let numbers = std::iter::successors(Some(1), |replicas| Some(2 * replicas));
    let numbers = numbers.take_while(|replicas| *replicas <= 8 * hosts);
    let requests: Vec<_> = numbers.map(request).collect();
    let found = CertifiedPlan::among(&requests).expect("memory is not limited");
    let plans = std::iter::once(&found.plan).chain(&found.alternatives);
    let mut steps: Vec<_> = plans
        .map(|plan| (plan.replication.replicas, plan.seconds))
        .collect();
    steps.sort_by_key(|&(replicas, _)| replicas);
    steps.into_iter().map(|(_, seconds)| seconds).collect()
}

/// Sums of gradients cost little here: the shorter the pipelines, the less they wait. A search that spends its effort on
/// a few long ones finds rows in another order, or slower plans on more hosts.
#[test]
fn rows_of_replicas_are_ordered_and_more_hosts_are_faster() {
    let [fewer, more] = [8, 16].map(steps);
    assert_eq!((fewer.len(), more.len()), (7, 8));
    for steps in [&fewer, &more] {
        assert!(steps.is_sorted_by(|long, short| long > short), "{steps:?}");
    }
    for (fewer, more) in fewer.iter().zip(&more) {
        assert!(more < fewer, "{more}, {fewer}");
    }
}
