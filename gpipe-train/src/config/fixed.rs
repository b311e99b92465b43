//! The keys of the pipeline that were given: a recommendation keeps to them.

use super::overrides::Overrides;

/// The keys of `[pipeline]`, and the batch, that were given, by a file or by a setting, and so are not for a
/// recommendation to choose. Their values are those of the resolved configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FixedKeys {
    /// `stages`.
    pub stages: bool,
    /// `micro_batches` or `micro_batch_size`.
    pub micro_batches: bool,
    /// `schedule`.
    pub schedule: bool,
    /// `partition`.
    pub partition: bool,
    /// `remat`.
    pub remat: bool,
    /// `replicas`.
    pub replicas: bool,
    /// `batch_size` of `[data]`.
    pub batch_size: bool,
    /// The number of workers in a list of `devices`; a recommendation may use fewer.
    pub workers: Option<usize>,
}

impl Overrides {
    /// The keys of the pipeline in the layers so far.
    pub fn fixed(&self) -> FixedKeys {
        let has = |key| self.given().has("pipeline", key);
        let devices = self.given().devices();
        let listed = devices.filter(|devices| devices.repeated().is_none());
        FixedKeys {
            stages: has("stages"),
            micro_batches: has("micro_batches") || has("micro_batch_size"),
            schedule: has("schedule"),
            partition: has("partition"),
            remat: has("remat"),
            replicas: has("replicas"),
            batch_size: self.given().has("data", "batch_size"),
            workers: listed.map(|devices| usize::try_from(devices.workers()).unwrap_or(usize::MAX)),
        }
    }
}
