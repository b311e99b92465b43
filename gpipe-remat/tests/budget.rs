//! The policy `budget:BYTES` against all choices there are: it fits, and no other that fits
//! computes less again.

mod common;

use std::sync::Arc;

use common::{Model, Run};
use gpipe_layers::Layer;
use gpipe_remat::{
    Bytes, Error, ParameterBytes, Policy, RematPlan, Retained, RetainedRun, predict_memory,
};
use gpipe_sched::{Schedule, dualpipe_v, gpipe, one_f_one_b, zb_h1};

/// With dropout, or without, another layer is the last one inside each half of a block.
fn run(stages: usize, batch: usize, micro_batches: usize, dropout: f32) -> Run {
    let model = Model {
        blocks: 2,
        tied: true,
        dropout,
    };
    Run {
        stages,
        ..Run::new(model, batch, micro_batches)
    }
}

/// Every way in which a stage of `layers` layers can keep some and compute runs of others again.
fn all(layers: usize) -> Vec<Retained> {
    fn extend(runs: &mut Vec<RetainedRun>, count: usize, found: &mut Vec<Retained>) {
        let start = runs.last().map_or(0, |run| run.layers.end);
        if start == count {
            found.push(Retained::Runs(Arc::from(runs.clone())));
            return;
        }
        for end in start + 1..=count {
            for kept in [true, false] {
                let layers = start..end;
                runs.push(RetainedRun { layers, kept });
                extend(runs, count, found);
                runs.pop();
            }
        }
    }
    let mut found = Vec::new();
    extend(&mut Vec::new(), layers, &mut found);
    found
}

struct Case {
    run: Run,
    layers: Vec<Box<dyn Layer>>,
    schedule: Schedule,
}

impl Case {
    fn new(run: Run, schedule: Schedule) -> Self {
        Self {
            layers: run.model.layers(),
            run,
            schedule,
        }
    }

    /// The peak of every stage under a table.
    fn peaks(&mut self, remat_plan: &RematPlan) -> Vec<u64> {
        let (costs, cut) = (
            self.run.costs(&self.layers),
            self.run.cut(self.layers.len()),
        );
        let weights = ParameterBytes::new(&mut self.layers, Some(&self.run.optimizer));
        let memory = predict_memory(&weights, &costs, &cut, &self.schedule, remat_plan);
        memory.iter().map(gpipe_remat::StageMemory::peak).collect()
    }

    fn remat_plan(&mut self, bytes: u64) -> Result<RematPlan, Error> {
        let (costs, cut) = (
            self.run.costs(&self.layers),
            self.run.cut(self.layers.len()),
        );
        let weights = ParameterBytes::new(&mut self.layers, Some(&self.run.optimizer));
        let policy = Policy::Budget(Bytes(bytes));
        RematPlan::new(policy, &weights, &costs, &cut, &self.schedule)
    }

    /// FLOPs that a stage computes again.
    fn work(&self, stage: usize, kept: &Retained) -> u64 {
        let costs = self.run.costs(&self.layers);
        let part = self.run.cut(self.layers.len())[stage].clone();
        let costs = &costs.of(0)[part.clone()];
        let again = kept.runs(part.len()).into_iter().filter(|run| !run.kept);
        // Of the last layer of a run, what it saves.
        again
            .map(|run| {
                let (last, before) = costs[run.layers].split_last().expect("no run is empty");
                before.iter().map(|cost| cost.forward).sum::<u64>() + last.recomputed()
            })
            .sum()
    }
}

fn schedules(stages: usize, micro_batches: usize) -> Vec<Schedule> {
    let mut made = vec![
        gpipe(stages, micro_batches),
        one_f_one_b(stages, micro_batches),
        zb_h1(stages, micro_batches),
    ];
    // Stages that take some backward passes as a whole and others apart.
    if stages.is_multiple_of(2) {
        made.push(dualpipe_v(stages / 2, micro_batches));
    }
    let made = made.into_iter();
    made.map(|schedule| schedule.expect("a valid size"))
        .collect()
}

