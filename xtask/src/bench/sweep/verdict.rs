//! What follows from the rounds.

use std::fmt;

use anyhow::Context as _;
use serde_json::Value;

use super::super::summary::Summary;
use super::way::Way;

/// The runs of one way so far.
pub struct Runs {
    pub way: Way,
    /// The same number for all ways that do the same work.
    pub work: usize,
    /// Seconds of a step as they were predicted before the first round.
    pub on_paper: f64,
    pub rounds: Vec<Round>,
    /// Whether every stage held, at its most, as many bytes as were predicted.
    pub bytes: bool,
}

/// One of them.
pub struct Round {
    /// Which round, from 1.
    pub round: usize,
    /// Seconds of a step, by the layers as they were measured in the same minute.
    pub predicted: f64,
    pub measured: f64,
}

impl Runs {
    pub fn new(way: Way, work: usize, on_paper: f64) -> Self {
        Self {
            way,
            work,
            on_paper,
            rounds: Vec::new(),
            bytes: true,
        }
    }

    fn of_round(&self, round: usize) -> Option<f64> {
        let mut rounds = self.rounds.iter().filter(|run| run.round == round);
        rounds.next().map(|run| run.measured)
    }
}

/// Seconds of a step of each way, in all rounds as fast as the machine was in the first: the median of
/// the way's rounds, and of all ways that do the same work.
pub fn seconds(runs: &[Runs]) -> Vec<f64> {
    let last = rounds(runs);
    let factors: Vec<f64> = (1..=last).map(|round| factor(runs, round, last)).collect();
    let of_work = |work: usize| {
        let of_work = runs.iter().filter(|run| run.work == work);
        let rounds = of_work.flat_map(|run| &run.rounds);
        let seconds: Vec<f64> = rounds
            .map(|run| run.measured * factors[run.round - 1])
            .collect();
        Summary::of(&seconds).map_or(f64::INFINITY, |seconds| seconds.median)
    };
    runs.iter().map(|run| of_work(run.work)).collect()
}

fn rounds(runs: &[Runs]) -> usize {
    let all = runs.iter().flat_map(|run| &run.rounds);
    all.map(|run| run.round).max().unwrap_or(0)
}

/// How many times faster a round was than the first, by the ways that came as far as the last.
fn factor(runs: &[Runs], round: usize, last: usize) -> f64 {
    let finalists = runs.iter().filter(|run| run.of_round(last).is_some());
    let ratios: Vec<f64> = finalists
        .filter_map(|run| Some(run.of_round(1)? / run.of_round(round)?))
        .collect();
    Summary::of(&ratios).map_or(1.0, |ratios| ratios.median)
}

/// What became of one way.
struct Outcome<'a> {
    runs: &'a Runs,
    /// As [`seconds`] says.
    seconds: f64,
    /// The median of the predictions.
    predicted: f64,
    /// Predicted over measured of the same minute, the median of the rounds.
    ratio: f64,
    is_pick: bool,
}

/// What became of all of them.
pub struct Verdict<'a> {
    /// The fastest first.
    outcomes: Vec<Outcome<'a>>,
    /// How many predictions are lower than each one's, plus one.
    planned: Vec<usize>,
    /// How far those lie apart in the first round that do the same work.
    noise: Option<Summary>,
    /// How many rounds the fastest ways were run.
    rounds: usize,
}

impl<'a> Verdict<'a> {
    /// Of ways of which the first is the planner's.
    ///
    /// # Errors
    /// If one was never run.
    pub fn of(runs: &'a [Runs]) -> anyhow::Result<Self> {
        let outcome = |(index, (runs, seconds)): (usize, (&'a Runs, f64))| {
            let median = |of_round: fn(&Round) -> f64| {
                let all: Vec<f64> = runs.rounds.iter().map(of_round).collect();
                let summary = Summary::of(&all).context("a way that was never run")?;
                anyhow::Ok(summary.median)
            };
            Ok(Outcome {
                runs,
                seconds,
                predicted: median(|run| run.predicted)?,
                ratio: median(|run| run.predicted / run.measured)?,
                is_pick: index == 0,
            })
        };
        let all = runs.iter().zip(seconds(runs)).enumerate().map(outcome);
        let mut outcomes: Vec<Outcome<'_>> = all.collect::<anyhow::Result<_>>()?;
        outcomes.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let sooner = |one: &Outcome<'_>| {
            let sooner = outcomes.iter().filter(|o| o.predicted < one.predicted);
            sooner.count() + 1
        };
        Ok(Self {
            planned: outcomes.iter().map(sooner).collect(),
            noise: noise(runs),
            rounds: rounds(runs),
            outcomes,
        })
    }

    /// How much longer the planner's choice takes than the best, as a share.
    fn regret(&self) -> Option<f64> {
        let pick = self.outcomes.iter().find(|outcome| outcome.is_pick)?;
        Some(pick.seconds / self.outcomes.first()?.seconds - 1.0)
    }

