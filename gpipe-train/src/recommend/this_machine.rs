//! Plans for this machine, whose memory all workers share with copies for checkpoints and a batch.

use gpipe_remat::planner::{CertifiedPlan, Plan, PlanRequest, Planner, Worker};
use gpipe_remat::{Error as RematError, Policy};

use super::recommender::Recommender;
use crate::config::TrainConfig;
use crate::dataset::data_warnings;
use crate::error::{Error, Result};
use crate::machine;
use crate::setup::Setup;

impl Recommender {
    /// Why `train` would refuse a plan on this machine, as [`Setup::faults`] of a run that begins and [`data_warnings`];
    /// nothing for workers that are listed, or on hosts.
    ///
    /// # Errors
    /// As [`apply`](Self::apply) and [`Setup::new`].
    pub fn faults(&self, plan: &Plan, config: &TrainConfig) -> Result<Vec<String>> {
        if self.cores.is_none() || self.config.is_none() {
            return Ok(Vec::new());
        }
        let chosen = self.apply(plan, config)?;
        let mut faults = Setup::new(&chosen)?.faults(&chosen, false);
        faults.extend(data_warnings(&chosen).err());
        Ok(faults)
    }

    /// The answer, or the best plan that fits the memory of this machine where the answer does not and another does. Its
    /// workers have equal parts of that memory.
    pub(super) fn within_this_machine(
        &self,
        answer: CertifiedPlan,
        policy: Policy,
        config: &TrainConfig,
    ) -> Result<CertifiedPlan> {
        let is_on_host = !config.pipeline.devices.has_gpu();
        match machine::memory_to_come().filter(|_| is_on_host && self.cores.is_some()) {
            Some(memory) => self.within(memory, answer, policy, config),
            None => Ok(answer),
        }
    }

    /// The same for this many bytes.
    pub(super) fn within(
        &self,
        memory: u64,
        mut answer: CertifiedPlan,
        policy: Policy,
        config: &TrainConfig,
    ) -> Result<CertifiedPlan> {
        let setup = Setup::new(&self.apply(&answer.plan, config)?)?;
        let memory = memory.saturating_sub(setup.bytes_beside_stages(config));
        let fits = |plan: &Plan| {
            let peaks = plan.peaks.iter();
            peaks.fold(0_u64, |sum, &peak| sum.saturating_add(peak)) <= memory
        };
        let all = self.weights.of_stage(0..self.weights.layers());
        let fixed = [all.values, all.gradients, all.optimizer];
        let fixed = fixed.into_iter().fold(0, u64::saturating_add);
        if fits(&answer.plan) || fixed > memory {
            return Ok(answer);
        }
        let mut best: Option<(Plan, u64)> = None;
        for count in 1..=self.workers.len() {
            let part = memory / count as u64;
            let limited = |worker: &Worker| Worker {
                memory: Some(worker.memory.map_or(part, |own| own.min(part))),
                ..*worker
            };
            let request = PlanRequest {
                workers: self.workers[..count].iter().map(limited).collect(),
                ..self.request(vec![policy])
            };
            let found = match Planner::new(&request).and_then(Planner::answer) {
                Ok(found) => found,
                // More workers may have a plan where fewer do not have the given number of stages.
                Err(RematError::DoesNotFit(_) | RematError::PlanRequest(_)) => continue,
                Err(error) => return Err(Error::input(error)),
            };
            let mut plan = found.plan;
            self.part.set(Some(part));
            self.as_run(&mut plan, policy, config)?;
            let is_better = |(best, _): &(Plan, u64)| plan.seconds < best.seconds;
            if fits(&plan) && best.as_ref().is_none_or(is_better) {
                best = Some((plan, part));
            }
        }
        self.part.set(best.as_ref().map(|&(_, part)| part));
        if let Some((plan, _)) = best {
            answer.single = (plan.workers.len() == 1).then_some(plan.seconds);
            answer.fastest = plan.seconds;
            (answer.plan, answer.with_more) = (plan, None);
        }
        Ok(answer)
    }
}
