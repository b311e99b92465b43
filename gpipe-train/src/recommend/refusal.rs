//! Errors and their mends where no plan fits the memory of the workers.

use gpipe_remat::Policy;
use gpipe_remat::planner::{PlanRequest, Planner};
use gpipe_report::numbers;
use gpipe_tensor::DeviceId;

use super::recommender::Recommender;
use crate::error::Error;

/// The most workers that are tried where those that were planned for have too little memory.
const MOST_MORE: usize = 64;

impl Recommender {
    /// A number of workers of this machine with which a model has a plan that does not fit those that were planned for, if
    /// doubling leads to one.
    pub(super) fn more_workers(
        &self,
        policy: Policy,
        error: &gpipe_remat::Error,
    ) -> Option<String> {
        let devices = &self.config.as_ref()?.pipeline.devices;
        let (id, worker) = (devices.first(), *self.workers.first()?);
        let is_known = matches!(id, DeviceId::Known(_)) && devices.repeated().is_some();
        let is_alike = devices.listed().all(|other| other == id) && !is_known;
        let is_free = self.cores.is_some() && self.space.cut.is_none() && is_alike;
        if !(is_free && matches!(error, gpipe_remat::Error::DoesNotFit(_))) {
            return None;
        }
        let most = self.weights.layers().min(MOST_MORE);
        let doubled = std::iter::successors(Some(2 * self.workers.len()), |count| Some(2 * count));
        let mut counts = doubled.take_while(|&count| count <= most);
        let count = counts.find(|&count| {
            let request = PlanRequest {
                workers: vec![worker; count],
                // A given number of stages would have to follow.
                stages: self.space.stages.map(|_| count),
                ..self.request(vec![policy])
            };
            Planner::new(&request).is_ok_and(|mut planner| planner.fits().unwrap_or(false))
        })?;
        let workers = format!("`pipeline.devices = {id}*{count}`");
        Some(match (self.space.stages, devices.repeated()) {
            (None, _) => workers,
            (Some(_), Some(_)) => format!("`pipeline.stages = {count}`"),
            (Some(_), None) => format!("{workers} with `pipeline.stages = {count}`"),
        })
    }

    /// The error where there is no plan. That one does not fit is said of the workers that were planned for, since more of
    /// them may need less each, and the mend is the memory that counts.
    pub(super) fn refused(&self, error: gpipe_remat::Error) -> Error {
        let gpipe_remat::Error::DoesNotFit(fault) = &error else {
            return Error::input(error);
        };
        let workers = numbers::counted(self.workers.len() as u64, "worker");
        let of_hosts = self.hosts().map_or(String::new(), |hosts| {
            format!(" of {}", numbers::counted(hosts.count as u64, "host"))
        });
        let said = match self.mend_of_memory {
            Some(mend) => format!("{fault}: {mend} {} or more each", fault.needed.rounded_up()),
            None => error.to_string(),
        };
        Error::invalid(format!("on {workers}{of_hosts} {said}"))
    }
}
