//! Choice of the layers to keep: all Pareto-optimal choices, by dynamic programming over the layers.

use super::chain::Chain;
use super::in_flight::{InFlight, Others};
use crate::RetainedRun;

/// Runs that cover the stage's layers, and their costs.
#[derive(Debug)]
pub(crate) struct Choice {
    pub runs: Vec<RetainedRun>,
    /// Work that is recomputed.
    pub work: u64,
    /// Bytes held of a micro-batch between its passes.
    pub held: u64,
}

/// A choice for the layers before a boundary.
#[derive(Clone, Copy, Debug)]
struct State {
    work: u64,
    held: u64,
    /// Bytes of the flow at this boundary among them.
    output: u64,
    /// The peak of the forward passes so far, without other micro-batches.
    forward: u64,
    /// The peak of the backward passes so far.
    back: u64,
    /// The first layer of the last run, whether it is kept, and the state before it.
    start: usize,
    kept: bool,
    before: usize,
}

/// The Pareto-optimal choices within `available` bytes of activations. `work` is the cost of recomputing
/// each layer, before others and as the last one of a run. At most `most` choices are followed at each boundary.
pub(crate) fn search(
    chain: &Chain<'_>,
    in_flight: &InFlight,
    available: u64,
    most: usize,
    work: impl Fn(usize) -> [u64; 2],
) -> Vec<Choice> {
    let part = chain.part.clone();
    let mut places: Vec<Vec<State>> = vec![Vec::new(); part.len() + 1];
    places[0].push(State {
        work: 0,
        held: 0,
        output: 0,
        forward: 0,
        back: 0,
        start: part.start,
        kept: true,
        before: 0,
    });
    let alike = in_flight.forward == in_flight.back;
    for layer in part.clone() {
        let place = layer - part.start;
        thin(&mut places[place], most);
        let (done, open) = places.split_at_mut(place + 1);
        let states = &done[place];
        if states.is_empty() {
            continue;
        }
        let fits = |state: &State| fits(in_flight, chain, available, state);
        let mut put = |end: usize, mut state: State| {
            if alike {
                state.forward = state.forward.max(state.back);
                state.back = state.forward;
            }
            let fits = fits(&state);
            if fits {
                open[end - layer - 1].push(state);
            }
            fits
        };
        let single = chain.single(layer);
        for (before, state) in states.iter().enumerate() {
            let shared = state.output.min(single.input);
            let seen = state.held.saturating_sub(state.output);
            put(
                layer + 1,
                State {
                    held: state
                        .held
                        .saturating_add(single.saved)
                        .saturating_sub(shared),
                    output: single.output,
                    forward: state.forward.max(seen.saturating_add(single.forward)),
                    back: state.back.max(
                        state
                            .held
                            .saturating_sub(shared)
                            .saturating_add(single.back),
                    ),
                    start: layer,
                    kept: true,
                    before,
                    ..*state
                },
            );
        }
        let runs = chain.runs(layer);
        let mut before_last = 0_u64;
        for end in layer + 1..=part.end {
            let [forward, last] = work(end - 1);
            let again = before_last.saturating_add(last);
            before_last = before_last.saturating_add(forward);
            let length = end - layer - 1;
            let mut any = false;
            for (before, state) in states.iter().enumerate() {
                let input = runs.input[length];
                // Two adjacent kept runs are one run; two recomputed ones remain two.
                let seen = state.held.saturating_sub(state.output);
                any |= put(
                    end,
                    State {
                        work: state.work.saturating_add(again),
                        held: seen.saturating_add(input),
                        output: 0,
                        forward: state.forward.max(
                            seen.saturating_add(input)
                                .saturating_add(runs.forward[length]),
                        ),
                        back: state.back.max(seen.saturating_add(runs.back[length])),
                        start: layer,
                        kept: false,
                        before,
                    },
                );
            }
            // A longer run does not need fewer bytes.
            if !any {
                break;
            }
        }
    }
    thin(&mut places[part.len()], most);
    (0..places[part.len()].len())
        .map(|index| trace(&places, part.start, index))
        .filter(|choice| !choice.runs.is_empty())
        .collect()
}

