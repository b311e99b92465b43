//! `gpipe plan --auto` and `gpipe train --auto`: the recommended plan and its certificate.

use std::ops::Range;

use gpipe_remat::planner::{CertifiedPlan, Plan};
use gpipe_report::{Basis, Event, ReplicatedPlan, numbers};
use gpipe_train::profile::ProfileOptions;
use gpipe_train::recommend::{PlanningOptions, Recommender};
use gpipe_train::{TrainConfig, printable, quoted};

use super::profile;
use super::refusals::told;
use crate::args::{OutputArgs, PlanArgs, TrainArgs};
use crate::fail::Result;
use crate::output::{print, table_within, tell, tell_if_slow, terminal_width};

/// Applies the recommended plan to the configuration of `gpipe train`.
pub fn choose(args: &TrainArgs, config: &TrainConfig, output: OutputArgs) -> Result<TrainConfig> {
    let path = profile::path(args.settings.config.as_deref());
    let options = ProfileOptions::new(&path).measure(args.profile);
    let mut planning = PlanningOptions::default();
    planning.fixed = args.settings.fixed()?;
    let mut progress = profile::progress(output, "gpipe plan --auto");
    let recommender = Recommender::of_model(config, &planning, options, &mut progress)?;
    let answer = recommend(&recommender, output)?;
    if !output.quiet {
        let keys = recommender.settings(&answer.plan, config)?;
        let command = format!("gpipe train {}", args.settings.with(&keys));
        tell(&text(&recommender, &answer, &command));
        tell("");
    }
    Ok(recommender.apply(&answer.plan, config)?)
}

/// The recommended plan; says so where the search takes seconds.
fn recommend(recommender: &Recommender, output: OutputArgs) -> Result<CertifiedPlan> {
    let search = || recommender.recommend();
    Ok(match output.quiet {
        true => search(),
        false => tell_if_slow("searching for the plan with the shortest step", search),
    }?)
}

/// Prints the recommended plan of `gpipe plan` and its certificate.
pub fn show(
    args: &PlanArgs,
    recommender: &Recommender,
    config: &TrainConfig,
    output: OutputArgs,
) -> Result<()> {
    let answer = recommend(recommender, output)?;
    let faults = told(recommender.faults(&answer.plan, config)?);
    if output.json {
        return print(&event(recommender, &answer, faults).to_json()?);
    }
    let keys = recommender.settings(&answer.plan, config)?;
    let flags = args.settings.with(&keys);
    let launcher = recommender.launcher(&answer.plan);
    let command = match &args.costs {
        None => format!("{launcher}gpipe train {flags}"),
        Some(costs) => format!("gpipe plan --costs {} {flags}", quoted(costs)),
    };
    print(&text(recommender, &answer, &command))
}

fn event(of: &Recommender, answer: &CertifiedPlan, faults: Vec<String>) -> Event {
    let plan = &answer.plan;
    Event::Auto {
        stages: plan.cut.len(),
        workers: plan.workers.clone(),
        micro_batches: plan.all_micro_batches(),
        schedule: plan.order.clone(),
        cut: plan.cut.iter().map(Range::len).collect(),
        remat: of.remat(plan).to_string(),
        step_seconds: plan.seconds,
        fastest_seconds: answer.fastest,
        bound_seconds: answer.bound,
        gap: answer.gap(),
        bubble: plan.bubble,
        peak_bytes: plan.peaks.clone(),
        bottleneck_stage: plan.bottleneck,
        bottleneck_layer: of.layer(plan.most_expensive).to_owned(),
        single_seconds: answer.single,
        replicas_seconds: answer.replicas,
        more_memory: answer.with_more.map(|(bytes, _)| bytes.0),
        more_memory_seconds: answer.with_more.map(|(_, seconds)| seconds),
        replications: of.replications(answer),
        basis: of.basis(),
        faults,
    }
}

/// The plan, the command that runs it, and its certificate as text.
fn text(of: &Recommender, answer: &CertifiedPlan, command: &str) -> String {
    let (plan, basis) = (&answer.plan, of.basis());
    let mut lines = vec![
        format!("use         {command}"),
        format!(
            "step        about {}{}, {}{}",
            numbers::step_time(plan.seconds),
            match (basis, of.speed()) {
                (Basis::Estimate, Some(_)) => " (estimate; --profile measures)",
                (Basis::Estimate, None) => " (estimate)",
                (Basis::DataSheet, _) => " (prediction by data sheets)",
                (Basis::Model, _) => " (predicted from a model, not measured)",
                _ => "",
            },
            match answer.gap() {
                gap if gap < 5e-4 => "the best possible".to_owned(),
                gap => format!("at most {:.1} % above the best possible", 100.0 * gap),
            },
            of.assumed_batch().map_or(String::new(), |samples| format!(
                " with {samples} samples (--batch-size for more)"
            ))
        ),
        format!(
            "bottleneck  {} on stage {}; workers idle {} of the time",
            printable(of.layer(plan.most_expensive)),
            plan.bottleneck,
            numbers::percent(plan.bubble)
        ),
        format!(
            "memory      {} on the largest stage{}",
            numbers::bytes(plan.peaks.iter().copied().max().unwrap_or(0)),
            of.memory_note(plan)
        ),
    ];
    let saved = 1.0 - answer.fastest / plan.seconds;
    let is_simpler = saved >= 5e-4;
    if is_simpler {
        lines.push(format!(
                "            more workers or stages would save {:.1} %, within the error of predictions",
                100.0 * saved
            ));
    }
    if let Some((more, seconds)) = answer.with_more {
        lines.push(format!(
            "            {} a worker instead would gain {:.0} %",
            numbers::bytes(more.0),
            100.0 * (1.0 - seconds / plan.seconds)
        ));
    }
    let workers = plan.workers.len() * plan.replication.replicas;
    if let (Some(single), 2..) = (answer.single, workers) {
        lines.push(format!(
            "            {:.2} times as fast as one worker",
            single / plan.seconds
        ));
    }
    if plan.workers.len() == 1 && of.workers().len() > 1 {
        lines.push(format!(
            "advice      do not pipeline: {} is {}as fast as any pipeline",
            match workers {
                1 => "one worker".to_owned(),
                _ => format!("a copy of the model on each of {workers} workers"),
            },
            if is_simpler { "about " } else { "" }
        ));
    }
    if let Some(replicas) = answer.replicas
        && replicas < plan.seconds
    {
        lines.push(format!(
            "advice      do not pipeline: with a copy of the model on each of {} workers, a step \
                 would take about {} (--workers with --hosts 1 plans that)",
            of.workers().len(),
            basis.said_of(numbers::step_time(replicas))
        ));
    }
    let replications = of.replications(answer);
    if let Some(plan) = replications.first() {
        let [parts, sharded] = plan.lines();
        lines.insert(4, format!("            {sharded}"));
        lines.insert(2, format!("            {parts}"));
        let rows: Vec<_> = replications.iter().map(|plan| plan.row(basis)).collect();
        let (width, heading) = (terminal_width(), &ReplicatedPlan::HEADING);
        let text = table_within(width, heading, &["neighbours", "schedule"], &rows);
        lines.push(format!("\n{}", text.trim_end()));
    }
    lines.join("\n")
}

/// The layers of each stage, as a value of `--partition`.
pub fn sizes(plan: &Plan) -> String {
    let sizes: Vec<String> = plan.cut.iter().map(|part| part.len().to_string()).collect();
    sizes.join(",")
}
