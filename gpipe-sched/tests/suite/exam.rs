//! The exam of all schedules, at every size up to 16 devices, 64 micro-batches and 4 chunks: each is
//! complete, in order and free of deadlock (else it would not exist), keeps to its memory, adds up
//! gradients in ascending order, and runs without a sender that waits on links that hold as many
//! flows as [`Schedule::slots`] says. Fewer are too few, which shows that the exam can fail.

use gpipe_sched::{
    Action, Costs, Op, Schedule, ScheduleError, dualpipe_v, forward_only, gpipe, interleaved,
    looped_bfs, one_f_one_b, v_half, v_min, zb_h1, zb_h2, zb_v, zero_bubble,
};

use crate::papers::live;

type Make = fn(usize, usize) -> Result<Schedule, ScheduleError>;
type Chunked = fn(usize, usize, usize) -> Result<Schedule, ScheduleError>;
/// The most micro-batches that a device may hold, of K devices, V chunks and M micro-batches.
type Bound = fn(usize, usize, usize, usize) -> usize;

const PLAIN: [(&str, Make, Bound); 9] = [
    ("gpipe", gpipe, |_, _, m, _| m),
    ("1f1b", one_f_one_b, |k, _, _, d| k - d),
    ("zb-h1", zb_h1, |k, _, _, _| k),
    ("zb-h2", zb_h2, |k, _, _, _| 2 * k - 1),
    ("zb-v", zb_v, |k, _, _, _| 2 * k),
    ("v-half", v_half, |k, _, _, _| (k + 2) / 2 * 2),
    ("v-min", v_min, |k, _, _, _| (k + 4) / 3 * 2),
    ("dualpipe-v", dualpipe_v, |k, _, _, _| 2 * k + 1),
    ("evaluation", forward_only, |_, _, _, _| usize::MAX),
];

const CHUNKED: [(&str, Chunked, Bound); 2] = [
    ("interleaved", interleaved, |k, v, m, d| match v {
        1 => k - d,
        _ => ((v - 1) * k + 2 * (k - 1 - d) + 1).min(v * m),
    }),
    ("looped-bfs", looped_bfs, |_, v, m, _| v * m),
];

/// Whether all lanes come to their end where a sender waits while its link holds as many flows as
/// there are slots, given by the stage that takes them.
fn ends(schedule: &Schedule, forward: &[usize], backward: &[usize]) -> bool {
    let (stages, m) = (schedule.stages(), schedule.micro_batches());
    let lanes = schedule.lanes();
    // Flows of one link and direction: which are there, and how many.
    let mut there = vec![[false; 2]; stages * m];
    let mut waiting = vec![[0_usize; 2]; stages];
    for flow in &mut there[..m] {
        flow[0] = true;
    }
    let trains = !schedule.is_forward_only();
    let mut positions = vec![0; lanes.len()];
    let mut moved = true;
    while moved {
        moved = false;
        for (lane, position) in lanes.iter().zip(&mut positions) {
            while let Some(&Action {
                stage,
                op,
                micro_batch,
            }) = lane.get(*position)
            {
                let takes = match op {
                    Op::Forward => Some(0),
                    _ if op.is_backward() => Some(1),
                    _ => None,
                };
                if takes.is_some_and(|way| !there[stage * m + micro_batch][way]) {
                    break;
                }
                let gives = match op {
                    Op::Forward if stage + 1 < stages => Some((stage + 1, 0, forward[stage])),
                    Op::Forward if trains => Some((stage, 1, backward[stage])),
                    _ if op.is_backward() && stage > 0 => Some((stage - 1, 1, backward[stage - 1])),
                    _ => None,
                };
                if let Some((to, way, slots)) = gives {
                    if waiting[to][way] >= slots {
                        break;
                    }
                    there[to * m + micro_batch][way] = true;
                    waiting[to][way] += 1;
                }
                if let Some(way) = takes.filter(|way| stage > 0 || *way == 1) {
                    waiting[stage][way] -= 1;
                }
                *position += 1;
                moved = true;
            }
        }
    }
    lanes
        .iter()
        .zip(positions)
        .all(|(lane, position)| position == lane.len())
}