/// Whether a state can still become a choice that fits.
fn fits(in_flight: &InFlight, chain: &Chain<'_>, available: u64, state: &State) -> bool {
    let pending = chain.pending(chain.part.start);
    let within = |others: &[Others], own: u64| {
        others.iter().all(|others| {
            let remembered = others.remembered.saturating_mul(state.held);
            let waiting = others.pending.saturating_mul(pending);
            remembered.saturating_add(waiting).saturating_add(own) <= available
        })
    };
    within(
        &in_flight.forward,
        state.forward.max(state.held.saturating_add(chain.loss)),
    ) && within(&in_flight.back, state.back)
        && within(&in_flight.weight, 0)
}

/// Drops every dominated state, and thins more than `most` states out evenly from the least work to the
/// fewest bytes.
fn thin(states: &mut Vec<State>, most: usize) {
    states.sort_by_key(|s| (s.work, s.held, s.back, s.forward));
    let mut kept: Vec<State> = Vec::with_capacity(states.len());
    // Few outputs: those of a kept layer, and none.
    let mut fronts: Vec<(u64, Front)> = Vec::new();
    for state in states.drain(..) {
        let known = fronts
            .iter()
            .position(|(output, _)| *output == state.output);
        let place = known.unwrap_or_else(|| {
            fronts.push((state.output, Front::default()));
            fronts.len() - 1
        });
        if fronts[place]
            .1
            .admits([state.held, state.back, state.forward])
        {
            kept.push(state);
        }
    }
    if kept.len() > most {
        let every = kept.len().div_ceil(most);
        let last = kept.pop();
        kept = kept.into_iter().step_by(every).chain(last).collect();
    }
    *states = kept;
}

/// Bytes held, of the backward and of the forward passes, none of which are at least another's in all three: by the bytes
/// held, ascending.
#[derive(Default)]
struct Front(Vec<[u64; 3]>);

impl Front {
    /// Adds these bytes unless others are at most as many in all three.
    fn admits(&mut self, new: [u64; 3]) -> bool {
        let [held, back, forward] = new;
        let end = self.0.partition_point(|other| other[0] <= held);
        // Those that hold nearly as much have the smallest peaks.
        let mut fewer = self.0[..end].iter().rev();
        if fewer.any(|other| other[1] <= back && other[2] <= forward) {
            return false;
        }
        let first = self.0.partition_point(|other| other[0] < held);
        let mut at = 0;
        self.0.retain(|other| {
            at += 1;
            at <= first || other[1] < back || other[2] < forward
        });
        self.0.insert(first, new);
        true
    }
}

/// The runs that led to a state at the end.
fn trace(places: &[Vec<State>], first: usize, index: usize) -> Choice {
    let mut place = places.len() - 1;
    let state = &places[place][index];
    let (work, held) = (state.work, state.held);
    let mut runs = Vec::new();
    let mut index = index;
    while place > 0 {
        let state = &places[place][index];
        runs.push(RetainedRun {
            layers: state.start..first + place,
            kept: state.kept,
        });
        index = state.before;
        place = state.start - first;
    }
    runs.reverse();
    Choice { runs, work, held }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every state that an earlier one does not beat is kept, and no other.
    #[test]
    fn dominated_states_are_dropped() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut dropped = 0;
        for round in 0..400 {
            let is_alike = round % 2 == 0;
            let states = (0..random(60)).map(|before| {
                let back = random(12);
                State {
                    work: random(6),
                    held: random(12),
                    output: random(2),
                    forward: if is_alike { back } else { random(12) },
                    back,
                    start: 0,
                    kept: true,
                    before: before as usize,
                }
            });
            let mut states: Vec<State> = states.collect();
            let mut sorted = states.clone();
            sorted.sort_by_key(|s| (s.work, s.held, s.back, s.forward));
            let mut expected: Vec<State> = Vec::new();
            for state in sorted {
                let beats = |other: &State| {
                    other.output == state.output
                        && other.held <= state.held
                        && other.back <= state.back
                        && other.forward <= state.forward
                };
                match expected.iter().any(beats) {
                    true => dropped += 1,
                    false => expected.push(state),
                }
            }
            thin(&mut states, usize::MAX);
            let numbers =
                |states: &[State]| states.iter().map(|s| s.before).collect::<Vec<usize>>();
            assert_eq!(numbers(&states), numbers(&expected));
        }
        assert!(dropped > 1000, "{dropped}");
    }
}