    /// An object for each way.
    pub fn json(&self, model: &str) -> Vec<Value> {
        let line = |outcome: &Outcome<'_>| {
            serde_json::json!({
                "kind": "bench",
                "family": "plan",
                "model": model,
                "workers": outcome.runs.way.workers,
                "flags": outcome.runs.way.flags,
                "predicted_seconds": outcome.predicted,
                "predicted_over_measured": outcome.ratio,
                "median_seconds": outcome.seconds,
                "rounds": outcome.runs.rounds.len(),
                "work": outcome.runs.work,
                "bytes_as_predicted": outcome.runs.bytes,
                "pick": outcome.is_pick,
            })
        };
        self.outcomes.iter().map(line).collect()
    }
}

/// Of each kind of work that several ways do, how much longer the slowest takes than the fastest.
fn noise(runs: &[Runs]) -> Option<Summary> {
    let of_work = |work: usize| {
        let ways = runs.iter().filter(|run| run.work == work);
        let seconds: Vec<f64> = ways.filter_map(|run| run.of_round(1)).collect();
        let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = seconds.iter().copied().fold(0.0, f64::max);
        (seconds.len() > 1).then(|| most / least - 1.0)
    };
    let apart: Vec<f64> = (0..runs.len()).filter_map(of_work).collect();
    Summary::of(&apart)
}

/// A line for each, the fastest first, and what follows from them.
impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "rank  planned  workers  rounds  measured s  predicted s  ratio  bytes"
        )?;
        let (mut ratios, mut equal) = (Vec::new(), 0);
        for (index, outcome) in self.outcomes.iter().enumerate() {
            let Outcome { runs, ratio, .. } = outcome;
            ratios.push(*ratio);
            equal += usize::from(runs.bytes);
            writeln!(
                f,
                "{:>4}  {:>7}  {:>7}  {:>6}  {:>10.4}  {:>11.4}  {ratio:>5.3}  {:<5}  {}{}",
                index + 1,
                self.planned[index],
                runs.way.workers,
                runs.rounds.len(),
                outcome.seconds,
                outcome.predicted,
                if runs.bytes { "equal" } else { "not" },
                runs.way.flags.join(" "),
                if outcome.is_pick {
                    "  < the planner's"
                } else {
                    ""
                },
            )?;
        }
        ratios.sort_by(f64::total_cmp);
        let within = ratios.iter().filter(|&&r| (r - 1.0).abs() <= 0.1).count();
        let at = |tenths: usize| ratios[(ratios.len() - 1) * tenths / 10];
        if !ratios.is_empty() {
            writeln!(
                f,
                "predicted over measured: {:.3}, {:.3}, {:.3} at the 10th, 50th and 90th percentile, \
                 {within} of {} within 10 %; bytes equal in {equal}",
                at(1),
                at(5),
                at(9),
                ratios.len(),
            )?;
        }
        if let Some(noise) = &self.noise {
            writeln!(
                f,
                "ways that do the same work lie {:.1} % apart in the first round, the median of {} kinds \
                 of work, and count as one",
                100.0 * noise.median,
                noise.count
            )?;
        }
        if let Some(regret) = self.regret() {
            writeln!(
                f,
                "the planner's choice takes {:.1} % more than the best of all, by the medians of up to {} \
                 rounds",
                100.0 * regret,
                self.rounds
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(work: usize, rounds: &[(f64, f64)]) -> Runs {
        let way = Way {
            workers: 2,
            flags: vec!["--stages".into(), "2".into()],
        };
        let mut runs = Runs::new(way, work, 0.0);
        for (index, &(predicted, measured)) in rounds.iter().enumerate() {
            runs.rounds.push(Round {
                round: index + 1,
                predicted,
                measured,
            });
        }
        runs
    }

    #[test]
    fn the_choice_is_compared_with_the_best() {
        let all = [runs(0, &[(1.0, 1.04)]), runs(1, &[(1.05, 1.0)])];
        let table = Verdict::of(&all).unwrap().to_string();
        assert!(table.contains("takes 4.0 % more than the best"), "{table}");
        assert!(
            table.contains("2 of 2 within 10 %; bytes equal in 2"),
            "{table}"
        );
        let second = table.lines().nth(2).unwrap();
        assert!(
            second.starts_with(
                "   2        1        2       1      1.0400       1.0000  0.962  equal"
            ),
            "{second}"
        );
    }

    #[test]
    fn rounds_are_compared_at_the_speed_of_the_first() {
        // The machine is half as fast in the second round, which the last way does not take.
        let all = [
            runs(0, &[(1.0, 1.1), (2.0, 2.2), (1.0, 1.1)]),
            runs(1, &[(1.0, 1.0), (2.0, 2.0), (1.0, 1.2)]),
            runs(2, &[(1.0, 1.5)]),
        ];
        let found = seconds(&all);
        assert!((found[0] - 1.1).abs() < 1e-9 && (found[1] - 1.0).abs() < 1e-9);
        assert_eq!(found[2], 1.5);
    }

    #[test]
    fn ways_that_do_the_same_work_count_as_one() {
        let all = [
            runs(0, &[(1.0, 1.0)]),
            runs(1, &[(1.0, 0.9)]),
            runs(1, &[(1.0, 1.08)]),
        ];
        assert_eq!(seconds(&all)[1..], [0.99, 0.99]);
        let table = Verdict::of(&all).unwrap().to_string();
        assert!(table.contains("lie 20.0 % apart"), "{table}");
        assert!(table.contains("takes 1.0 % more"), "{table}");
    }
}
