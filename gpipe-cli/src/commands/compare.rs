//! The ranked table of `gpipe plan --compare`.

use std::ops::Range;

use gpipe_report::{Basis, Event, numbers};
use gpipe_train::TrainConfig;
use gpipe_train::recommend::{Comparison, RankedPlan, Recommender};

use super::auto::sizes;
use crate::args::OutputArgs;
use crate::fail::Result;
use crate::output::{print, table_within, terminal_width};

/// Maximum number of rows.
const ROWS: usize = 20;

/// Prints the ranked plans, and the fastest with Lingvo's cut.
pub fn show(recommender: &Recommender, config: &TrainConfig, output: OutputArgs) -> Result<()> {
    let Comparison {
        mut plans,
        histogram,
        ..
    } = recommender.compare(config)?;
    let basis = recommender.basis();
    let best_seconds = plans.first().map_or(0.0, |best| best.plan.seconds);
    let left_out = match output.json {
        true => 0,
        false => plans.len().saturating_sub(ROWS),
    };
    plans.truncate(plans.len() - left_out);
    let by_rule = match histogram {
        Some(_) => "\nthe last row has the cut of Lingvo's rule (histogram)",
        None => "",
    };
    plans.extend(histogram);
    if output.json {
        for plan in &plans {
            print(&event(plan, basis).to_json()?)?;
        }
        return Ok(());
    }
    let rows: Vec<_> = plans
        .iter()
        .map(|plan| row(plan, best_seconds, basis))
        .collect();
    let heading = [
        "workers", "schedule", "M", "remat", "cut", "step", "times", "bubble", "peak",
    ];
    let text = table_within(
        terminal_width(),
        &heading,
        &["schedule", "remat", "cut"],
        &rows,
    );
    let more = match left_out {
        0 => String::new(),
        left_out => format!("\n{left_out} slower ones are not shown; --json lists all"),
    };
    print(&format!("{}{by_rule}{more}", text.trim_end()))
}

fn row(ranked: &RankedPlan, best: f64, basis: Basis) -> Vec<String> {
    let plan = &ranked.plan;
    vec![
        plan.workers.len().to_string(),
        plan.order.clone(),
        plan.micro_batches.to_string(),
        ranked.remat.clone(),
        sizes(plan),
        basis.said_of(numbers::step_time(plan.seconds)),
        format!("{:.3}", plan.seconds / best),
        numbers::percent(plan.bubble),
        numbers::bytes(plan.peaks.iter().copied().max().unwrap_or(0)),
    ]
}

fn event(ranked: &RankedPlan, basis: Basis) -> Event {
    let plan = &ranked.plan;
    Event::Compare {
        workers: plan.workers.len(),
        schedule: plan.order.clone(),
        micro_batches: plan.micro_batches,
        remat: ranked.remat.clone(),
        partition: ranked.partition,
        cut: plan.cut.iter().map(Range::len).collect(),
        step_seconds: plan.seconds,
        bubble: plan.bubble,
        peak_bytes: plan.peaks.clone(),
        basis,
    }
}
