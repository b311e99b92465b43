//! The ways to train a model that must give the bits of one stage.

#![allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]

use gpipe_remat::Policy;
use gpipe_sched::{Schedule, gpipe, interleaved, looped_bfs, one_f_one_b, zb_h1, zb_v};

/// How a model is trained: 8 · 6 · 4 · 3 ways.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub stages: usize,
    pub schedule: usize,
    pub policy: Policy,
    pub threads: usize,
}

const STAGES: usize = 8;
const SCHEDULES: usize = 6;
const POLICIES: [Policy; 4] = [
    Policy::Keep,
    Policy::Stage,
    Policy::ExceptLast,
    Policy::Every(2),
];
const THREADS: usize = 3;

impl Way {
    /// One stage, with which the others are compared.
    pub const ONE: Self = Self {
        stages: 1,
        schedule: 0,
        policy: Policy::Keep,
        threads: 1,
    };

    /// Every way.
    pub fn all() -> Vec<Self> {
        let count = STAGES * SCHEDULES * POLICIES.len() * THREADS;
        let way = |i: usize| Self {
            stages: i % STAGES + 1,
            schedule: i / STAGES % SCHEDULES,
            policy: POLICIES[i / (STAGES * SCHEDULES) % POLICIES.len()],
            threads: i / (STAGES * SCHEDULES * POLICIES.len()) + 1,
        };
        (0..count).map(way).collect()
    }

    /// Every number of stages with every schedule; every policy and number of threads with every one of both.
    pub fn pairs() -> Vec<Self> {
        let all = (0..STAGES).flat_map(|k| (0..SCHEDULES).map(move |s| (k, s)));
        let way = |(k, s): (usize, usize)| Self {
            stages: k + 1,
            schedule: s,
            policy: POLICIES[(k + s) % POLICIES.len()],
            threads: (2 * k + s) % THREADS + 1,
        };
        all.map(way).collect()
    }

    /// Its schedule; 1F1B where it takes another number of stages.
    pub fn schedule(self, micro_batches: usize) -> Schedule {
        let (stages, half) = (self.stages, self.stages / 2);
        let made = match self.schedule {
            0 => gpipe(stages, micro_batches),
            2 => zb_h1(stages, micro_batches),
            3 if stages % 2 == 0 => interleaved(half, 2, micro_batches),
            4 if stages % 2 == 0 => looped_bfs(half, 2, micro_batches),
            5 if stages % 2 == 0 => zb_v(half, micro_batches),
            _ => one_f_one_b(stages, micro_batches),
        };
        made.expect("a valid size")
    }

    /// Trains in each of the ways that the exam, or some of those that a test takes, and compares losses and parameters, as
    /// bits, with those of one stage, and counted with predicted bytes. Says so for a row of the exam.
    pub fn compare(row: &str, small: usize, train: impl Fn(Self) -> Outcome) {
        let ways = match std::env::var_os("GPIPE_EXAM") {
            Some(_) => Self::all(),
            None => Self::pairs().into_iter().step_by(small).collect(),
        };
        let wanted = train(Self::ONE);
        for way in &ways {
            let got = train(*way);
            assert!(got.bits == wanted.bits, "{way:?}");
            assert_eq!(got.counted, got.predicted, "{way:?}");
        }
        println!("exam {row} {0}/{0}", ways.len());
    }
}

/// What a run leaves.
pub struct Outcome {
    /// Losses, and then all parameters.
    pub bits: Vec<u64>,
    /// The most bytes of each device.
    pub counted: Vec<u64>,
    /// And those that were predicted.
    pub predicted: Vec<u64>,
}
