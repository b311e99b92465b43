//! The configured cut, and the choice of when to recompute.

use gpipe_partition::{CutRule, Partition};
use gpipe_remat::{Policy, StagePrices};
use gpipe_report::numbers;
use gpipe_sched::{Costs, Groups, Schedule, simulate};

use crate::config::{Pipeline, ScheduleChoice};
use crate::error::{Error, Result};

/// Refuses more stages than layers, and than the last number of them that the schedule can deal out to workers.
///
/// # Errors
/// [`Error::Invalid`] if there are.
pub fn check_stages(pipeline: &Pipeline, layers: usize) -> Result<()> {
    let (stages, chunks) = (pipeline.stages.get(), pipeline.schedule.chunks());
    // Each worker has as many, and each listed one stands for one of each rank.
    let listed = pipeline
        .listed
        .and_then(|listed| usize::try_from(listed).ok());
    let unit = listed.map_or(chunks, |listed| (stages / listed).max(chunks));
    let most = layers - layers % unit;
    if stages <= most {
        return Ok(());
    }
    let mend = match (&*pipeline.schedule, listed) {
        (ScheduleChoice::Kind(_), None) if most > 0 => {
            format!("use `pipeline.stages = {most}` or fewer")
        }
        // Either alone would be refused beside the other.
        (ScheduleChoice::Kind(_), Some(_)) if most > 0 => format!(
            "use `pipeline.stages = {most}` and list {} in `pipeline.devices`, or fewer of both",
            numbers::counted((most / unit) as u64, "worker")
        ),
        (schedule, _) => {
            let kind = match schedule {
                ScheduleChoice::Kind(_) => "schedule",
                ScheduleChoice::Table(_) => "table",
            };
            format!("use another {kind} than `pipeline.schedule = {schedule}`, or more layers")
        }
    };
    let fewer = match stages <= layers {
        true => format!("{chunks} on each worker"),
        false => numbers::counted(layers as u64, "layer"),
    };
    let stages = numbers::counted(stages as u64, "stage");
    Err(Error::invalid(format!("{stages} but {fewer}: {mend}")))
}

/// The micro-batches of a replica; those of all if there is one.
pub fn micro_batches_of(pipeline: &Pipeline, replica: usize) -> usize {
    let (all, replicas) = (pipeline.micro_batches.get(), pipeline.replicas.get());
    let groups = Groups::new(all, pipeline.groups.get());
    let own = groups.and_then(|groups| groups.on_replica(replica, replicas));
    own.map_or(all, |own| own.own_micro_batches().len())
}

/// Cuts layers of these costs into stages by the rule of `pipeline.partition`.
///
/// # Errors
/// [`Error::Invalid`] if explicit sizes are not one for each stage; [`Error::Input`] for any other
/// refusal of [`CutRule::cut`].
pub fn cut(rule: &CutRule, costs: &[u64], stages: usize) -> Result<Partition> {
    use gpipe_partition::Error::SizeCount;
    rule.cut(costs, stages).map_err(|error| match error {
        SizeCount { sizes, parts } => {
            let layers = costs.len();
            let fits = matches!(rule, CutRule::Sizes(all) if all.iter().fold(0, |sum: usize, size| sum.saturating_add(*size)) == layers);
            let other = match fits {
                true => format!(", or `pipeline.stages = {sizes}`"),
                false => format!(", of {layers} layers in all"),
            };
            let (sizes, parts) = (
                numbers::counted(sizes as u64, "size"),
                numbers::counted(parts as u64, "stage"),
            );
            Error::invalid(format!(
                "{sizes} in `pipeline.partition` but {parts}: give one size for each{other}"
            ))
        }
        error => Error::input(error),
    })
}

/// The error of layers of a model that could not be cut.
pub(super) fn uncut(error: gpipe_partition::Error) -> Error {
    match error {
        gpipe_partition::Error::Overflow { layer, .. } => Error::invalid(format!(
            "the costs of layers 0 to {layer} are more than can be counted: use a smaller model, or fewer samples and \
             tokens a step"
        )),
        error => Error::input(error),
    }
}

/// [`cut`] of a model whose first `before` layers are before the pipeline, in its first stage, which has at least one
/// layer more.
///
/// # Errors
/// As [`cut`], and [`Error::Invalid`] if too few layers are left, or an explicit first stage has no other.
pub(super) fn cut_behind(
    before: usize,
    rule: &CutRule,
    prices: &StagePrices,
    stages: usize,
) -> Result<Partition> {
    let layers = prices.layers().len();
    if before > 0 && stages > layers.saturating_sub(before) {
        return Err(Error::invalid(format!(
            "{before} layers before the pipeline and {stages} stages but {layers} layers: use `pipeline.before = {}` \
             or fewer",
            layers - stages
        )));
    }
    match rule {
        CutRule::Sizes(sizes) => match sizes.first() {
            Some(&first) if before > 0 && first <= before => Err(Error::invalid(format!(
                "{before} layers before the pipeline but {first} in the first stage of `pipeline.partition`: give it \
                 {} or more",
                before + 1
            ))),
            _ => cut(rule, prices.layers(), stages),
        },
        _ => prices.cut(rule, stages, before).map_err(uncut),
    }
}

/// Whether recomputation under a policy is moved into idle time: the plan of a memory budget assumes that none is.
pub(crate) fn hides(policy: Policy) -> bool {
    !matches!(policy, Policy::Keep | Policy::Budget(_))
}

/// Moves recomputation into the idle time of workers, if that shortens the step.
pub(super) fn hide_recomputation(
    schedule: Schedule,
    policy: Policy,
    costs: &Costs,
) -> Result<Schedule> {
    if !hides(policy) {
        return Ok(schedule);
    }
    let early = schedule.recompute_early(costs).map_err(Error::input)?;
    let seconds = |schedule: &Schedule| simulate(schedule, costs).map(|t| t.makespan());
    let gains =
        seconds(&early).map_err(Error::input)? < seconds(&schedule).map_err(Error::input)?;
    Ok(if gains { early } else { schedule })
}
