//! A stage that stalls in any phase of any call, the first included: the call ends at its deadline and
//! names the worker, the part and what it was doing.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gpipe_sched::{
    Action, Doing, Op, Part, PipelineError, Place, Schedule, gpipe, interleaved, one_f_one_b,
    zb_h1, zb_v,
};

use crate::common::{Failure, Plan, Planted, ToyPipeline, Trouble, assert_transparent, batch};
use crate::common::{build, places};

/// Long for work that takes microseconds, on a machine that runs other tests too.
const LIMIT: Duration = Duration::from_millis(500);
/// A call that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(60);
const TASK: &str = "the census";

/// The call that stalls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Step,
    Evaluation,
    Visit,
}

#[derive(Clone, Debug)]
struct Case {
    schedule: Schedule,
    call: Call,
    place: Place,
    /// Steps made before.
    before: u64,
}

fn make(
    case: &Case,
    plan: &Plan,
    limit: Option<Duration>,
) -> (ToyPipeline, Result<(), PipelineError>) {
    let micro_batches = case.schedule.micro_batches();
    let mut pipeline = build(case.schedule.clone(), plan).unwrap();
    for step in 0..case.before {
        assert_transparent(&mut pipeline, step);
    }
    pipeline.set_deadline(limit);
    plan.set([(case.place, Trouble::Stall)]);
    let (place, plan) = (case.place, plan.clone());
    let called = match (case.call, place) {
        (Call::Step, _) => pipeline.step(batch(9, micro_batches, true)).map(drop),
        (Call::Evaluation, _) => pipeline.forward(batch(9, micro_batches, false)).map(drop),
        (Call::Visit, Place::Visit(Part::LossStage)) => pipeline
            .during(TASK)
            .with_loss_stage(move |_| plan.pass(place)),
        (Call::Visit, _) => pipeline
            .during(TASK)
            .each(move |stage, _| plan.pass(Place::Visit(Part::Stage(stage)))),
    };
    (pipeline, called)
}

/// What is wrong with the answer to a stall, if anything.
fn fault(case: &Case, planted: Option<Planted>) -> Option<String> {
    let plan = Plan::faulty(planted);
    let started = Instant::now();
    let (mut pipeline, called) = make(case, &plan, Some(LIMIT));
    let seconds = started.elapsed();
    let next = pipeline.each(|_, _| Ok::<_, Failure>(()));
    plan.set(None);
    let stages = case.schedule.stages();
    let device = |part| match part {
        Part::Stage(stage) => case.schedule.device_of()[stage],
        Part::LossStage => case.schedule.device_of()[stages - 1],
    };
    let (device, doing) = match case.place {
        Place::Begin(part) => (device(part), Doing::Beginning),
        Place::Action(action) => (device(Part::Stage(action.stage)), Doing::Acting(action)),
        Place::Loss { micro_batch } => {
            let action = Action::new(stages - 1, Op::Forward, micro_batch);
            (device(Part::LossStage), Doing::Acting(action))
        }
        Place::Finish(part) => (device(part), Doing::Finishing),
        Place::Visit(part) => (device(part), Doing::Visiting { part, task: TASK }),
        other => return Some(format!("{other} is no place of a stall")),
    };
    match called {
        Err(PipelineError::Overdue { seconds, stuck }) => {
            let named = stuck.iter().any(|s| (s.device, s.doing) == (device, doing));
            if !named || seconds < LIMIT.as_secs_f64() {
                return Some(format!("after {seconds} s: {stuck:?}"));
            }
        }
        other => return Some(format!("{other:?}")),
    }
    match next {
        Err(PipelineError::Gone { device: gone }) if gone == device => {}
        other => return Some(format!("the call after it: {other:?}")),
    }
    (seconds > HANG).then(|| format!("ended after {seconds:?}"))
}

/// Every phase of every call.
fn cases(schedule: &Schedule) -> Vec<Case> {
    let trains = |place: &Place| match place {
        Place::Action(action) => action.op != Op::Forward,
        _ => false,
    };
    let steps = places(schedule)
        .into_iter()
        .map(|place| (Call::Step, place));
    let mut calls: Vec<_> = steps.collect();
    let evaluations = places(schedule).into_iter().filter(|place| !trains(place));
    calls.extend(evaluations.map(|place| (Call::Evaluation, place)));
    let parts = (0..schedule.stages())
        .map(Part::Stage)
        .chain([Part::LossStage]);
    calls.extend(parts.map(|part| (Call::Visit, Place::Visit(part))));
    let case = |(index, (call, place))| Case {
        schedule: schedule.clone(),
        call,
        place,
        // Every other one in the first call of all.
        before: index as u64 % 2,
    };
    calls.into_iter().enumerate().map(case).collect()
}

/// The faults of many stalls, which wait beside each other.
fn faults(cases: &[Case]) -> Vec<String> {
    let mut faults = Vec::new();
    for cases in cases.chunks(128) {
        let of = |case: &Case| Some(format!("{case:?}: {}", fault(case, None)?));
        thread::scope(|scope| {
            let threads: Vec<_> = cases
                .iter()
                .map(|case| scope.spawn(move || of(case)))
                .collect();
            faults.extend(
                threads
                    .into_iter()
                    .filter_map(|thread| thread.join().unwrap()),
            );
        });
    }
    faults
}

#[test]
fn a_stall_in_any_phase_ends_the_call_and_is_named() {
    let mut schedules = vec![one_f_one_b(3, 2).unwrap()];
    if std::env::var_os("GPIPE_EXAM").is_some() {
        schedules.extend([
            gpipe(4, 6).unwrap(),
            zb_h1(4, 6).unwrap(),
            interleaved(3, 2, 6).unwrap(),
            zb_v(3, 6).unwrap(),
        ]);
    }
    let cases: Vec<Case> = schedules.iter().flat_map(cases).collect();
    let faults = faults(&cases);
    println!("exam F3 {}/{}", cases.len() - faults.len(), cases.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_visit_that_hangs_reads_well() {
    let schedule = one_f_one_b(2, 2).unwrap();
    let case = Case {
        call: Call::Visit,
        place: Place::Visit(Part::Stage(1)),
        schedule,
        before: 0,
    };
    let plan = Plan::default();
    let (_, called) = make(&case, &plan, Some(LIMIT));
    plan.set(None);
    let text = called.unwrap_err().to_string();
    assert!(
        text.contains("device 1 runs the census of stage 1"),
        "{text}"
    );
    assert!(!text.contains("device 0"), "{text}");
}

/// Stalls that do not happen, and a deadline that is off.
#[test]
fn an_answer_that_is_not_the_deadlines_is_seen() {
    let cases = cases(&one_f_one_b(2, 2).unwrap());
    let case = &cases[3];
    let mut caught = 0;
    for planted in [Planted::Silent, Planted::Misplaced] {
        assert!(
            fault(case, Some(planted)).is_some(),
            "{planted:?} went unseen"
        );
        caught += 1;
    }
    let plan = Plan::default();
    let (done, ended) = mpsc::channel();
    let caller = {
        let (case, plan) = (case.clone(), plan.clone());
        thread::spawn(move || done.send(make(&case, &plan, None).1.is_ok()))
    };
    assert!(ended.recv_timeout(2 * LIMIT).is_err(), "nothing stalled");
    plan.set(None);
    assert_eq!(
        ended.recv_timeout(HANG),
        Ok(true),
        "a stall that ends is no error"
    );
    caller.join().unwrap().unwrap();
    println!("exam F3 teeth {0}/{0}", caught + 1);
}
