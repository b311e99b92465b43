//! Runs of the program beside those of PyTorch in one folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use super::numbers::{LOGITS, number};

/// How far losses may be from PyTorch's.
const LOSS: f64 = 2e-4;
/// How far gradient norms may be, as a share.
const NORM: f64 = 1e-3;
const POLICIES: [&str; 4] = ["keep", "stage", "except-last", "every:2"];
/// Which parameters decay: gpipe's options and, by the same names, the script's.
const DECAYS: [&str; 2] = ["matrices", "all"];

/// Losses and gradient norms, a step each.
type Curve = Vec<[f64; 2]>;

/// The runs of the program in a folder that the script has written.
pub struct Trial<'a> {
    pub shell: &'a Shell,
    pub program: &'a Path,
    pub python: &'a Path,
    pub script: &'a Path,
    pub here: &'a Path,
}

impl Trial<'_> {
    /// Lets the script write its folder by a task of it and train there, trains here in this many stages
    /// and every other way, and opens there what was saved here last. Gives what the script expects.
    pub fn grid(&self, task: &str, stages: &[&str]) -> anyhow::Result<Value> {
        let Trial {
            shell,
            python,
            script,
            here,
            ..
        } = *self;
        fs::create_dir(here).with_context(|| format!("making {}", here.display()))?;
        cmd!(shell, "{python} {script} {task} {here}").run()?;
        let expected = cmd!(shell, "{python} {script} train {here}").read()?;
        let expected: Value = serde_json::from_str(&expected).context("what the script printed")?;
        for decay in DECAYS {
            self.decay(decay, &reference(&expected[decay])?, stages)?;
            let saved = here.join("run/checkpoints/step-00000008/model");
            let theirs = here.join(format!("trained-{decay}"));
            let compared =
                cmd!(shell, "{python} {script} compare {here} {theirs} {saved}").read()?;
            let compared: Value =
                serde_json::from_str(&compared).context("what the script printed")?;
            let difference = number(&compared["difference"])?;
            ensure!(
                difference < LOGITS,
                "decay {decay}: the logits of the folder that was saved here are {difference:.1e} from PyTorch's"
            );
            println!(
                "decay {decay:<8}  the saved folder opens in transformers, logits within {difference:.1e}"
            );
        }
        Ok(expected)
    }

    /// Trains under a decay in every configuration.
    fn decay(&self, decay: &str, reference: &Curve, stages: &[&str]) -> anyhow::Result<()> {
        let [mut worst_loss, mut worst_norm, mut runs] = [0.0_f64, 0.0, 0.0];
        for stages in stages {
            for micro_batches in ["1", "4", "8"] {
                for policy in POLICIES {
                    let curve = self.train(
                        decay,
                        &[
                            "--stages",
                            stages,
                            "--micro-batches",
                            micro_batches,
                            "--remat",
                            policy,
                        ],
                    )?;
                    let [loss, norm] = distance(&curve, reference)?;
                    ensure!(
                        loss < LOSS && norm < NORM,
                        "decay {decay}, {stages} stages, {micro_batches} micro-batches, {policy}: losses are {loss:.1e} \
                         apart, norms {norm:.1e}: {curve:?}, in PyTorch {reference:?}"
                    );
                    (worst_loss, worst_norm, runs) =
                        (worst_loss.max(loss), worst_norm.max(norm), runs + 1.0);
                }
            }
        }
        println!(
            "decay {decay:<8}  {runs} configurations  losses within {worst_loss:.1e}, gradient norms within {worst_norm:.1e}"
        );
        Ok(())
    }

    fn gpipe(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> anyhow::Result<Vec<Value>> {
        let Trial { shell, program, .. } = *self;
        let output = cmd!(shell, "{program} -q --json")
            .args(arguments)
            .quiet()
            .read()?;
        output
            .lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect()
    }

    /// The curve of a run with the settings of the run in PyTorch.
    fn train(&self, decay: &str, more: &[&str]) -> anyhow::Result<Curve> {
        let (model, text, out) = (
            self.here.join("model"),
            self.here.join("text.txt"),
            self.here.join("run"),
        );
        let decay = format!("optimizer.decay={decay}");
        let paths: [&OsStr; 7] = [
            "train".as_ref(),
            "--model".as_ref(),
            model.as_ref(),
            "--data".as_ref(),
            text.as_ref(),
            "--out".as_ref(),
            out.as_ref(),
        ];
        let recipe = [
            "--overwrite",
            "--no-shuffle",
            "--seq-len",
            "32",
            "--batch-size",
            "8",
            "--steps",
            "8",
            "--lr",
            "1e-3",
            "--lr-schedule",
            "constant",
            "--warmup-steps",
            "0",
            "--weight-decay",
            "0.1",
            "--clip-norm",
            "1",
            "--set",
            "optimizer.beta2=0.95",
            "--set",
            &decay,
        ];
        let arguments = paths.into_iter().chain(
            recipe
                .into_iter()
                .chain(more.iter().copied())
                .map(OsStr::new),
        );
        let steps = self.gpipe(arguments)?;
        let steps = steps.iter().filter(|step| step["kind"] == "step");
        steps
            .map(|step| Ok([number(&step["loss"])?, number(&step["grad_norm"])?]))
            .collect()
    }

    /// The largest difference of the log-probabilities that both sides give to sampled tokens.
    pub fn scores(&self, model: &Path) -> anyhow::Result<f64> {
        let prompt = "The pipe drains";
        let mut known: Vec<Value> = Vec::new();
        let (mut lines, mut ours) = (String::new(), Vec::new());
        let paths: [&OsStr; 2] = ["sample".as_ref(), model.as_ref()];
        let more = [
            "--prompt",
            prompt,
            "--tokens",
            "24",
            "--temperature",
            "1.5",
            "--stages",
            "3",
        ];
        let objects = self.gpipe(paths.into_iter().chain(more.map(OsStr::new)))?;
        // The last one says how fast it was.
        for token in objects.iter().filter(|object| object["kind"] == "token") {
            lines += &format!("{}\n", serde_json::json!([known, token["token"]]));
            ours.push(number(&token["log_probability"])?);
            known.push(token["token"].clone());
        }
        let Trial {
            shell,
            python,
            script,
            here,
            ..
        } = *self;
        let theirs = cmd!(shell, "{python} {script} score {here} {model} {prompt}")
            .stdin(lines)
            .read()?;
        let theirs: Vec<f64> = serde_json::from_str(&theirs).context("what the script printed")?;
        ensure!(
            ours.len() == 24 && theirs.len() == 24,
            "{} and {} scores",
            ours.len(),
            theirs.len()
        );
        let worst = ours
            .iter()
            .zip(&theirs)
            .map(|(ours, theirs)| (ours - theirs).abs())
            .fold(0.0, f64::max);
        ensure!(
            worst < LOGITS,
            "log-probabilities are {worst:.1e} apart: {ours:?}, in PyTorch {theirs:?}"
        );
        Ok(worst)
    }
}

