//! The planner's effort grows linearly with the number of layers.

use std::ops::Range;
use std::rc::Rc;

use gpipe_sched::ScheduleKind;

use super::candidate::Candidate;
use super::cheapest_cut::least;
use super::cuts;
use super::described::Described;
use super::link::Link;
use super::request::{NamedOrder, PlanRequest, Worker};
use super::stage_bounds::StageBounds;
use crate::{Bytes, Policy};

/// Runs of layers that one round of a tight bound looks at, those of all pairs of a start and an end, and
/// the actions simulated in the search of a cut.
fn effort(layers: usize) -> [u64; 3] {
    on_workers(layers, 8, None, |candidate| {
        let room = StageBounds::new(candidate, f64::INFINITY);
        assert!(least(&room, &vec![[1.0; 3]; 8]).is_finite());
        let looked_at = room.looked_at.take();
        for start in 0..layers {
            for end in start + 1..=layers {
                assert!(room.is_possible(&(start..end)));
            }
        }
        let mut left = u64::MAX;
        assert!(cuts::search(candidate, None, &mut left, f64::INFINITY).is_some());
        [looked_at, room.looked_at.take(), u64::MAX - left]
    })
}

/// A candidate for layers of different costs on workers with this memory each.
fn on_workers<T>(
    layers: usize,
    workers: usize,
    memory: Option<u64>,
    look: impl FnOnce(&Candidate<'_>) -> T,
) -> T {
    let kind: ScheduleKind = "zb-h2".parse().unwrap();
    let order = NamedOrder {
        name: kind.to_string(),
        chunks: 1,
        make: Box::new(move |k, m| kind.build(k, m, None).ok()),
        follow: None,
        held: None,
    };
    let layers: Vec<Described> = (0..layers)
        .map(|layer| Described {
            name: layer.to_string(),
            forward: (1 + layer * 7919 % 100) as f64,
            input_grad: (1 + layer * 104_729 % 100) as f64,
            weight_grad: 50.0,
            ..Described::default()
        })
        .collect();
    let weights = Described::weights(&layers);
    let price = |samples: &[Range<usize>]| Described::costed(&layers, 8, samples);
    let worker = Worker { speed: 1.0, memory };
    let request = PlanRequest {
        weights: &weights,
        batch: 8,
        price: &price,
        workers: vec![worker; workers],
        link: Link::FREE,
        replication: Default::default(),
        cores: None,
        orders: &[],
        micro_batches: vec![8],
        stages: None,
        cut: None,
        min_gain: 0.0,
        policies: vec![Policy::Budget(Bytes(u64::MAX))],
    };
    let costed = Rc::new(request.costed(8).unwrap());
    let schedule = (order.make)(workers, 8).unwrap().into();
    look(&Candidate::new(&request, &order, schedule, costed))
}

/// Four times the layers take about four times the steps. Looking at all pairs takes sixteen times as many,
/// which the first limit would refuse.
#[test]
fn effort_grows_linearly_with_the_layers() {
    let (few, many) = (effort(250), effort(1000));
    assert!(many[0] < 5 * few[0], "runs of layers: {few:?}, {many:?}");
    assert!(many[1] > 5 * few[1], "all pairs: {few:?}, {many:?}");
    assert!(many[2] < 5 * few[2], "actions: {few:?}, {many:?}");
}

/// What stages keep within a memory is searched in a time that grows with the square of their layers: hundreds of layers are
/// not cut in every possible way, and that time counts as effort.
#[test]
fn the_search_for_what_is_kept_counts_as_effort() {
    let is_small =
        |layers: usize, memory: Option<u64>| on_workers(layers, 2, memory, cuts::is_small);
    assert!(is_small(200, None) && is_small(40, Some(1 << 30)) && !is_small(200, Some(1 << 30)));
    let spent = |memory: Option<u64>| {
        on_workers(200, 2, memory, |candidate| {
            let mut left = u64::MAX;
            let cut = [0..100, 100..200];
            let mut of_cut = || {
                let before = left;
                assert!(candidate.evaluate(&cut, &[0, 1], &mut left).is_some());
                before - left
            };
            [of_cut(), of_cut()]
        })
    };
    let [free, again] = spent(None);
    assert_eq!(free, again);
    // Each stage is searched once.
    let [first, second] = spent(Some(1 << 30));
    assert_eq!((first, second), (free + 2 * 2 * 100 * 100, free));
}
