//! The ranked table of `gpipe plan --compare`.

use std::ops::Range;

use gpipe_remat::planner::{Plan, Planner};
use gpipe_remat::{Bytes, Policy, Work};

use super::auto::{Choice, sizes};
use crate::args::Talk;
use crate::config::Config;
use crate::fail::{Fail, Result};
use crate::output::{Event, numbers, print, table_within, terminal_width};

/// Rows that are shown.
const ROWS: usize = 20;

impl Choice {
    /// Prints plans of all kinds, the fastest first, and what Lingvo's cut of the fastest costs.
    pub fn compare(&self, config: &Config, talk: Talk) -> Result<()> {
        let mut policies = vec![Policy::Keep, Policy::Stage];
        if self.memory().is_some() {
            policies.push(Policy::Budget(Bytes(u64::MAX)));
        }
        let mut rows = Vec::new();
        for policy in policies {
            let question = self.question(vec![policy]);
            let mut planner = Planner::new(&question).map_err(Fail::usage)?;
            for order in 0..self.orders.len() {
                for workers in 1..=self.workers.len() {
                    if workers == 1 && order > 1 {
                        continue;
                    }
                    for &micro_batches in &self.micro_batches {
                        let found = planner.under(order, workers, micro_batches);
                        if let Some((mut plan, _)) = found.map_err(Fail::usage)? {
                            if policy == Policy::Stage {
                                self.as_run(&mut plan, policy, config)?;
                            }
                            let row = Row::new(plan, policy, self, order, "balance");
                            // What fits with everything kept is there already.
                            let again = row.remat == Policy::Keep.to_string();
                            if policy == Policy::Keep || !again {
                                rows.push(row);
                            }
                        }
                    }
                }
            }
        }
        rows.sort_by(|a, b| a.plan.seconds.total_cmp(&b.plan.seconds));
        let Some(best) = rows.first() else {
            // The answer says what would fit.
            return self.answer().map(|_| ());
        };
        let histogram = self.histogram(best, config)?;
        let shown = if talk.json {
            rows.len()
        } else {
            ROWS.min(rows.len())
        };
        let best_seconds = best.plan.seconds;
        let left_out = rows.len() - shown;
        rows.truncate(shown);
        rows.extend(histogram);
        if talk.json {
            for row in &rows {
                print(&row.event().to_json()?)?;
            }
            return Ok(());
        }
        let cells: Vec<_> = rows.iter().map(|row| row.cells(best_seconds)).collect();
        let heading = [
            "workers", "schedule", "M", "remat", "cut", "step", "times", "bubble", "peak",
        ];
        let text = table_within(
            terminal_width(),
            &heading,
            &["schedule", "remat", "cut"],
            &cells,
        );
        let more = match left_out {
            0 => String::new(),
            left_out => format!("\n{left_out} slower ones are not shown; --json lists all"),
        };
        print(&format!("{}{more}", text.trim_end()))
    }

    /// The fastest plan with Lingvo's cut of the layers' work, where that cut exists and fits.
    fn histogram(&self, best: &Row, config: &Config) -> Result<Option<Row>> {
        let parts = gpipe_remat::micro_batches(self.batch, best.plan.micro_batches);
        let priced = parts
            .and_then(|parts| (self.price)(&parts))
            .map_err(Fail::usage)?;
        let work = |work: &Work| work.forward + work.input_grad + work.weight_grad;
        let work: Vec<f64> = priced.times.work.iter().map(work).collect();
        let Ok(cut) = gpipe_partition::histogram(&work, best.plan.cut.len()) else {
            return Ok(None);
        };
        let question = self.question(vec![best.policy]);
        let mut planner = Planner::new(&question).map_err(Fail::usage)?;
        let cut: Vec<Range<usize>> = cut.ranges().collect();
        let (workers, micro_batches) = (best.plan.workers.len(), best.plan.micro_batches);
        let plan = planner.with_cut(best.order, workers, micro_batches, &cut);
        let Some(mut plan) = plan.map_err(Fail::usage)? else {
            return Ok(None);
        };
        if best.policy == Policy::Stage {
            self.as_run(&mut plan, best.policy, config)?;
        }
        let row = Row::new(plan, best.policy, self, best.order, "histogram");
        Ok(Some(row))
    }
}

/// A plan among others.
struct Row {
    plan: Plan,
    policy: Policy,
    remat: String,
    order: usize,
    partition: &'static str,
}

impl Row {
    fn new(
        plan: Plan,
        policy: Policy,
        choice: &Choice,
        order: usize,
        partition: &'static str,
    ) -> Self {
        let remat = match policy {
            Policy::Budget(_) => choice.remat(&plan),
            policy => policy.to_string(),
        };
        Self {
            plan,
            policy,
            remat,
            order,
            partition,
        }
    }

    fn cells(&self, best: f64) -> Vec<String> {
        let plan = &self.plan;
        let cut = match self.partition {
            "histogram" => format!("{} (histogram)", sizes(plan)),
            _ => sizes(plan),
        };
        vec![
            plan.workers.len().to_string(),
            plan.order.clone(),
            plan.micro_batches.to_string(),
            self.remat.clone(),
            cut,
            numbers::step_time(plan.seconds),
            format!("{:.3}", plan.seconds / best),
            numbers::percent(plan.bubble),
            numbers::bytes(plan.peaks.iter().copied().max().unwrap_or(0)),
        ]
    }

    fn event(&self) -> Event {
        let plan = &self.plan;
        Event::Compare {
            workers: plan.workers.len(),
            schedule: plan.order.clone(),
            micro_batches: plan.micro_batches,
            remat: self.remat.clone(),
            partition: self.partition,
            cut: plan.cut.iter().map(Range::len).collect(),
            step_seconds: plan.seconds,
            bubble: plan.bubble,
            peak_bytes: plan.peaks.clone(),
        }
    }
}
