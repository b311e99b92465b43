//! Where the time of the devices goes.

use std::convert::Infallible;
use std::thread::sleep;
use std::time::{Duration, Instant};

use gpipe_sched::{
    BubbleBreakdown, Cause, CollectOutputs, Costs, Fault, Gap, InferenceStage, Item, LinkCosts,
    MicroBatch, Pipeline, Schedule, Span, StageCosts, Timeline, forward_only, gpipe, interleaved,
    looped_bfs, one_f_one_b, simulate, zb_h1, zb_h2, zb_v,
};
use proptest::prelude::*;

use crate::common::{Plan, batch, build};

/// A pipeline whose stages and links take what they are said to take.
fn timeline(schedule: &Schedule, stages: &[f64], link: f64) -> Timeline {
    let stage = |&seconds: &f64| StageCosts {
        forward: seconds,
        input_grad: seconds,
        weight_grad: seconds,
        recompute: 0.0,
    };
    let links = LinkCosts {
        latency: link,
        ..LinkCosts::default()
    };
    let costs =
        Costs::new(stages.iter().map(stage).collect()).with_links(vec![links; stages.len() - 1]);
    simulate(schedule, &costs).unwrap()
}

fn sum(spent: &[BubbleBreakdown]) -> BubbleBreakdown {
    spent
        .iter()
        .fold(BubbleBreakdown::default(), |sum, part| BubbleBreakdown {
            work: sum.work + part.work,
            recompute: sum.recompute + part.recompute,
            fill: sum.fill + part.fill,
            drain: sum.drain + part.drain,
            imbalance: sum.imbalance + part.imbalance,
            transfer: sum.transfer + part.transfer,
            processor: sum.processor + part.processor,
        })
}

/// Every device is accounted for to the end, and idling is the bubble.
fn assert_adds_up(timeline: &Timeline, spent: &[BubbleBreakdown]) {
    for (device, part) in spent.iter().enumerate() {
        let whole = sum(&[*part]);
        let idle = whole.fill + whole.drain + whole.imbalance + whole.transfer + whole.processor;
        let busy = timeline.busy(device);
        assert!((whole.work + whole.recompute - busy).abs() < 1e-9 * (1.0 + busy));
        assert!((busy + idle - timeline.makespan()).abs() < 1e-9 * (1.0 + timeline.makespan()));
    }
    let gaps = timeline.gaps().unwrap();
    let idle: f64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
    let bubble = idle / (timeline.makespan() * timeline.devices() as f64);
    assert!((bubble - timeline.bubble()).abs() < 1e-9);
    let touches = |a: &Gap, b: &Gap| a.device == b.device && a.end > b.start + 1e-9;
    assert!(gaps.windows(2).all(|pair| !touches(&pair[0], &pair[1])));
    assert!(gaps.iter().all(|gap| gap.end > gap.start));
}

#[test]
fn equal_stages_only_fill_and_drain() {
    for schedule in [
        gpipe(4, 8),
        one_f_one_b(4, 8),
        zb_h1(4, 8),
        zb_h2(4, 8),
        interleaved(4, 2, 8),
        looped_bfs(4, 2, 8),
        zb_v(4, 8),
    ] {
        let schedule = schedule.unwrap();
        let timeline = timeline(&schedule, &vec![1.0; schedule.stages()], 0.0);
        let spent = timeline.bubble_breakdown(|_, _| 0.0).unwrap();
        assert_adds_up(&timeline, &spent);
        let all = sum(&spent);
        assert_eq!(
            (all.imbalance, all.transfer, all.processor),
            (0.0, 0.0, 0.0)
        );
        assert!(all.fill + all.drain > 0.0);
    }
    // Device d waits for d forward passes to come, and for as many backward passes at the end.
    let gpipe = timeline(&gpipe(4, 8).unwrap(), &[1.0; 4], 0.0);
    let spent = gpipe.bubble_breakdown(|_, _| 0.0).unwrap();
    let drains: Vec<f64> = spent.iter().map(|spent| spent.drain).collect();
    assert_eq!(drains, [0.0, 2.0, 4.0, 6.0]);
    assert_eq!(
        spent.iter().map(|spent| spent.fill).sum::<f64>(),
        4.0 * 9.0 - 12.0
    );
}