/// Counts the cases, each number of slots for itself.
fn examine(name: &str, schedule: &Schedule, bound: impl Fn(usize) -> usize) -> usize {
    let m = schedule.micro_batches();
    assert!(schedule.is_ascending(), "{name}");
    if !schedule.is_forward_only() {
        for (device, held) in live(schedule).into_iter().enumerate() {
            assert!(
                held <= bound(device),
                "{name}: device {device} holds {held}"
            );
        }
    }
    let slots = schedule.slots();
    let stages = schedule.stages();
    let most = |slots: &[usize]| vec![slots.iter().copied().max().unwrap_or(0); stages];
    let (alike, unbounded) = (
        [most(&slots.forward), most(&slots.backward)],
        vec![2 * m; stages],
    );
    let more = |slots: &[usize]| slots.iter().map(|slots| slots + 1).collect::<Vec<_>>();
    let one_more = [more(&slots.forward), more(&slots.backward)];
    // As declared, one more, the same for all links, and as many as there can ever be.
    let mut links = vec![(&slots.forward, &slots.backward), (&unbounded, &unbounded)];
    if std::env::var_os("GPIPE_EXAM").is_some() {
        links.push((&one_more[0], &one_more[1]));
        links.push((&alike[0], &alike[1]));
    }
    for &(forward, backward) in &links {
        assert!(
            ends(schedule, forward, backward),
            "{name}: {forward:?}, {backward:?}"
        );
    }
    links.len()
}

/// Otherwise than in an exam, every third number of micro-batches above 16.
#[test]
fn every_schedule_of_every_size_passes() {
    let is_exam = std::env::var_os("GPIPE_EXAM").is_some();
    let counts = (1..=64).filter(|m| is_exam || *m <= 16 || m % 3 == 1);
    let mut cases = 0;
    for (k, m) in (1..=16).flat_map(|k| counts.clone().map(move |m| (k, m))) {
        for (name, make, bound) in PLAIN {
            let name = format!("{name} K={k} M={m}");
            cases += examine(&name, &make(k, m).unwrap(), |device| bound(k, 1, m, device));
        }
        for (name, make, bound) in CHUNKED {
            for v in 1..=4 {
                let name = format!("{name} K={k} V={v} M={m}");
                cases += examine(&name, &make(k, v, m).unwrap(), |device| {
                    bound(k, v, m, device)
                });
            }
        }
        // One search in a memory of every size from 1 up to that of ZB-H2.
        for held in (1..2 * k).step_by(1 + k / 4) {
            let costs = Costs::even(k, 1.0, 2.0 + (m % 3) as f64);
            if m <= 16 {
                let name = format!("zero-bubble K={k} M={m} held {held}");
                let schedule = zero_bubble(k, m, &costs, |_| held).unwrap();
                cases += examine(&name, &schedule, |_| held);
            }
        }
    }
    println!("exam S {cases}/{cases}");
}

#[test]
fn a_slot_less_than_declared_is_too_few_somewhere() {
    let mut stuck = 0;
    for (k, m) in (2..=6).flat_map(|k| (1..=12).map(move |m| (k, m))) {
        for (_, make, _) in PLAIN {
            let schedule = make(k, m).unwrap();
            let slots = schedule.slots();
            for stage in 0..schedule.stages() {
                let mut fewer = slots.backward.clone();
                fewer[stage] = 0;
                if slots.backward[stage] > 0 {
                    assert!(!ends(&schedule, &slots.forward, &fewer), "K={k} M={m}");
                    stuck += 1;
                }
            }
        }
    }
    assert!(stuck > 1_000, "{stuck}");
}

/// Faults planted one at a time in schedules of every kind: each is refused, whatever it is.
#[test]
fn every_planted_fault_is_refused() {
    let mut planted = 0;
    // One device and one micro-batch without its B would be a schedule of its own, of evaluation.
    for (k, m) in (1..=5).flat_map(|k| (2..=6).map(move |m| (k, m))) {
        let chunked = CHUNKED.map(|(_, make, _)| make(k, 2, m).unwrap());
        let plain = PLAIN.map(|(_, make, _)| make(k, m).unwrap());
        for good in plain.into_iter().chain(chunked) {
            let refused = |change: &dyn Fn(&mut Vec<Vec<Action>>)| {
                let mut lanes = good.lanes().to_vec();
                change(&mut lanes);
                Schedule::new(good.device_of().to_vec(), m, lanes).is_err()
            };
            for (device, lane) in good.lanes().iter().enumerate() {
                for (position, &action) in lane.iter().enumerate() {
                    let wrong = Action {
                        stage: action.stage + good.stages(),
                        ..action
                    };
                    assert!(
                        refused(&|lanes| lanes[device].retain(|other| *other != action)),
                        "{action} lost"
                    );
                    assert!(
                        refused(&|lanes| lanes[device].insert(0, action)),
                        "{action} twice"
                    );
                    assert!(
                        refused(&|lanes| lanes[device][position] = wrong),
                        "{action} elsewhere"
                    );
                    planted += 3;
                    if action.op != Op::Forward {
                        // Ahead of its own forward pass.
                        assert!(
                            refused(&|lanes| {
                                let action = lanes[device].remove(position);
                                lanes[device].insert(0, action);
                            }),
                            "{action} first"
                        );
                        planted += 1;
                    }
                }
            }
        }
    }
    println!("exam S teeth {planted}/{planted}");
    assert!(planted > 25_000, "{planted}");
}
