//! What a configuration took, and how much more than one stage.

use super::configuration::Configuration;
use super::runs::Run;
use super::summary::Summary;

/// A configuration, and what it took.
pub struct Measured<'a> {
    pub configuration: &'a Configuration,
    pub wall: Summary,
    /// Processor time of all threads.
    pub cpu: Option<Summary>,
    /// Bytes that the process had at most.
    pub resident: Option<u64>,
    /// The same in `torch.distributed.pipelining`.
    pub theirs: Option<Summary>,
}

impl<'a> Measured<'a> {
    /// `None` of nothing.
    pub fn of(configuration: &'a Configuration, ours: &Run, theirs: &Run) -> Option<Self> {
        Some(Self {
            configuration,
            wall: Summary::of(&ours.seconds)?,
            cpu: Summary::of(&ours.cpu_seconds),
            resident: ours.resident,
            theirs: Summary::of(&theirs.seconds),
        })
    }
}

/// What several stages take more than one.
pub struct Against {
    /// How many times the time.
    pub wall: f64,
    /// How many times the processor time.
    pub cpu: Option<f64>,
    /// Seconds a micro-batch and stage.
    pub extra: f64,
    /// Of processor time.
    pub extra_cpu: Option<f64>,
}

impl Against {
    /// From both.
    pub fn of(measured: &Measured<'_>, one: &Measured<'_>) -> Self {
        let Configuration {
            stages,
            micro_batches,
            ..
        } = measured.configuration;
        let each = |seconds: f64| seconds / (stages * micro_batches) as f64;
        let cpu = measured.cpu.as_ref().zip(one.cpu.as_ref());
        Self {
            wall: measured.wall.median / one.wall.median,
            cpu: cpu.map(|(several, one)| several.median / one.median),
            extra: each(measured.wall.median - one.wall.median),
            extra_cpu: cpu.map(|(several, one)| each(several.median - one.median)),
        }
    }
}
