//! What the seconds of a plan's step consist of.

use std::ops::Range;

use gpipe_sched::{Timeline, simulate};

use super::candidate::{Candidate, Found};
use super::plan::StepParts;
use super::replication::{Gradients, Layout};

impl Candidate<'_> {
    /// See [`Layout::sums`].
    pub fn sums(
        &self,
        timeline: &Timeline,
        cut: &[Range<usize>],
        device_of: &[usize],
        workers: &[usize],
    ) -> [f64; 2] {
        if self.request.replication.replicas == 1 {
            return [0.0; 2];
        }
        let mut gradients: Vec<Gradients> = (cut.iter().zip(device_of))
            .map(|(part, &device)| Gradients {
                device,
                bytes: self.request.weights.of_stage(part.clone()).gradients as f64,
                complete: [0.0; 2],
                layers: part.len(),
            })
            .collect();
        let spans = timeline.spans().iter();
        for span in spans.filter(|span| span.action.op.adds_gradient()) {
            gradients[span.action.stage].complete = [span.start, span.end];
        }
        self.layout(workers).sums(&gradients)
    }

    pub fn layout(&self, workers: &[usize]) -> Layout {
        let request = self.request;
        let (link, all) = (request.link, request.workers.len());
        Layout::new(request.replication, link, all, workers)
    }

    /// What the step consists of, with the transfers apart from other waits.
    pub fn parts(&self, found: &Found) -> StepParts {
        let parts = found.parts;
        if self.request.cores.is_some() {
            return parts;
        }
        let Found {
            schedule,
            cut,
            workers,
            stages,
            ..
        } = found;
        let costs = self.costs(1, schedule, cut, workers, stages);
        let free = costs.with_links(Vec::new()).with_portals(Vec::new());
        let makespan = simulate(schedule, &free).map_or(0.0, |timeline| timeline.makespan());
        let waiting = (makespan - parts.compute).clamp(0.0, parts.waiting);
        StepParts {
            waiting,
            transfers: parts.waiting - waiting,
            ..parts
        }
    }
}