#[test]
fn each_cause_is_told_from_the_others() {
    let schedule = gpipe(3, 4).unwrap();
    let causes = |stages: &[f64], link| {
        let timeline = timeline(&schedule, stages, link);
        let spent = timeline.bubble_breakdown(|_, _| 0.0).unwrap();
        assert_adds_up(&timeline, &spent);
        sum(&spent)
    };
    let uneven = causes(&[1.0, 2.0, 1.0], 0.0);
    assert!(uneven.imbalance > 0.0 && uneven.transfer == 0.0 && uneven.processor == 0.0);
    let linked = causes(&[1.0; 3], 0.5);
    assert!(linked.imbalance == 0.0 && linked.transfer > 0.0 && linked.processor == 0.0);
    // A device that waits for one that waits for a transfer waits for the transfer: the four hops that
    // one micro-batch makes after the other are all that was lost, on each device.
    assert_eq!(linked.transfer, 3.0 * 4.0 * 0.5);
}

#[test]
fn a_device_that_waits_for_the_processor_says_so() {
    let span = |device, text: &str, ready, start, end| Span {
        device,
        action: text.parse().unwrap(),
        ready,
        start,
        end,
    };
    let timeline = Timeline::new(
        2,
        vec![
            span(0, "0F0", 0.0, 0.0, 1.0),
            span(0, "0B0", 6.0, 6.0, 8.0),
            span(1, "1F0", 1.5, 2.0, 3.0),
            span(1, "1B0", 3.0, 3.5, 5.5),
        ],
    );
    let spent = timeline
        .bubble_breakdown(|stage, _| if stage == 0 { 1.0 } else { 0.0 })
        .unwrap();
    assert_adds_up(&timeline, &spent);
    // The last second of its backward pass went to computing again.
    assert_eq!((spent[0].work, spent[0].recompute), (2.0, 1.0));
    // Three seconds are the other's work, as with equal stages; what made it late hurts here too.
    let delays = (spent[0].transfer, spent[0].processor, spent[0].imbalance);
    assert_eq!((spent[0].fill, delays), (3.0, (1.0, 1.0, 0.0)));
    assert_eq!(
        (spent[1].fill, spent[1].transfer, spent[1].processor),
        (1.0, 1.0, 1.0)
    );
    assert_eq!(spent[1].drain, 2.0);
}

/// Begins late, when the flow of the stage before has long arrived.
struct Late(usize);

impl InferenceStage for Late {
    type Flow = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        sleep(Duration::from_millis(60 * self.0 as u64));
        Ok(())
    }

    fn forward(&mut self, _m: &MicroBatch, _x: ()) -> Result<(), Infallible> {
        Ok(())
    }
}

#[test]
fn a_flow_that_has_arrived_waits_for_the_processor_and_is_no_transfer() {
    let make_stage = |stage| Ok::<_, Infallible>(Late(stage));
    let schedule = forward_only(2, 1).unwrap();
    let mut pipeline = Pipeline::build(schedule, make_stage, CollectOutputs::build).unwrap();
    let item = Item {
        micro_batch: MicroBatch::new(0, 0..1, 0, false),
        input: (),
        target: (),
    };
    let timeline = pipeline.forward(vec![item]).unwrap().timeline;
    let spent = timeline.bubble_breakdown(|_, _| 0.0).unwrap();
    assert_adds_up(&timeline, &spent);
    // It was there after microseconds, the device after 60 ms.
    assert!(spent[1].processor > spent[1].transfer, "{:?}", spent[1]);
}

#[test]
fn several_steps_in_a_row_are_no_schedule_and_neither_is_nothing() {
    let step = timeline(&gpipe(2, 2).unwrap(), &[1.0; 2], 0.0);
    assert_eq!(step.schedule().unwrap(), gpipe(2, 2).unwrap());
    let row = Timeline::in_a_row(&[step.clone(), step.clone()]);
    assert_eq!(row.makespan(), 2.0 * step.makespan());
    assert_eq!(row.spans().len(), 2 * step.spans().len());
    assert!((row.bubble() - step.bubble()).abs() < 1e-12);
    assert!(Timeline::default().gaps().is_err());
    let far = Span {
        device: 0,
        action: format!("{0}F{0}", usize::MAX).parse().unwrap(),
        ready: 0.0,
        start: 0.0,
        end: 1.0,
    };
    assert!(Timeline::new(1, vec![far]).gaps().is_err());
}

