//! The policy `budget:BYTES`: the least recomputation with which a stage fits.
//!
//! A stage's layers are divided into kept layers and runs that are recomputed from their input. The
//! recomputed work is a sum over the layers, and so, nearly, are the bytes: those held of a micro-batch
//! are a sum over kept layers and inputs of runs, and the peak of an action is that of one run plus the
//! bytes that the runs before it hold. So the best choices for the first n layers follow from those for
//! fewer layers ([`search`]), if all choices are remembered that are Pareto-optimal in work, bytes held
//! and peak bytes. A buffer that two layers share makes the sums slightly too small. Each resulting choice
//! is replayed to the byte, from the least work up, until one fits. Several tensors of one buffer, as after a
//! [`Fork`](gpipe_layers::layers::Fork), can make the sums too large; if no choice is left, that of the fewest bytes
//! is tried.

use std::ops::Range;
use std::sync::Arc;

use gpipe_sched::Schedule;

use super::chain::Chain;
use super::in_flight::InFlight;
use super::search::search;
use crate::cut::is_cut;
use crate::memory::activations::activations;
use crate::{Bytes, Error, ModelCosts, ParameterBytes, Result, Retained, RetainedRun, StageMemory};

/// Most choices followed at each boundary. Models of few kinds of layers have far fewer; with hundreds
/// of different layers on one stage an unlimited search would take minutes.
pub(crate) const EXACT: usize = 4096;
/// The same for searches over thousands of stages, at slightly more recomputation.
pub(crate) const QUICK: usize = 48;

/// The tensors that each stage keeps under the limit; the error of the stage that needs the most where some do not fit.
pub(crate) fn stages(
    weights: &ParameterBytes,
    costs: &ModelCosts,
    cut: &[Range<usize>],
    schedule: &Schedule,
    limit: Bytes,
) -> Result<Vec<Retained>> {
    let of_stage = |(stage, part): (usize, &Range<usize>)| {
        let place = StageContext {
            costs,
            schedule,
            stage,
            part: part.clone(),
            fixed: weights.of_stage(part.clone()),
        };
        let cheapest = place.cheapest(limit.0, EXACT);
        // Where several tensors share a buffer, the search may take a choice that fits for one that does not.
        cheapest.map_or_else(|| within(&place, limit), Ok)
    };
    let (mut kept, mut worst) = (Vec::new(), None);
    for choice in cut.iter().enumerate().map(of_stage) {
        match choice {
            Ok(choice) => kept.push(choice),
            Err(misfit) => {
                let other = worst.get_or_insert(misfit);
                if misfit.needed > other.needed {
                    *other = misfit;
                }
            }
        }
    }
    match worst {
        None => Ok(kept),
        Some(Misfit {
            stage,
            needed,
            fixed,
        }) => Err(Error::Budget {
            stage,
            needed,
            fixed,
            budget: limit,
        }),
    }
}

/// A stage that does not fit, whatever it keeps.
#[derive(Clone, Copy)]
struct Misfit {
    stage: usize,
    needed: Bytes,
    fixed: Bytes,
}

/// The choice of the fewest bytes, if those are within the limit.
fn within(place: &StageContext<'_>, limit: Bytes) -> std::result::Result<Retained, Misfit> {
    let (least, kept) = place.smallest();
    match least <= limit.0 {
        true => Ok(kept),
        false => Err(Misfit {
            stage: place.stage,
            needed: Bytes(least),
            fixed: Bytes(place.fixed.fixed()),
        }),
    }
}

/// Cross-checks the numbers of layers, stages and micro-batches of the parts.
pub(crate) fn check_parts(
    weights: &ParameterBytes,
    costs: &ModelCosts,
    cut: &[Range<usize>],
    schedule: &Schedule,
) -> Result<()> {
    let layers = costs.layers();
    let fits = weights.layers() == layers
        && cut.len() == schedule.stages()
        && costs.micro_batches() == schedule.micro_batches();
    if is_cut(cut, layers) && fits {
        return Ok(());
    }
    if fits {
        return Err(Error::Assembly(format!(
            "the parts of the cut are not those of a model of {layers} layers: give ranges in order, the first from 0, each \
             from the end of the one before, the last to {layers}, none empty"
        )));
    }
    Err(Error::Assembly(format!(
        "costs of {layers} layers and {} micro-batches, weights of {} layers, a cut into {} parts and \
         a schedule of {} stages and {} micro-batches do not belong together: make all of them of the same layers, stages \
         and micro-batches",
        costs.micro_batches(),
        weights.layers(),
        cut.len(),
        schedule.stages(),
        schedule.micro_batches(),
    )))
}

/// The search for the choice of one stage.
pub(crate) struct StageContext<'a> {
    pub costs: &'a ModelCosts,
    pub schedule: &'a Schedule,
    pub stage: usize,
    /// Its layers.
    pub part: Range<usize>,
    /// All bytes except activations.
    pub fixed: StageMemory,
}