fn reference(recorded: &Value) -> anyhow::Result<Curve> {
    let recorded: BTreeMap<String, Vec<f64>> = serde_json::from_value(recorded.clone())?;
    let [losses, norms] =
        ["losses", "grad_norms"].map(|key| recorded.get(key).cloned().unwrap_or_default());
    ensure!(
        losses.len() == 8 && norms.len() == 8,
        "the script trained {} steps, not 8",
        losses.len()
    );
    Ok(losses
        .into_iter()
        .zip(norms)
        .map(|(loss, norm)| [loss, norm])
        .collect())
}

/// The largest distance of losses, and of norms as a share of the reference.
fn distance(curve: &Curve, reference: &Curve) -> anyhow::Result<[f64; 2]> {
    ensure!(
        curve.len() == reference.len(),
        "{} steps were made, not {}",
        curve.len(),
        reference.len()
    );
    let mut worst = [0.0_f64; 2];
    for ([loss, norm], [wanted, wanted_norm]) in curve.iter().zip(reference) {
        // A difference that is no number must not pass for a small one.
        let [of_loss, of_norm] = [(loss - wanted).abs(), (norm / wanted_norm - 1.0).abs()];
        ensure!(
            of_loss.is_finite() && of_norm.is_finite(),
            "a step has a loss or norm that is no number"
        );
        worst = [worst[0].max(of_loss), worst[1].max(of_norm)];
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_distance_counts_and_no_number_is_far() {
        let reference = vec![[2.0, 4.0], [1.0, 2.0]];
        assert_eq!(
            distance(&vec![[2.5, 4.0], [1.0, 1.0]], &reference).unwrap(),
            [0.5, 0.5]
        );
        assert!(distance(&vec![[2.0, 4.0]], &reference).is_err());
        assert!(distance(&vec![[2.0, 4.0], [f64::NAN, 2.0]], &reference).is_err());
    }
}
