//! What scripts read: one JSON object a line, on stdout with `--json` and in `events.jsonl`.
//!
//! Floats are written so that they read back exactly; what is not finite is `null`. The keys are a
//! contract: a kind has a variant here, a table in the README, and a command that prints it in
//! `tests/cli/events.rs`, which compares the two.

use serde::Serialize;

use crate::fail::{Fail, Result};

/// One line.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Event {
    /// A run begins.
    Start {
        /// Layers of each stage.
        cut: Vec<usize>,
        /// Parameters, a tied one counted once.
        parameters: u64,
        /// Steps that will be run.
        steps: u64,
        /// Tokens of a step.
        tokens: u64,
    },
    /// A training step was made.
    Step {
        /// From 1.
        step: u64,
        /// Mean over all targets of the batch, before the update.
        loss: f64,
        /// Of all gradients together, before clipping.
        grad_norm: f64,
        /// Learning rate.
        lr: f64,
        /// Tokens of the batch by seconds of the step.
        tokens_per_second: f64,
        /// From the batch to the updated parameters.
        step_seconds: f64,
        /// The most that a worker's thread was at its actions: on a GPU, at asking for them.
        asking_seconds: f64,
        /// Processor time of all threads meanwhile, where the system says so.
        cpu_seconds: Option<f64>,
        /// Share of the pipeline's time in which stages idle, measured.
        bubble: f64,
        /// Most bytes that each stage held.
        peak_bytes: Vec<u64>,
    },
    /// A model was evaluated.
    Eval {
        /// After this many steps; `null` where nothing is trained.
        step: Option<u64>,
        /// Mean over all targets.
        loss: f64,
        /// e to the loss.
        perplexity: f64,
        /// Share of the targets to which the model gave the highest score.
        accuracy: f64,
        /// Targets: tokens or images.
        tokens: u64,
    },
    /// A model has said a token.
    Token {
        /// Its number.
        token: u32,
        /// What can be said with it: empty while a character is not whole.
        text: String,
        /// ln of its probability, before temperature and top-k.
        log_probability: f64,
    },
    /// A checkpoint stands: it would survive a loss of power.
    Save {
        /// After this many steps.
        step: u64,
        /// Its folder.
        path: String,
        /// Of all its files.
        bytes: u64,
        /// From the copies to the last sync.
        seconds: f64,
    },
    /// A run goes on from a checkpoint. What the file says of later steps before this line was lost
    /// with the process that said it.
    Resume {
        /// Steps that the checkpoint had made.
        step: u64,
        /// The folder of the checkpoint.
        path: String,
        /// Newer checkpoints that were not whole, and keys that differ, in words.
        warnings: Vec<String>,
    },
    /// A run is done.
    End {
        /// Steps that were run.
        step: u64,
        /// Of the last step.
        loss: f64,
        /// Median over the last steps.
        tokens_per_second: f64,
        /// Median over the steps.
        bubble: f64,
        /// Of the schedule, were all stages alike.
        ideal_bubble: f64,
        /// Most bytes that each stage held in any step.
        peak_bytes: Vec<u64>,
        /// What was predicted.
        predicted_peak_bytes: Vec<u64>,
        /// Micro-batches that each stage holds at once, at most.
        in_flight: Vec<usize>,
        /// The most memory that the process had, where the system says so.
        peak_resident_bytes: Option<u64>,
        /// Since the start.
        seconds: f64,
    },
    /// A plan was made.
    Plan {
        /// Layers of each stage.
        cut: Vec<usize>,
        /// Cost of each stage: FLOPs of a step, or the unit of the list.
        loads: Vec<u64>,
        /// The least that the dearest stage of any cut costs.
        optimum: u64,
        /// Predicted share of time in which stages idle.
        bubble: f64,
        /// Estimated from a short measurement of this machine; `null` for a list of costs.
        step_seconds: Option<f64>,
        /// Predicted most bytes that each stage holds; `null` for a list of costs.
        peak_bytes: Option<Vec<u64>>,
    },
    /// A page was written.
    Report {
        /// Where.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// The planner recommends.
    Auto {
        /// Stages.
        stages: usize,
        /// The worker of each device, by its place in the list.
        workers: Vec<usize>,
        /// Micro-batches.
        micro_batches: usize,
        /// As `--schedule` takes it.
        schedule: String,
        /// Layers of each stage.
        cut: Vec<usize>,
        /// As `--remat` takes it.
        remat: String,
        /// Predicted.
        step_seconds: f64,
        /// Of the fastest plan found, which may have more workers or stages.
        fastest_seconds: f64,
        /// No plan takes less.
        bound_seconds: f64,
        /// `step_seconds` by `bound_seconds`, less 1.
        gap: f64,
        /// Predicted share of time in which workers idle.
        bubble: f64,
        /// Predicted most bytes of each stage.
        peak_bytes: Vec<u64>,
        /// The stage that works longest.
        bottleneck_stage: usize,
        /// The layer of it that works longest.
        bottleneck_layer: String,
        /// The best on one worker; `null` where that does not fit.
        single_seconds: Option<f64>,
        /// A copy of the model on every worker; `null` where that does not fit or makes no sense.
        replicas_seconds: Option<f64>,
        /// So many bytes a worker instead; `null` where more does not help.
        more_memory: Option<u64>,
        /// Predicted with those.
        more_memory_seconds: Option<f64>,
    },
    /// A plan among all.
    Compare {
        /// Workers.
        workers: usize,
        /// As `--schedule` takes it.
        schedule: String,
        /// Micro-batches.
        micro_batches: usize,
        /// As `--remat` takes it.
        remat: String,
        /// `balance`, or `histogram` for Lingvo's cut.
        partition: &'static str,
        /// Layers of each stage.
        cut: Vec<usize>,
        /// Predicted.
        step_seconds: f64,
        /// Predicted share of time in which workers idle.
        bubble: f64,
        /// Predicted most bytes of each stage.
        peak_bytes: Vec<u64>,
    },
    /// A kind of layer was measured.
    Profile {
        /// Its name, `*` for numbers that differ.
        layer: String,
        /// How many there are.
        layers: usize,
        /// Of the micro-batch.
        samples: usize,
        /// That each worker used.
        threads: usize,
        /// Forward pass and both gradients.
        flops: u64,
        /// Forward pass; the loss too, if the layer is the last.
        forward_seconds: f64,
        /// Input gradient.
        input_grad_seconds: f64,
        /// Weight gradient.
        weight_grad_seconds: f64,
        /// Norm and update, once a step.
        update_seconds: f64,
    },
    /// Two runs were compared.
    Verify {
        /// Whether every bit was the same.
        equal: bool,
        /// Steps compared.
        steps: u64,
        /// Parameters compared, by name.
        parameters: usize,
        /// The first thing that differs; `null` where nothing does.
        difference: Option<String>,
    },
    /// Where stages can run.
    Device(FoundDevice),
}

