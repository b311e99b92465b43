//! Beam search: the likeliest of several texts that go on side by side.

use gpipe_report::numbers;

use super::Generator;
use crate::error::{Error, Result};
use crate::machine;

/// Positions that caches have room for at first; it doubles when it is used up (`gpipe_tensor::ops::KeyValueCache`).
const ROOM: usize = 64;

/// A text that beam search has found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Beam {
    /// The tokens after the prompt, with the one that ends them.
    pub tokens: Vec<u32>,
    /// ln of the probability of all of them.
    pub log_probability: f64,
}

impl Beam {
    /// What texts are compared by: the mean over their tokens, so that longer ones are not worse.
    fn mean(&self) -> f64 {
        self.log_probability / self.tokens.len().max(1) as f64
    }
}

/// A text with one token more.
struct Candidate {
    row: usize,
    token: u32,
    log_probability: f64,
}

impl Generator {
    /// Continues the only prompt by beam search: of all texts with one token more, the `beams` likeliest go
    /// on. Texts that end are compared by the mean of ln of their tokens' probabilities, and the search is
    /// over when none that goes on can be better (`generate(num_beams)` of the library transformers, with
    /// a length penalty of 1).
    ///
    /// # Errors
    /// [`Error::Invalid`] for several prompts, no beam or no token, and more beams than there is memory for; [`Error::Run`] as
    /// [`next_tokens`](Self::next_tokens).
    pub fn beam_search(mut self, beams: usize) -> Result<Beam> {
        self.agree(Some(beams))?;
        for (flag, number) in [("--beams", beams), ("--tokens", self.generation.tokens)] {
            if number == 0 {
                let fault = format!("{flag} 0: use a whole number from 1 up");
                return Err(Error::invalid(fault));
            }
        }
        if self.rows.len() != 1 {
            return Err(Error::invalid(format!(
                "--beams {beams} with {} prompts: use one --prompt",
                self.rows.len()
            )));
        }
        let prompt = self.rows[0].tokens.len();
        let mut sums = vec![0.0];
        let mut ended: Vec<Beam> = Vec::new();
        let better = |a: &Beam, b: &Beam| b.mean().total_cmp(&a.mean());
        for length in 1..=self.generation.tokens {
            // Enough that `beams` go on however many end.
            let count = beams.saturating_mul(1 + self.generation.ends.len());
            let mut all = self.candidates(&sums, count)?;
            if length == 1 {
                self.check_beams(beams, count)?;
            }
            let ends = |one: &Candidate| self.generation.ends.contains(&one.token);
            let text = |one: &Candidate| {
                let mut tokens = self.rows[one.row].tokens[prompt..].to_vec();
                tokens.push(one.token);
                Beam {
                    tokens,
                    log_probability: one.log_probability,
                }
            };
            ended.extend(all.iter().take(beams).filter(|one| ends(one)).map(text));
            ended.sort_by(better);
            ended.truncate(beams);
            all.retain(|one| !ends(one));
            all.truncate(beams);
            let Some(best) = all.first().map(|one| one.log_probability) else {
                break;
            };
            let worst = ended.get(beams - 1).map(Beam::mean);
            if worst.is_some_and(|worst| worst >= best / length as f64) {
                break;
            }
            if length == self.generation.tokens {
                ended.extend(all.iter().map(text));
                break;
            }
            self.go_on(&all)?;
            sums = all.iter().map(|one| one.log_probability).collect();
        }
        ended.sort_by(better);
        let found = ended.into_iter().next();
        found.ok_or_else(|| Error::run("beam search has found no text"))
    }

