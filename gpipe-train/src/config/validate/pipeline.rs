//! Validation of the pipeline: devices, stages, micro-batches and replicas.

use gpipe_partition::CutRule;
use gpipe_remat::Policy;
use gpipe_report::numbers::counted;
use gpipe_sched::Schedule;

use crate::config::nccl_use::NcclUse;
use crate::config::{Pipeline, TrainConfig};
use crate::error::{Error, Result};

/// Refuses what GPUs alone have for other devices.
pub(super) fn check_devices(config: &TrainConfig) -> Result<()> {
    if config.run.tf32 && !config.pipeline.devices.has_gpu() {
        return Err(Error::invalid(
            "`run.tf32` is for CUDA devices: use `pipeline.devices = cuda:0`, or leave `run.tf32` out",
        ));
    }
    if *config.run.nccl == NcclUse::On && !config.pipeline.devices.has_gpu() {
        return Err(Error::invalid(
            "run.nccl = on is for CUDA devices: use `pipeline.devices = cuda:0`, or leave `run.nccl` out",
        ));
    }
    Ok(())
}

/// Refuses a given cut that the schedule cannot deal out evenly to workers. Its mend is of both numbers: asked for its number
/// of stages alone, the cut and the schedule would refuse each other's.
pub(super) fn check_sizes(pipeline: &Pipeline) -> Result<()> {
    let (CutRule::Sizes(sizes), schedule) = (&*pipeline.partition, &*pipeline.schedule) else {
        return Ok(());
    };
    let (count, chunks) = (sizes.len(), schedule.chunks());
    if count.is_multiple_of(chunks) {
        return Ok(());
    }
    let fewer = match count / chunks * chunks {
        0 => String::new(),
        fewer => format!("{fewer} or "),
    };
    Err(Error::invalid(format!(
        "{} in `pipeline.partition` but {chunks} stages on each worker: give {fewer}{} sizes, and as many `pipeline.stages`",
        counted(count as u64, "size"),
        count.next_multiple_of(chunks)
    )))
}

/// Refuses more micro-batches than samples, of which either number may be given by a table or by costs.
pub(super) fn check_micro_batches(
    config: &TrainConfig,
    [of_table, of_costs]: [bool; 2],
) -> Result<()> {
    let (batch, micro_batches) = (
        config.data.batch_size.get(),
        config.pipeline.micro_batches.get(),
    );
    if micro_batches > batch {
        let fewer = format!("use `pipeline.micro_batches = {batch}` or fewer");
        let more = format!("use `data.batch_size = {micro_batches}` or more");
        let mend = match (of_table, of_costs) {
            (true, true) => "use another table".to_owned(),
            (true, false) => more,
            (false, true) => fewer,
            (false, false) => format!("{fewer}, or {more}"),
        };
        return Err(Error::invalid(format!(
            "{micro_batches} micro-batches but {} a batch: {mend}",
            counted(batch as u64, "sample")
        )));
    }
    Ok(())
}

/// Refuses micro-batches that groups and replicas cannot share.
pub(super) fn check_replicas(config: &TrainConfig) -> Result<()> {
    let (batch, micro_batches) = (
        config.data.batch_size.get(),
        config.pipeline.micro_batches.get(),
    );
    let groups = config.pipeline.groups.get();
    let replicas = config.pipeline.replicas.get();
    let of_batch = || counted(micro_batches as u64, "micro-batch");
    if replicas > micro_batches {
        let mend = match replicas <= batch {
            true => format!("pipeline.micro_batches = {replicas}"),
            false => format!("pipeline.replicas = {micro_batches}"),
        };
        return Err(Error::invalid(format!(
            "{replicas} replicas but {}: each replica takes one or more, so use `{mend}`",
            of_batch()
        )));
    }
    if groups > micro_batches {
        return Err(Error::invalid(format!(
            "{groups} groups but {}: use `pipeline.groups = {}` or fewer, or `pipeline.micro_batches = {groups}`",
            of_batch(),
            micro_batches / replicas * replicas
        )));
    }
    if !groups.is_multiple_of(replicas) {
        return Err(Error::invalid(format!(
            "{replicas} replicas but {groups} groups of micro-batches: each replica sums as many, so use \
             `pipeline.groups = {}`, or `pipeline.replicas = {}`",
            groups.next_multiple_of(replicas),
            (1..replicas)
                .rev()
                .find(|fewer| groups.is_multiple_of(*fewer))
                .unwrap_or(1)
        )));
    }
    let zero = config.pipeline.zero.get();
    if zero > 1 {
        return Err(Error::invalid(format!(
            "`pipeline.zero = {zero}` divides gradients or values too, which is not built: use `pipeline.zero = 1`"
        )));
    }
    Ok(())
}

/// Refuses a budget of bytes beside layers that it does not count.
pub(super) fn check_remat(pipeline: &Pipeline) -> Result<()> {
    let (before, remat) = (pipeline.before.get(), &pipeline.remat);
    if before > 0 && matches!(**remat, Policy::Budget(_)) {
        return Err(Error::invalid(format!(
            "`pipeline.remat = {remat}` does not count the {before} layers of `pipeline.before`: use \
             `pipeline.remat = stage`, or leave `pipeline.before` out"
        )));
    }
    Ok(())
}

/// Refuses numbers of stages and micro-batches that differ from those of a schedule table, which each replica runs.
pub fn check_table(config: &TrainConfig, table: &Schedule) -> Result<()> {
    let pipeline = &config.pipeline;
    let replicas = pipeline.replicas.get();
    let of_replicas = match replicas {
        1 => String::new(),
        _ => format!(" for each of {replicas} replicas"),
    };
    for (what, key, has, each, configured) in [
        (
            "stages",
            "stages",
            table.stages(),
            "",
            pipeline.stages.get(),
        ),
        (
            "micro-batches",
            "micro_batches",
            table.micro_batches().saturating_mul(replicas),
            &*of_replicas,
            pipeline.micro_batches.get(),
        ),
    ] {
        if has != configured {
            let in_table = match each {
                "" => has,
                _ => table.micro_batches(),
            };
            return Err(Error::invalid(format!(
                "`pipeline.schedule = {}`: the table has {in_table} {what}{each} but the configuration {configured}: use \
                 `pipeline.{key} = {has}`",
                pipeline.schedule
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::tests::refused;

    /// A mend is one that is not refused in its turn.
    #[test]
    fn mends_of_replicas_can_be_followed() {
        for (set, mend) in [
            (
                &["pipeline.replicas=2", "pipeline.micro_batches=1"][..],
                "2 replicas but 1 micro-batch: each replica takes one or more, so use `pipeline.micro_batches = 2`",
            ),
            (
                &["pipeline.replicas=2", "data.batch_size=1"],
                "use `pipeline.replicas = 1`",
            ),
            (
                &[
                    "pipeline.replicas=2",
                    "pipeline.groups=4",
                    "pipeline.micro_batches=3",
                ],
                "4 groups but 3 micro-batches: use `pipeline.groups = 2` or fewer",
            ),
        ] {
            let said = refused(set);
            assert!(said.contains(mend), "{said}");
        }
    }
}
