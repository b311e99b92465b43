//! What a configuration took, and how much more than one stage.

use serde_json::{Value, json};

use super::calm::Others;
use super::configuration::Configuration;
use super::runs::Run;
use super::summary::{Summary, median_interval};
use super::turns;

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
    /// Wall time over PyTorch's: the median of the rounds and its interval.
    pub ratio: Option<[f64; 3]>,
    /// How many rounds that is of.
    pub rounds: usize,
    /// Who disturbed it or PyTorch most.
    pub others: Others,
}

impl<'a> Measured<'a> {
    /// From both and the rounds' ratios; `None` of nothing.
    pub fn of(
        configuration: &'a Configuration,
        ours: &Run,
        theirs: &Run,
        ratios: &[f64],
    ) -> Option<Self> {
        Some(Self {
            configuration,
            wall: Summary::of(&ours.seconds)?,
            cpu: Summary::of(&ours.cpu_seconds),
            resident: ours.resident,
            theirs: Summary::of(&theirs.seconds),
            ratio: median_interval(ratios),
            rounds: ratios.len(),
            others: ours.others.worse(theirs.others),
        })
    }

    /// The ratio and its interval, marked where the machine was not calm.
    pub fn shown_ratio(&self) -> String {
        let ratio = self.ratio.map(|ratio| turns::interval(Some(ratio)));
        let others = 100.0 * self.others.share();
        let mark = (!self.others.is_calm()).then(|| format!("not calm: {others:.0} %"));
        Vec::from_iter(ratio.into_iter().chain(mark)).join(", ")
    }

    /// A line with the keys of the ratio and of what disturbed it.
    pub fn with_ratio(&self, mut line: Value) -> Value {
        line["ratio"] = json!(self.ratio.map(|ratio| ratio[0]));
        line["ratio_interval"] = json!(self.ratio.map(|ratio| [ratio[1], ratio[2]]));
        line["pairs"] = json!(self.rounds);
        line["others_share"] = json!(self.others.busy);
        line["stolen_share"] = json!(self.others.stolen);
        line["calm"] = json!(self.others.is_calm());
        line
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