    /// Refuses more beams than this machine has memory for, after the pass of the prompt: each text has a copy of the caches,
    /// while they change places another one, and scores and `candidates` for its next token.
    fn check_beams(&mut self, beams: usize, candidates: usize) -> Result<()> {
        let (vocab, row) = (self.vocab, &self.rows[0]);
        // There are no more texts than ways to choose their tokens.
        let passes = u32::try_from(self.generation.tokens - 1).unwrap_or(u32::MAX);
        let texts = vocab.saturating_pow(passes).min(beams) as u64;
        let positions = (row.tokens.len().saturating_add(self.generation.tokens)).min(self.context);
        let room = |all: usize| {
            all.checked_next_power_of_two()
                .unwrap_or(usize::MAX)
                .max(ROOM)
        };
        let [now, then] = [row.cached, positions].map(|all| room(all) as u64);
        let caches = self
            .run
            .pipeline
            .gather(|_, stage| Ok::<_, gpipe_remat::Error>(stage.cache_bytes() as u64))
            .map_err(Error::run)?;
        let caches = caches.iter().sum::<u64>().saturating_mul(then / now);
        // Of a candidate also its token and probability before all are sorted.
        let candidates = candidates.min(vocab) * (size_of::<Candidate>() + size_of::<(u32, f64)>());
        let scores = 2 * size_of::<f32>() * vocab;
        let each = (caches.saturating_mul(2)).saturating_add((scores + candidates) as u64);
        let memory = machine::memory_to_come().unwrap_or(u64::MAX);
        if texts.saturating_mul(each) > memory {
            return Err(Error::invalid(format!(
                "--beams {beams} need {}, more than this machine has: use --beams {} or fewer, or fewer --tokens",
                numbers::bytes(texts.saturating_mul(each)),
                (memory / each.max(1)).max(1)
            )));
        }
        Ok(())
    }

    /// The `count` likeliest texts with one token more than the rows, whose probabilities have these
    /// logarithms; the likeliest first, of equals that of the lowest row and token.
    fn candidates(&mut self, sums: &[f64], count: usize) -> Result<Vec<Candidate>> {
        let rows = self.pass(move |_, scores| likeliest(scores, count))?;
        let rows = rows.into_iter().zip(sums).enumerate();
        let mut all: Vec<Candidate> = rows
            .flat_map(|(row, (tokens, sum))| {
                tokens.into_iter().map(move |(token, ln)| Candidate {
                    row,
                    token,
                    log_probability: sum + ln,
                })
            })
            .collect();
        // Stable: candidates of a row are in their order already.
        all.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability));
        all.truncate(count);
        Ok(all)
    }

    /// The rows become these texts, with the caches of those that they continue.
    fn go_on(&mut self, texts: &[Candidate]) -> Result<()> {
        let rows = texts.iter().map(|one| {
            let mut row = self.rows[one.row].clone();
            row.tokens.push(one.token);
            row
        });
        self.rows = rows.collect();
        self.reorder(texts.iter().map(|one| one.row).collect())
    }
}

/// The `count` likeliest tokens with ln of their probabilities; `None` if a score is not finite.
fn likeliest(scores: &[f32], count: usize) -> Option<Vec<(u32, f64)>> {
    if scores.iter().any(|score| !score.is_finite()) {
        return None;
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // The sum makes 0 of −0, which is no less.
    let score = |token: usize| scores[token] + 0.0;
    let likelier = |&a: &usize, &b: &usize| score(b).total_cmp(&score(a)).then(a.cmp(&b));
    if count < order.len() {
        order.select_nth_unstable_by(count, likelier);
        order.truncate(count);
    }
    order.sort_unstable_by(likelier);
    let best = f64::from(scores[*order.first()?]);
    let total: f64 = scores.iter().map(|&s| (f64::from(s) - best).exp()).sum();
    let of = |token: usize| f64::from(scores[token]) - best - total.ln();
    Some(
        order
            .into_iter()
            .map(|token| (token as u32, of(token)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_are_in_the_order_of_their_tokens() {
        let found = likeliest(&[-1.0, -0.0, 0.0, -0.0], 3).unwrap();
        let tokens: Vec<u32> = found.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [1, 2, 3]);
        assert!(found.iter().all(|(_, ln)| *ln == found[0].1));
    }
}
