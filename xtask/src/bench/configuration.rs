//! The ways to train that are measured.

use std::fmt;

use anyhow::Context as _;

use crate::flags::Bench;

/// One way to train.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// K.
    pub stages: usize,
    /// M.
    pub micro_batches: usize,
    /// As `--schedule` takes it.
    pub schedule: String,
    /// As `--remat` takes it.
    pub remat: String,
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stages,
            micro_batches,
            schedule,
            remat,
        } = self;
        write!(f, "K={stages} M={micro_batches} {schedule} {remat}")
    }
}

impl Configuration {
    /// Whether it differs in its micro-batches at most.
    pub fn is_like(&self, other: &Self) -> bool {
        let micro_batches = self.micro_batches;
        *self
            == Self {
                micro_batches,
                ..other.clone()
            }
    }
}

/// The configurations that were asked for, or some that tell the story: what micro-batches cost,
/// what stages cost and gain, and what recomputation costs.
pub fn configurations(flags: &Bench) -> anyhow::Result<Vec<Configuration>> {
    let lists = [
        &flags.stages,
        &flags.micro_batches,
        &flags.schedules,
        &flags.remat,
    ];
    if lists.iter().all(|list| list.is_none()) {
        let story = [
            (1, 1, "gpipe", "keep"),
            (1, 4, "gpipe", "keep"),
            (1, 8, "gpipe", "keep"),
            (2, 4, "gpipe", "keep"),
            (2, 4, "1f1b", "keep"),
            (2, 4, "gpipe", "stage"),
            (2, 8, "1f1b", "stage"),
            (8, 8, "gpipe", "keep"),
        ];
        let configuration =
            |(stages, micro_batches, schedule, remat): (usize, usize, &str, &str)| Configuration {
                stages,
                micro_batches,
                schedule: schedule.into(),
                remat: remat.into(),
            };
        return Ok(story.map(configuration).to_vec());
    }
    let mut found = Vec::new();
    for stages in numbers(flags.stages.as_deref(), 1)? {
        for schedule in words(flags.schedules.as_deref(), "gpipe") {
            for remat in words(flags.remat.as_deref(), "keep") {
                for micro_batches in numbers(flags.micro_batches.as_deref(), 4)? {
                    found.push(Configuration {
                        stages,
                        micro_batches,
                        schedule: schedule.clone(),
                        remat: remat.clone(),
                    });
                }
            }
        }
    }
    Ok(found)
}

/// The words of a list.
pub fn listed(list: &str) -> Vec<String> {
    words(Some(list), "")
}

fn words(list: Option<&str>, default: &str) -> Vec<String> {
    list.unwrap_or(default)
        .split(',')
        .map(|word| word.trim().to_owned())
        .collect()
}

fn numbers(list: Option<&str>, default: usize) -> anyhow::Result<Vec<usize>> {
    let Some(list) = list else {
        return Ok(vec![default]);
    };
    let number = |word: String| {
        word.parse()
            .with_context(|| format!("`{word}` in `{list}` is no number"))
    };
    words(Some(list), "").into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_make_a_product() {
        assert_eq!(numbers(Some("1, 2,4"), 7).unwrap(), [1, 2, 4]);
        assert_eq!(numbers(None, 7).unwrap(), [7]);
        assert!(
            numbers(Some("1,x"), 7)
                .unwrap_err()
                .to_string()
                .contains("`x` in `1,x`")
        );
        let flags = Bench {
            stages: Some("1,2".into()),
            remat: Some("keep,stage".into()),
            ..bench_flags()
        };
        let names: Vec<String> = configurations(&flags)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            names,
            [
                "K=1 M=4 gpipe keep",
                "K=1 M=4 gpipe stage",
                "K=2 M=4 gpipe keep",
                "K=2 M=4 gpipe stage"
            ]
        );
        assert!(configurations(&bench_flags()).unwrap().len() > 4);
    }

    fn bench_flags() -> Bench {
        Bench {
            dtype: None,
            family: Vec::new(),
            json: false,
            model: None,
            threads: None,
            stages: None,
            micro_batches: None,
            schedules: None,
            remat: None,
            rounds: None,
            steps: None,
            parts: None,
            milliseconds: None,
            markdown: false,
            baseline: None,
            python: None,
        }
    }
}
