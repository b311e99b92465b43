//! Portals in the simulator and in traces: tensors that go straight past stages.

use std::collections::HashMap;

use gpipe_sched::{
    Action, Costs, CostsError, LinkCosts, Op, Portal, PortalCosts, Schedule, Timeline, gpipe,
    interleaved, one_f_one_b, simulate, simulate_shared, zb_h1, zb_v,
};
use serde_json::Value;

fn portal(from: usize, to: usize) -> Portal {
    Portal { from, to }
}

fn through(from: usize, to: usize, link: LinkCosts) -> PortalCosts {
    PortalCosts {
        portal: portal(from, to),
        link,
    }
}

fn link(latency: f64, forward: f64, backward: f64) -> LinkCosts {
    LinkCosts {
        latency,
        forward,
        backward,
    }
}

fn start(timeline: &Timeline, action: Action) -> f64 {
    let mut spans = timeline.spans().iter();
    spans.find(|span| span.action == action).unwrap().start
}

#[test]
fn a_taker_waits_for_its_portal_and_the_stages_between_do_not() {
    let schedule = gpipe(4, 2).unwrap();
    let free = Costs::even(4, 1.0, 2.0);
    let costs = free
        .clone()
        .with_portals(vec![through(0, 3, link(0.5, 10.0, 20.0))]);
    let forward = |stage, m| Action::new(stage, Op::Forward, m);
    let backward = |stage, m| Action::new(stage, Op::Backward, m);
    for timeline in [
        simulate(&schedule, &costs).unwrap(),
        simulate_shared(&schedule, &[costs.clone(), costs.clone()], 8).unwrap(),
    ] {
        // F0 of stage 0 ends at 1; the portal's link is free for F1 when it has sent F0.
        for (action, time) in [
            (forward(2, 0), 2.0),
            (forward(2, 1), 3.0),
            (forward(3, 0), 11.5),
            (forward(3, 1), 21.5),
            // Stage 3 goes back from 22.5 on, for 2 each.
            (backward(3, 0), 22.5),
            (backward(1, 0), 26.5),
            (backward(0, 0), 22.5 + 2.0 + 20.0 + 0.5),
            (backward(0, 1), 22.5 + 2.0 + 40.0 + 0.5),
        ] {
            assert_eq!(start(&timeline, action), time, "{action}");
        }
        assert_eq!(timeline.portals(), [portal(0, 3)]);
    }
    // One that costs nothing changes nothing but the picture.
    let nothing = free
        .clone()
        .with_portals(vec![through(1, 3, LinkCosts::default())]);
    let timeline = simulate(&schedule, &nothing).unwrap();
    assert_eq!(
        timeline,
        simulate(&schedule, &free)
            .unwrap()
            .with_portals([portal(1, 3)])
    );
}

#[test]
fn a_portal_that_leads_nowhere_is_refused() {
    let schedule = gpipe(4, 2).unwrap();
    let costs =
        |from, to, link| Costs::even(4, 1.0, 2.0).with_portals(vec![through(from, to, link)]);
    for (from, to) in [(0, 1), (2, 2), (3, 0), (1, 4), (usize::MAX, 3)] {
        let error = simulate(&schedule, &costs(from, to, LinkCosts::default())).unwrap_err();
        let portal = portal(from, to);
        assert_eq!(error, CostsError::Portal { portal, stages: 4 });
    }
    let error = simulate(&schedule, &costs(0, 2, link(0.0, -1.0, 0.0))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "portal 0 costs -1: use a finite number, 0 or more"
    );
}

fn schedules() -> Vec<Schedule> {
    let schedules = [
        gpipe(4, 6),
        one_f_one_b(4, 6),
        zb_h1(4, 6),
        interleaved(2, 2, 6),
        zb_v(2, 6),
    ];
    schedules.into_iter().map(|made| made.unwrap()).collect()
}

#[test]
fn every_portal_has_an_arrow_a_micro_batch_and_direction() {
    for schedule in schedules() {
        let portals = [portal(0, 2), portal(0, 3)];
        let timeline = simulate(&schedule, &Costs::even(4, 1.0, 2.0)).unwrap();
        let plain = simulate(&schedule, &Costs::even(4, 1.0, 2.0)).unwrap();
        let arrows = |timeline: &Timeline, phase: &str| -> HashMap<u64, f64> {
            let mut bytes = Vec::new();
            timeline.write_trace(&mut bytes).unwrap();
            let trace: Value = serde_json::from_slice(&bytes).unwrap();
            let events = trace["traceEvents"].as_array().unwrap().iter();
            let arrows = events.filter(|event| event["ph"] == *phase);
            arrows
                .map(|event| (event["id"].as_u64().unwrap(), event["ts"].as_f64().unwrap()))
                .collect()
        };
        let timeline = timeline.with_portals(portals);
        let (starts, ends) = (arrows(&timeline, "s"), arrows(&timeline, "f"));
        assert_eq!(starts.len(), arrows(&plain, "s").len() + 2 * 2 * 6);
        assert_eq!(starts.len(), ends.len());
        for (id, end) in ends {
            assert!(starts[&id] < end);
        }
    }
}

/// The most micro-batches in a portal at a time, activations and gradients.
fn most(timeline: &Timeline, portal: Portal) -> [usize; 2] {
    let ends = [(portal.from, portal.to), (portal.to, portal.from)];
    let passes: [fn(Op) -> bool; 2] = [
        |op| op == Op::Forward,
        |op| matches!(op, Op::Backward | Op::InputGrad),
    ];
    [0, 1].map(|direction| {
        let (giver, taker) = ends[direction];
        let mut changes = Vec::new();
        for span in timeline.spans() {
            if !passes[direction](span.action.op) {
                continue;
            }
            if span.action.stage == giver {
                changes.push((span.end, 1_i64));
            }
            if span.action.stage == taker {
                changes.push((span.start, -1));
            }
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let running = changes.iter().scan(0, |sum, change| {
            *sum += change.1;
            Some(*sum)
        });
        running.max().unwrap_or(0) as usize
    })
}

#[test]
fn no_timing_has_more_in_a_portal_than_its_slots_and_a_late_taker_fills_them() {
    for schedule in schedules() {
        for (from, to) in [(0, 2), (0, 3), (1, 3)] {
            let portal = portal(from, to);
            let slots = schedule.portal_slots(portal);
            let mut reached = [0; 2];
            for seed in 0..200_u64 {
                let links = (0..3).map(|i| {
                    let late = |bit: u64| [0.0, 1e3][(seed >> (2 * i + bit)) as usize % 2];
                    link(late(0), 0.0, 0.0)
                });
                let even = Costs::even(4, 1.0, 2.0).with_links(links.collect());
                // Late transfers, as of a taker that starts late.
                let late = [0.0, 7.0, 1e4][seed as usize % 3];
                let costs = even.with_portals(vec![through(from, to, link(late, 0.0, 0.0))]);
                let most = most(&simulate(&schedule, &costs).unwrap(), portal);
                for direction in 0..2 {
                    assert!(most[direction] <= slots[direction], "{portal:?}");
                    reached[direction] = reached[direction].max(most[direction]);
                }
            }
            if schedule.devices() == 4 {
                assert_eq!(reached, slots, "{portal:?} of {:?}", schedule.lanes());
            }
        }
    }
}
