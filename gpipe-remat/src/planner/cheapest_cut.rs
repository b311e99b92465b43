//! The least cost of a cut, where each stage has a price for its forward pass and its gradients.

use std::collections::VecDeque;

use super::stage_bounds::{StageBounds, Thirds};

/// The least cost of any cut in which every stage fits and none is too long; infinite if there is none.
///
/// Dynamic programming over stages and ends. The cost of a stage is a difference of prefix sums, plus what
/// it recomputes, which is zero or another such difference. So the best start of a stage is a minimum
/// over one of two windows that only move forward, and the effort is proportional to stages times layers.
pub(super) fn least(room: &StageBounds<'_>, prices: &Thirds) -> f64 {
    let (layers, stages) = (room.layers(), prices.len());
    let mut before = vec![f64::INFINITY; layers + 1];
    before[0] = 0.0;
    for (stage, price) in prices.iter().enumerate() {
        let value: Vec<f64> = (0..=layers).map(|end| room.priced(price, end)).collect();
        let recompute = room.recompute(stage, price[1]);
        let (mut kept, mut forgot) = (Window::default(), Window::default());
        let mut after = vec![f64::INFINITY; layers + 1];
        // The first start that is not too long, and the first that recomputes nothing.
        let (mut first, mut keeps) = (stage, stage);
        for end in stage + 1..=layers - (stages - 1 - stage) {
            kept.push(end - 1, before[end - 1] - value[end - 1]);
            while first < end && !room.is_possible(&(first..end)) {
                first += 1;
            }
            while keeps < end && recompute.of(keeps, end) > 0.0 {
                let key = before[keeps] - value[keeps] - recompute.up_to(keeps);
                forgot.push(keeps, key);
                keeps += 1;
            }
            kept.begin(first.max(keeps));
            forgot.begin(first);
            let keeping = kept.least() + value[end];
            let forgetting = forgot.least() + value[end] + recompute.up_to(end) - recompute.free;
            after[end] = keeping.min(forgetting);
        }
        before = after;
    }
    before[layers]
}

/// The least of the keys in a window whose both ends move forward.
#[derive(Default)]
struct Window {
    /// Positions and keys, both ascending.
    keys: VecDeque<(usize, f64)>,
}

impl Window {
    fn push(&mut self, position: usize, key: f64) {
        while self.keys.back().is_some_and(|&(_, last)| last >= key) {
            self.keys.pop_back();
        }
        self.keys.push_back((position, key));
    }

    /// Removes what is before `position`.
    fn begin(&mut self, position: usize) {
        while self
            .keys
            .front()
            .is_some_and(|&(first, _)| first < position)
        {
            self.keys.pop_front();
        }
    }

    fn least(&self) -> f64 {
        self.keys.front().map_or(f64::INFINITY, |&(_, key)| key)
    }
}