#[test]
fn a_measured_step_is_accounted_for() {
    let mut pipeline = build(one_f_one_b(4, 8).unwrap(), &Plan::default()).unwrap();
    let timeline = pipeline.step(batch(0, 8, true)).unwrap().timeline;
    assert_adds_up(&timeline, &timeline.bubble_breakdown(|_, _| 0.5).unwrap());
    for span in timeline.spans() {
        assert!(span.ready <= span.start);
    }
}

proptest! {
    #[test]
    fn whatever_it_costs_it_adds_up(
        stages in prop::collection::vec(0.0_f64..5.0, 4),
        link in prop::sample::select(vec![0.0, 0.3, 4.0]),
        which in 0_usize..4,
        again in 0.0_f64..=1.0,
    ) {
        let make = [gpipe, one_f_one_b, zb_h1, zb_h2][which];
        let timeline = timeline(&make(4, 6).unwrap(), &stages, link);
        let spent = timeline.bubble_breakdown(|_, _| again).unwrap();
        assert_adds_up(&timeline, &spent);
        prop_assert!(link > 0.0 || sum(&spent).transfer == 0.0);
        prop_assert!(Cause::ALL.iter().all(|&cause| *spent[0].clone().idle(cause) >= 0.0));
    }
}

/// As many actions take as long on thousands of devices as on a few.
#[test]
fn the_time_does_not_grow_with_the_devices() {
    let seconds = |devices: usize, micro_batches: usize| {
        let timeline = timeline(
            &gpipe(devices, micro_batches).unwrap(),
            &vec![1.0; devices],
            0.0,
        );
        let start = Instant::now();
        timeline.bubble_breakdown(|_, _| 0.0).unwrap();
        start.elapsed().as_secs_f64()
    };
    let (few, many) = (seconds(8, 16_384), seconds(16_384, 8));
    assert!(many < 10.0 * few + 2.0, "{many} s after {few} s");
}

/// Times come from programs and devices, which may not know them.
#[test]
fn times_that_are_no_numbers_are_refused_and_huge_ones_are_not() {
    let good = timeline(&one_f_one_b(2, 2).unwrap(), &[1.0, 2.0], 0.5);
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for place in 0..3 {
            let mut spans = good.spans().to_vec();
            let last = spans.last_mut().unwrap();
            *[&mut last.ready, &mut last.start, &mut last.end][place] = wrong;
            let refused = Timeline::new(2, spans);
            let action = "1B1".parse().unwrap();
            let faults = [
                refused.schedule().map(drop),
                refused.gaps().map(drop),
                refused.bubble_breakdown(|_, _| 0.5).map(drop),
            ];
            for fault in faults {
                let error = fault.unwrap_err();
                assert_eq!(*error.fault(), Fault::Times { action }, "{wrong} {place}");
                let text = "1B1 has times that are not finite numbers: give it seconds";
                assert_eq!(error.to_string(), text);
            }
        }
    }
    // Of which differences are too large for a number.
    for (first, last) in [
        (-f64::MAX, f64::MAX),
        (0.0, f64::MAX),
        (f64::MAX, -f64::MAX),
    ] {
        for place in 0..good.spans().len() {
            let mut spans = good.spans().to_vec();
            (spans[place].ready, spans[place].start, spans[place].end) = (first, first, last);
            if let Ok(spent) = Timeline::new(2, spans).bubble_breakdown(|_, _| 0.5) {
                assert_eq!(spent.len(), 2);
            }
        }
    }
}

#[test]
fn devices_without_spans_are_named_however_many_there_are() {
    let good = timeline(&one_f_one_b(2, 2).unwrap(), &[1.0, 2.0], 0.5);
    let idle = |devices, spans: &[Span]| {
        let error = Timeline::new(devices, spans.to_vec())
            .schedule()
            .unwrap_err();
        error.fault().clone()
    };
    assert_eq!(
        idle(usize::MAX, good.spans()),
        Fault::IdleDevice { device: 2 }
    );
    let mut spans = good.of_device(1)[..1].to_vec();
    assert_eq!(idle(0, &spans), Fault::IdleDevice { device: 0 });
    spans[0].device = usize::MAX;
    assert_eq!(idle(0, &spans), Fault::IdleDevice { device: 0 });
}