#[test]
fn no_choice_that_fits_computes_less() {
    let (mut between, mut refused) = (0, 0);
    let sizes = [(1, 4, 4), (2, 7, 3), (3, 8, 4), (4, 6, 6)];
    for ((stages, batch, micro_batches), dropout) in sizes
        .into_iter()
        .flat_map(|sizes| [(sizes, 0.2), (sizes, 0.0)])
    {
        for schedule in schedules(stages, micro_batches) {
            let mut case = Case::new(run(stages, batch, micro_batches, dropout), schedule);
            let parts = case.run.cut(case.layers.len());
            for (stage, part) in parts.iter().enumerate() {
                // One stage is given every choice in turn; the others keep everything.
                let choices = all(part.len());
                let mut known = Vec::new();
                for kept in &choices {
                    let remat_plan = RematPlan::of_stages(
                        (0..stages)
                            .map(|other| match other == stage {
                                true => kept.clone(),
                                false => Retained::Everything,
                            })
                            .collect(),
                        micro_batches,
                    );
                    known.push((case.peaks(&remat_plan)[stage], case.work(stage, kept)));
                }
                let least = known.iter().map(|known| known.0).min().unwrap_or(0);
                let most = known.iter().map(|known| known.0).max().unwrap_or(0);
                for share in 0..=12 {
                    let limit = least + (most - least) * share / 12;
                    let best = known.iter().filter(|known| known.0 <= limit);
                    let best = best.map(|known| known.1).min().expect("the least fits");
                    // The other stages may not fit it: only this one is asked.
                    match case.remat_plan(limit) {
                        Ok(remat_plan) => {
                            let kept = remat_plan.kept(stage, 0);
                            assert_eq!(case.work(stage, kept), best, "{limit} of {least}..{most}");
                            assert!(case.peaks(&remat_plan)[stage] <= limit);
                            between += usize::from(best > 0);
                        }
                        Err(Error::Budget { stage: other, .. }) => assert_ne!(other, stage),
                        Err(error) => panic!("{error}"),
                    }
                }
                match case.remat_plan(least - 1) {
                    Err(Error::Budget {
                        stage: s, needed, ..
                    }) if s == stage => {
                        assert_eq!(needed, Bytes(least), "stage {stage}");
                        refused += 1;
                    }
                    Err(Error::Budget { needed, .. }) => assert!(needed >= Bytes(least)),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(
        between > 50 && refused > 5,
        "{between} choices, {refused} refused"
    );
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let mut later = 0;
    for schedule in [2, 3, 4]
        .into_iter()
        .flat_map(|stages| schedules(stages, 3))
    {
        let mut case = Case::new(run(schedule.stages(), 6, 3, 0.2), schedule);
        let error = case.remat_plan(1).expect_err("one byte").to_string();
        let mend = error
            .split("use `pipeline.remat = budget:")
            .nth(1)
            .and_then(|rest| rest.split('`').next())
            .and_then(|bytes| bytes.parse::<Bytes>().ok())
            .expect("a number of bytes");
        // It is that of the stage that needs the most.
        assert!(case.remat_plan(mend.0).is_ok(), "{error}");
        later += usize::from(!error.starts_with("stage 0 does not fit "));
    }
    assert!(later > 0, "the first stage always needs the most");
}

/// A budget that everything fits keeps everything; each smaller one computes no less again.
#[test]
fn more_bytes_are_no_more_work() {
    let schedule = gpipe(2, 4).expect("a valid size");
    let mut case = Case::new(run(2, 8, 4, 0.0), schedule);
    let remat_plan = case.remat_plan(u64::MAX).expect("room");
    assert!((0..2).all(|stage| *remat_plan.kept(stage, 0) == Retained::Everything));
    let most = case
        .peaks(&remat_plan)
        .into_iter()
        .max()
        .expect("two stages");
    let mut works: Vec<u64> = Vec::new();
    for share in 1..=40 {
        let Ok(remat_plan) = case.remat_plan(most * share / 40) else {
            continue;
        };
        works.push(
            (0..2)
                .map(|stage| case.work(stage, remat_plan.kept(stage, 0)))
                .sum(),
        );
        assert!(
            case.peaks(&remat_plan)
                .into_iter()
                .all(|peak| peak <= most * share / 40)
        );
    }
    assert!(
        works.is_sorted_by(|a, b| a >= b) && works.len() > 5,
        "{works:?}"
    );
    assert_eq!(works.last(), Some(&0));
}

/// Under every policy: what is predicted from such a plan would be of another run, or panic.
#[test]
fn parts_that_do_not_fit_each_other_make_no_plan() {
    let run = run(2, 8, 4, 0.0);
    let mut layers = run.model.layers();
    let (costs, cut) = (run.costs(&layers), run.cut(layers.len()));
    let weights = ParameterBytes::new(&mut layers, Some(&run.optimizer));
    let fewer = ParameterBytes::new(&mut layers[1..], Some(&run.optimizer));
    let [first, last] = [cut[0].clone(), cut[1].clone()];
    let end = last.end;
    let cuts = [
        vec![first.clone(), first.start..end],
        vec![first.clone(), last.start..end - 1],
        vec![first.clone(), last.start..end + 1],
        vec![last.clone(), first.clone()],
        vec![0..0, 0..end],
        vec![first.clone()],
        vec![],
    ];
    let schedule = |stages, micro_batches| gpipe(stages, micro_batches).expect("a valid size");
    let fits = schedule(2, 4);
    for policy in [
        Policy::Keep,
        Policy::Stage,
        Policy::ExceptLast,
        Policy::Every(2),
        Policy::Budget(Bytes(u64::MAX)),
    ] {
        RematPlan::new(policy, &weights, &costs, &cut, &fits).expect("a plan");
        let refused = |weights, cut: &[_], schedule: &Schedule| {
            let made = RematPlan::new(policy, weights, &costs, cut, schedule);
            assert!(
                matches!(made, Err(Error::Assembly(_))),
                "{policy:?} {cut:?}"
            );
        };
        for cut in &cuts {
            refused(&weights, cut, &fits);
        }
        refused(&weights, &cut, &schedule(2, 3));
        refused(&weights, &cut, &schedule(3, 4));
        refused(&fewer, &cut, &fits);
    }
}
