//! Workers that share the cores of one machine: whoever is busy gets an equal part.

use gpipe_sched::{Action, Op, Schedule, Timeline};

use super::question::Cores;

/// Seconds of a step whose actions would take as long as in `alone` on one core each.
///
/// Between two ends of actions nothing changes, so time goes from one to the next: all that are
/// busy work at the rate that so many have.
pub(super) fn shared_makespan(schedule: &Schedule, alone: &Timeline, cores: Cores) -> f64 {
    let (stages, devices) = (schedule.stages(), schedule.devices());
    let micro_batches = schedule.micro_batches();
    // Which forward and backward flows are there, by the stage and micro-batch that they are of.
    let mut done = vec![[false; 2]; stages * micro_batches];
    let cell = |stage: usize, m: usize| stage * micro_batches + m;
    let ready = |done: &[[bool; 2]], action: Action| {
        let (stage, m) = (action.stage, action.micro_batch);
        match action.op {
            Op::Forward => stage == 0 || done[cell(stage - 1, m)][0],
            Op::Backward | Op::InputGrad => stage + 1 == stages || done[cell(stage + 1, m)][1],
            Op::WeightGrad | Op::Recompute => true,
        }
    };
    let lanes: Vec<_> = (0..devices).map(|device| alone.of_device(device)).collect();
    let mut positions = vec![0; devices];
    let mut left: Vec<Option<f64>> = vec![None; devices];
    let mut now = 0.0;
    loop {
        for device in 0..devices {
            if left[device].is_none()
                && let Some(span) = lanes[device].get(positions[device])
                && ready(&done, span.action)
            {
                left[device] = Some(span.end - span.start);
            }
        }
        let busy = left.iter().flatten().count();
        let Some(next) = left.iter().flatten().copied().reduce(f64::min) else {
            return now;
        };
        now += next / cores.rate(busy);
        for device in 0..devices {
            let Some(rest) = &mut left[device] else {
                continue;
            };
            *rest -= next;
            if *rest <= 0.0 {
                left[device] = None;
                let Action {
                    stage,
                    op,
                    micro_batch,
                } = lanes[device][positions[device]].action;
                positions[device] += 1;
                match op {
                    Op::Forward => done[cell(stage, micro_batch)][0] = true,
                    Op::Backward | Op::InputGrad => done[cell(stage, micro_batch)][1] = true,
                    Op::WeightGrad | Op::Recompute => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpipe_sched::{Costs, gpipe, simulate};

    use super::*;

    fn step(stages: usize, micro_batches: usize, cores: Cores) -> f64 {
        let schedule = gpipe(stages, micro_batches).expect("a valid size");
        let alone = simulate(&schedule, &Costs::even(stages, 1.0, 2.0)).expect("costs");
        shared_makespan(&schedule, &alone, cores)
    }

    #[test]
    fn cores_are_divided_among_the_busy() {
        let cores = |count, efficiency| Cores { count, efficiency };
        // As many cores as workers: as the simulator says, and what one is alone with goes faster.
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        close(step(1, 4, cores(1.0, 1.0)), 12.0);
        close(step(2, 4, cores(2.0, 0.0)), 15.0);
        // All of the cores always work, so it is all of the work divided by them.
        close(step(2, 4, cores(2.0, 1.0)), 12.0);
        close(step(4, 4, cores(2.0, 1.0)), 24.0);
        // On one core, nothing is gained.
        close(step(4, 4, cores(1.0, 1.0)), 48.0);
        assert!(step(2, 4, cores(2.0, 0.5)) < 15.0);
        assert_eq!(cores(2.0, 0.9).throughput(1), 1.9);
        assert_eq!(cores(2.0, 0.9).throughput(8), 2.0);
    }
}
