//! The least memory with which a candidate has a plan.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use gpipe_partition::search::pack;

use super::candidate::Candidate;

impl Candidate<'_> {
    /// The least memory per worker with which some cut fits, if that is less than `best`: within a hundredth of it, or to
    /// the byte where there are few layers. `None` also if every cut is over a budget.
    pub fn least_memory(&self, above: u64, best: Option<u64>) -> Option<u64> {
        let (layers, stages) = (self.layers(), self.stages());
        let chunks = self.order.chunks as u64;
        let known: RefCell<HashMap<(usize, usize, usize), Option<u64>>> = RefCell::default();
        let least = |stage: usize, part: &Range<usize>| {
            let key = (stage, part.start, part.end);
            if let Some(&known) = known.borrow().get(&key) {
                return known;
            }
            let least = self.chooser.least(stage, part);
            known.borrow_mut().insert(key, least);
            least
        };
        let pack = |limit: u64| -> Option<Vec<Range<usize>>> {
            let fits = |stage, part: &Range<usize>| least(stage, part).is_some_and(|n| n <= limit);
            if let Some(cut) = &self.request.cut {
                let mut parts = cut.iter().enumerate();
                return parts
                    .all(|(stage, part)| fits(stage, part))
                    .then(|| cut.clone());
            }
            let ends = pack(0..layers, stages, |stage, part| fits(stage, &part))?;
            let starts = [0].into_iter().chain(ends.iter().copied());
            Some(starts.zip(&ends).map(|(start, &end)| start..end).collect())
        };
        let fits = |limit: u64| pack(limit).is_some();
        let width = |high: u64| match self.chooser.is_small() {
            true => 1,
            false => (high / 100).max(1),
        };
        let mut low = above / chunks;
        let mut high = low.max(1 << 20);
        match best.map(|best| best / chunks) {
            Some(best) => {
                high = best.saturating_sub(width(best));
                if !fits(high) {
                    return None;
                }
            }
            None => {
                while high < 1 << 62 && !fits(high) {
                    (low, high) = (high, 2 * high);
                }
                if high >= 1 << 62 && !fits(u64::MAX) {
                    return None;
                }
            }
        }
        while high.saturating_sub(low) > width(high) {
            let middle = low + (high - low) / 2;
            match fits(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        let memory = high.saturating_mul(chunks).max(above.saturating_add(1));
        let Some(cut) = pack(memory / chunks) else {
            return Some(memory);
        };
        self.memory_of(&cut, memory)
    }

    /// The memory per worker, from this on, with which a cut fits as it is planned: the search for what a stage keeps may
    /// miss the choice of the fewest bytes, and a schedule that follows the costs may hold more micro-batches.
    fn memory_of(&self, cut: &[Range<usize>], mut memory: u64) -> Option<u64> {
        /// A hundredth more each: a hundred times the memory.
        const ROUNDS: usize = 460;
        let workers: Vec<usize> = (0..self.schedule.devices()).collect();
        for _ in 0..ROUNDS {
            let request = self.request.with_memory(memory);
            let (schedule, costed) = (self.schedule.clone(), self.costed.clone());
            let candidate = Candidate::new(&request, self.order, schedule, costed);
            if memory == u64::MAX || candidate.evaluate(cut, &workers, &mut 0).is_some() {
                return Some(memory);
            }
            memory = memory.saturating_add((memory / 100).max(1));
        }
        None
    }
}
