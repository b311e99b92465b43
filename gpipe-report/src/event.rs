//! Events of a run: one JSON object a line, in `events.jsonl` and for scripts on stdout.
//!
//! Floats are written so that they read back exactly; what is not finite is `null`. Kinds and keys are
//! a contract with scripts: keys are only ever added, and a Rust name that changes keeps its key.

use std::time::SystemTime;

use serde::Serialize;

use crate::basis::Basis;
use crate::checked::Checked;
use crate::clock::rfc3339;
use crate::error::Result;
use crate::evaluated_class::EvaluatedClass;
use crate::found_device::FoundDevice;
use crate::found_rank::{FoundMpi, FoundRank};
use crate::measured_link::MeasuredLink;
use crate::planned_portal::PlannedPortal;
use crate::predicted_picture::PredictedPicture;
use crate::replicated_plan::ReplicatedPlan;

/// One object. The variant in lower case is its `kind`, the fields are its other keys, but for
/// [`host_seconds`](Self::Step::host_seconds).
///
/// ```
/// use gpipe_report::Event;
///
/// let event = Event::eval(Some(3), 0.0, 0.5, 5);
/// assert_eq!(
///     event.to_json()?,
///     r#"{"kind":"eval","step":3,"loss":0.0,"perplexity":1.0,"accuracy":0.5,"tokens":5}"#
/// );
/// # Ok::<(), gpipe_report::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Event {
    /// A run begins.
    Start {
        /// Layers of each stage.
        cut: Vec<usize>,
        /// Parameters of the model, a tied one counted once.
        parameters: u64,
        /// Those of them that train: all but frozen ones.
        trained_parameters: u64,
        /// Steps that will be run.
        steps: u64,
        /// Tokens of a step; of a network for images, images.
        tokens: u64,
        /// Which of the two they are: `tokens` or `images`.
        unit: &'static str,
    },
    /// A training step is done.
    Step {
        /// Number, from 1.
        step: u64,
        /// Mean over all targets of the batch in nats, before the update.
        loss: f64,
        /// Norm of all gradients together, before clipping.
        grad_norm: f64,
        /// Learning rate.
        lr: f64,
        /// Positions of the batch (samples × `data.seq_len`, padding included; for images samples) divided by the seconds of
        /// the step.
        tokens_per_second: f64,
        /// Seconds from the batch to the updated parameters.
        step_seconds: f64,
        /// The longest time in seconds that a worker's thread spent on its actions: on a GPU, on launching them. Its key
        /// is `asking_seconds`.
        #[serde(rename = "asking_seconds")]
        host_seconds: f64,
        /// Processor time of all threads meanwhile, where the system reports it.
        cpu_seconds: Option<f64>,
        /// Measured share of the pipeline's time in which stages idle, from 0 to 1.
        bubble: f64,
        /// Peak bytes of each stage.
        peak_bytes: Vec<u64>,
    },
    /// A model was evaluated.
    Eval {
        /// Training steps before it; `null` where nothing is trained.
        step: Option<u64>,
        /// Mean over all targets in nats.
        loss: f64,
        /// e to the power of the loss.
        perplexity: f64,
        /// Share of the targets to which the model gives the highest score, from 0 to 1.
        accuracy: f64,
        /// Targets: tokens or images.
        tokens: u64,
        /// Classes, where they are counted: those that targets are of or are predicted to be of; no key without.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        classes: Vec<EvaluatedClass>,
    },
    /// A model generated a token.
    Token {
        /// Its number.
        token: u32,
        /// The text that it completes; empty while a character is not whole.
        text: String,
        /// ln of its probability, before temperature and the limits of sampling.
        log_probability: f64,
        /// The number of its prompt, from 0.
        prompt: usize,
    },
    /// All texts of `sample` are generated.
    Sampled {
        /// Tokens of all texts, without those of the prompts.
        tokens: u64,
        /// Seconds of the passes, that over the prompts included.
        seconds: f64,
        /// Tokens divided by seconds.
        tokens_per_second: f64,
    },
    /// A model predicted what a picture shows.
    Predicted(PredictedPicture),
    /// A checkpoint is complete: it would survive a loss of power.
    Save {
        /// Steps before it.
        step: u64,
        /// Its folder.
        path: String,
        /// Bytes of all its files.
        bytes: u64,
        /// Seconds from the copies to the last sync.
        seconds: f64,
    },
    /// A run goes on from a checkpoint. Events of later steps above this line were lost with the
    /// process that wrote them.
    Resume {
        /// Steps before the checkpoint.
        step: u64,
        /// The folder of the checkpoint.
        path: String,
        /// Newer checkpoints that are damaged, and keys that differ, in words.
        warnings: Vec<String>,
    },
    /// A run is done.
    End {
        /// Number of the last step.
        step: u64,
        /// Loss of the last step.
        loss: f64,
        /// As in [`Step`](Self::Step), by the median of the steps but the first two, which warm up.
        tokens_per_second: f64,
        /// Median over the same steps.
        bubble: f64,
        /// Bubble of the schedule if all stages took equally long.
        ideal_bubble: f64,
        /// Peak bytes of each stage in any step.
        peak_bytes: Vec<u64>,
        /// Predicted peak bytes of each stage.
        predicted_peak_bytes: Vec<u64>,
        /// The most bytes of messages that a rank held at a time in a step; no key without other ranks.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_bytes: Option<u64>,
        /// Those that suffice, predicted; no key without other ranks.
        #[serde(skip_serializing_if = "Option::is_none")]
        predicted_message_bytes: Option<u64>,
        /// Most micro-batches that each stage holds at once.
        in_flight: Vec<usize>,
        /// Peak resident memory of the process, where the system reports it.
        peak_resident_bytes: Option<u64>,
        /// Seconds since the start.
        seconds: f64,
    },
    /// A run failed.
    Error {
        /// Steps made before.
        step: u64,
        /// Why, in one line, with a mend and what is left of the run.
        message: String,
        /// The folder of the newest checkpoint, from which the run can go on; `null` where there is none.
        checkpoint: Option<String>,
    },
    /// A plan was made.
    Plan {
        /// Layers of each stage.
        cut: Vec<usize>,
        /// Cost of each stage: FLOPs of a step, or the unit of the list of costs.
        loads: Vec<u64>,
        /// The least cost of the most expensive stage over all cuts.
        optimum: u64,
        /// Predicted share of time in which stages idle.
        bubble: f64,
        /// Estimated from a short measurement of this machine; `null` for a list of costs.
        step_seconds: Option<f64>,
        /// Predicted peak bytes of each stage; `null` for a list of costs.
        peak_bytes: Option<Vec<u64>>,
        /// Parameters of the model, a tied one counted once; `null` for a list of costs.
        parameters: Option<u64>,
        /// Those of them that train: all but frozen ones.
        trained_parameters: Option<u64>,
        /// Where tensors go past whole stages; no key where there are none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        portals: Vec<PlannedPortal>,
        /// Number of first layers that are frozen and have no backward pass; no key where there are none.
        #[serde(skip_serializing_if = "Option::is_none")]
        forward_only_layers: Option<usize>,
        /// Predicted bytes of messages that a rank holds at most; no key without other ranks and replicas.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_bytes: Option<u64>,
        /// What `step_seconds` rests on; no key where that is `null`.
        #[serde(skip_serializing_if = "Option::is_none")]
        basis: Option<Basis>,
        /// Bytes of the host's memory, beside the stages, for the copies that checkpoints are written from; no key where
        /// none is saved.
        #[serde(skip_serializing_if = "Option::is_none")]
        checkpoint_bytes: Option<u64>,
        /// Why `train` would refuse this run, a sentence each; no key where it would not.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        faults: Vec<String>,
    },
    /// A checkpoint was checked.
    Check(Checked),
    /// A page was written.
    Report {
        /// Its path.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// The planner recommends a plan.
    Auto {
        /// Stages.
        stages: usize,
        /// The worker of each device, by its index in the list.
        workers: Vec<usize>,
        /// Micro-batches.
        micro_batches: usize,
        /// Schedule, as `--schedule` takes it.
        schedule: String,
        /// Layers of each stage.
        cut: Vec<usize>,
        /// Rematerialization, as `--remat` takes it.
        remat: String,
        /// Predicted seconds of a step.
        step_seconds: f64,
        /// Those of the fastest plan found, which may have more workers or stages.
        fastest_seconds: f64,
        /// Lower bound of all plans.
        bound_seconds: f64,
        /// `step_seconds` divided by `bound_seconds`, less 1.
        gap: f64,
        /// Predicted share of time in which workers idle.
        bubble: f64,
        /// Predicted peak bytes of each stage.
        peak_bytes: Vec<u64>,
        /// The stage that works longest.
        bottleneck_stage: usize,
        /// The layer of it that works longest.
        bottleneck_layer: String,
        /// The best on one worker; `null` where that does not fit.
        single_seconds: Option<f64>,
        /// A copy of the model on every worker; `null` where that does not fit or does not apply.
        replicas_seconds: Option<f64>,
        /// Bytes a worker that would allow a faster plan; `null` where more memory does not help.
        more_memory: Option<u64>,
        /// Predicted seconds of a step with those.
        more_memory_seconds: Option<f64>,
        /// The plan and the best for other numbers of replicas, the fastest first; for hosts alone.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        replications: Vec<ReplicatedPlan>,
        /// What the times rest on.
        basis: Basis,
        /// Why `train` would refuse this plan on this machine, a sentence each; no key where it would not.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        faults: Vec<String>,
    },
    /// One of the plans that are compared.
    Compare {
        /// Workers.
        workers: usize,
        /// Schedule, as `--schedule` takes it.
        schedule: String,
        /// Micro-batches.
        micro_batches: usize,
        /// Rematerialization, as `--remat` takes it.
        remat: String,
        /// `balance`, or `histogram` for Lingvo's cut.
        partition: &'static str,
        /// Layers of each stage.
        cut: Vec<usize>,
        /// Predicted seconds of a step.
        step_seconds: f64,
        /// Predicted share of time in which workers idle.
        bubble: f64,
        /// Predicted peak bytes of each stage.
        peak_bytes: Vec<u64>,
        /// What `step_seconds` rests on.
        basis: Basis,
    },
    /// A kind of layer was measured.
    Profile {
        /// Its name, with `*` for the numbers in which its layers differ.
        layer: String,
        /// Number of such layers.
        layers: usize,
        /// Samples of the micro-batch.
        samples: usize,
        /// Threads of each worker.
        threads: usize,
        /// FLOPs of the forward pass and both gradients.
        flops: u64,
        /// Forward pass; with the loss, if the layer is the last.
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
        /// Whether every bit is the same.
        equal: bool,
        /// Steps compared.
        steps: u64,
        /// Parameters compared, by name.
        parameters: usize,
        /// The first difference; `null` where there is none.
        difference: Option<String>,
    },
    /// A device on which stages could run.
    Device(FoundDevice),
    /// An MPI library.
    Mpi(FoundMpi),
    /// A rank of a launcher.
    Rank(FoundRank),
    /// A link between two ranks was measured.
    Link(MeasuredLink),
}