/// A device of this machine; what is not known, or makes no sense for it, is `null`.
#[derive(Debug, Default, Serialize)]
pub struct FoundDevice {
    /// As `--devices` names it.
    pub device: String,
    /// Whether stages can run there.
    pub usable: bool,
    /// The maker's name for it.
    pub name: Option<String>,
    /// Cores.
    pub cores: Option<usize>,
    /// Threads that this process may run at once.
    pub threads: Option<usize>,
    /// Vector instructions that operations use.
    pub vectors: Option<String>,
    /// What a process can have here.
    pub memory_bytes: Option<u64>,
    /// Of that, what nobody uses now.
    pub free_bytes: Option<u64>,
    /// Of a GPU: the compute capability, such as `9.0`.
    pub capability: Option<String>,
    /// Of a GPU: those whose memory it reaches without the host, parted by commas.
    pub peers: Option<String>,
    /// Of a GPU: the versions of what drives it.
    pub libraries: Option<String>,
    /// Why it is not usable, and what would help.
    pub reason: Option<String>,
}

impl Event {
    /// An evaluation.
    pub fn eval(step: Option<u64>, loss: f64, accuracy: f64, tokens: u64) -> Self {
        let perplexity = loss.exp();
        Self::Eval {
            step,
            loss,
            perplexity,
            accuracy,
            tokens,
        }
    }

    /// The object, without a line end.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(Fail::run)
    }

    /// The object with the time of day.
    pub fn to_json_at(&self, time: &str) -> Result<String> {
        #[derive(Serialize)]
        struct Timed<'a> {
            #[serde(flatten)]
            event: &'a Event,
            time: &'a str,
        }
        serde_json::to_string(&Timed { event: self, time }).map_err(Fail::run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_a_contract() {
        let step = Event::Step {
            step: 1,
            loss: 0.1 + 0.2,
            grad_norm: f64::NAN,
            lr: 1e-300,
            tokens_per_second: 3.0,
            step_seconds: 0.5,
            asking_seconds: 0.4,
            cpu_seconds: None,
            bubble: 0.25,
            peak_bytes: vec![1, 2],
        };
        let line = step.to_json().unwrap();
        assert_eq!(
            line,
            r#"{"kind":"step","step":1,"loss":0.30000000000000004,"grad_norm":null,"lr":1e-300,"tokens_per_second":3.0,"step_seconds":0.5,"asking_seconds":0.4,"cpu_seconds":null,"bubble":0.25,"peak_bytes":[1,2]}"#
        );
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["loss"].as_f64(), Some(0.1 + 0.2));
        let plan = Event::Plan {
            cut: vec![2, 1],
            loads: vec![3, 4],
            optimum: 4,
            bubble: 0.5,
            step_seconds: None,
            peak_bytes: None,
        };
        assert_eq!(
            plan.to_json().unwrap(),
            r#"{"kind":"plan","cut":[2,1],"loads":[3,4],"optimum":4,"bubble":0.5,"step_seconds":null,"peak_bytes":null}"#
        );
    }

    #[test]
    fn what_says_no_step_has_none() {
        let event = Event::eval(None, 0.0, 0.25, 5).to_json().unwrap();
        assert_eq!(
            event,
            r#"{"kind":"eval","step":null,"loss":0.0,"perplexity":1.0,"accuracy":0.25,"tokens":5}"#
        );
        let token = Event::Token {
            token: 65,
            text: "A\n".into(),
            log_probability: -0.5,
        };
        assert_eq!(
            token.to_json().unwrap(),
            r#"{"kind":"token","token":65,"text":"A\n","log_probability":-0.5}"#
        );
    }

    #[test]
    fn every_event_of_a_file_has_a_time() {
        let event = Event::eval(Some(3), 0.0, 0.5, 5);
        assert_eq!(
            event.to_json_at("2026-01-02T03:04:05Z").unwrap(),
            r#"{"kind":"eval","step":3,"loss":0.0,"perplexity":1.0,"accuracy":0.5,"tokens":5,"time":"2026-01-02T03:04:05Z"}"#
        );
    }
}