impl StageContext<'_> {
    /// The peak of the stage under this choice.
    pub fn peak(&self, kept: &Retained) -> u64 {
        StageMemory {
            activations: activations(
                self.costs,
                &self.part,
                self.schedule,
                self.stage,
                true,
                |_| kept,
            ),
            ..self.fixed
        }
        .peak()
    }

    /// The choice with the least work that fits the limit, if any; follows at most `most` choices.
    pub fn cheapest(&self, limit: u64, most: usize) -> Option<Retained> {
        let available = limit.checked_sub(self.fixed.fixed())?;
        if self.fixed.ties > available {
            return None;
        }
        if self.peak(&Retained::Everything) <= limit {
            return Some(Retained::Everything);
        }
        let mut choices = search(&self.chain(), &self.in_flight(), available, most, |layer| {
            let cost = &self.costs.of(0)[layer];
            [cost.forward, cost.recomputed()]
        });
        choices.sort_by_key(|choice| (choice.work, choice.held));
        let mut tried = choices.into_iter().map(|choice| self.kept(&choice.runs));
        tried.find(|kept| self.peak(kept) <= limit)
    }

    /// The fewest bytes with which the stage fits under any choice.
    pub fn least(&self) -> u64 {
        self.smallest().0
    }

    /// The choice of the fewest bytes, and those.
    fn smallest(&self) -> (u64, Retained) {
        let rules = (1..=self.part.len()).map(|run| Retained::Inputs { run });
        let rules = rules
            .chain([Retained::Everything])
            .map(|kept| (self.peak(&kept), kept));
        let fewest = rules.min_by_key(|(peak, _)| *peak);
        let mut least = fewest.unwrap_or((0, Retained::Everything));
        let (chain, in_flight) = (self.chain(), self.in_flight());
        // Each round finds all choices that could be better; the replay decides.
        while let Some(below) = least.0.checked_sub(self.fixed.fixed().saturating_add(1)) {
            let choices = search(&chain, &in_flight, below, EXACT, |_| [0; 2]);
            let choices = choices.iter().map(|choice| self.kept(&choice.runs));
            let peaks = choices.map(|kept| (self.peak(&kept), kept));
            match peaks.min_by_key(|(peak, _)| *peak) {
                Some(better) if better.0 < least.0 => least = better,
                _ => break,
            }
        }
        least
    }

    /// The fewest bytes of the simplest choices: often the least, and quickly found.
    pub fn simplest(&self) -> u64 {
        let lengths = std::iter::successors(Some(1_usize), |run| run.checked_mul(2));
        let lengths = lengths.take_while(|&run| run < 2 * self.part.len());
        let rules = lengths.map(|run| Retained::Inputs { run });
        let peaks = rules
            .chain([Retained::Everything])
            .map(|kept| self.peak(&kept));
        peaks.min().unwrap_or(0)
    }

    /// The numbers of the smallest micro-batch: a limit that it exceeds, all exceed.
    fn chain(&self) -> Chain<'_> {
        let micro_batches = 0..self.costs.micro_batches();
        let smallest = micro_batches.min_by_key(|&m| self.costs.samples(m));
        let has_loss = self.stage + 1 == self.schedule.stages();
        let InFlight { split, whole, .. } = self.in_flight();
        let chain = |split| {
            let part = self.part.clone();
            Chain::new(self.costs, smallest.unwrap_or(0), part, has_loss, split)
        };
        match split && whole {
            true => chain(true).with_whole(chain(false)),
            false => chain(split),
        }
    }

    fn in_flight(&self) -> InFlight {
        InFlight::new(self.schedule.of_stage(self.stage))
    }

    /// The choice from runs of layers, numbered in the model.
    fn kept(&self, runs: &[RetainedRun]) -> Retained {
        let mut merged: Vec<RetainedRun> = Vec::with_capacity(runs.len());
        // The layers before the chain have no backward pass, and nothing to keep.
        let first = runs.first().map_or(self.part.end, |run| run.layers.start);
        let frozen = RetainedRun {
            layers: self.part.start..first,
            kept: true,
        };
        let frozen = (!frozen.layers.is_empty()).then_some(frozen);
        for run in frozen.iter().chain(runs) {
            let layers = run.layers.start - self.part.start..run.layers.end - self.part.start;
            match merged.last_mut() {
                Some(last) if last.kept && run.kept => last.layers.end = layers.end,
                _ => merged.push(RetainedRun {
                    layers,
                    kept: run.kept,
                }),
            }
        }
        if merged.iter().all(|run| run.kept) {
            return Retained::Everything;
        }
        Retained::Runs(Arc::from(merged))
    }
}