impl Event {
    /// [`Event::Eval`] with the perplexity of the loss.
    pub fn eval(step: Option<u64>, loss: f64, accuracy: f64, tokens: u64) -> Self {
        let perplexity = loss.exp();
        Self::Eval {
            step,
            loss,
            perplexity,
            accuracy,
            tokens,
            classes: Vec::new(),
        }
    }

    /// An [`Event::Eval`] with what was found of classes; other events stay as they are.
    #[must_use]
    pub fn of_classes(mut self, found: Vec<EvaluatedClass>) -> Self {
        if let Self::Eval { classes, .. } = &mut self {
            *classes = found;
        }
        self
    }

    /// The object, without a line end.
    ///
    /// # Errors
    /// [`Error::Json`](crate::Error::Json), which no event of this crate gives.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// The object with one more key, `time`: the time of day in RFC 3339, UTC, in whole seconds.
    ///
    /// # Errors
    /// As [`Event::to_json`].
    pub fn to_json_at(&self, now: SystemTime) -> Result<String> {
        #[derive(Serialize)]
        struct Timed<'a> {
            #[serde(flatten)]
            event: &'a Event,
            time: String,
        }
        let time = rfc3339(now);
        Ok(serde_json::to_string(&Timed { event: self, time })?)
    }
}

#[cfg(test)]
mod tests;
