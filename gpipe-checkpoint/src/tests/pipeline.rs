//! A small model in a pipeline, for the tests that save and restore.

use std::sync::Arc;

use gpipe_layers::models::{self, GptConfig};
use gpipe_layers::{Decay, Flow, Loss, Optimizer, OptimizerKind};
use gpipe_remat::{
    Assembled, Assembly, ModelCosts, ParameterBytes, Policy, RematPlan, TrainingLoss, micro_batches,
};
use gpipe_sched::{World, gpipe};
use gpipe_tensor::{DeviceId, Host, safetensors};

use crate::snapshot::{ModelFiles, ModelWeights};

/// AdamW, which remembers two tensors of each parameter.
pub const OPTIMIZER: Optimizer = Optimizer {
    kind: OptimizerKind::AdamW {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
    },
    weight_decay: 0.1,
    decay: Decay::Matrices,
};

/// The name of the weights in a checkpoint.
pub const WEIGHTS: &str = "model/model.safetensors";

/// Makes the weights the only file of the model.
pub fn model_files() -> ModelFiles {
    Box::new(|params| {
        let weights = safetensors::contents(params, &[])?;
        Ok(vec![(WEIGHTS.to_owned(), weights)])
    })
}

/// The file of [`model_files`].
pub fn weights() -> ModelWeights {
    ModelWeights {
        name: WEIGHTS,
        contents: |params| Ok(safetensors::contents(params, &[])?),
    }
}

/// A tiny GPT of width 4 on `stages` stages.
pub fn assembled(stages: usize) -> Assembled {
    of_width(4, stages)
}

/// [`assembled`] over the ranks of a world.
pub fn over(stages: usize, world: &Arc<World>) -> Assembled {
    let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
    let assembly = assembly(4, stages);
    assembly
        .build_over(&Host::new(1).unwrap(), Some(world), end)
        .unwrap()
}

/// [`assembled`] of another width.
pub fn of_width(width: usize, stages: usize) -> Assembled {
    assembly(width, stages)
        .build(&Host::new(1).unwrap())
        .unwrap()
}

fn assembly(width: usize, stages: usize) -> Assembly {
    let mut layers = models::gpt(&GptConfig {
        vocab: 8,
        context: 4,
        width,
        blocks: 1,
        heads: 2,
        ..GptConfig::default()
    })
    .unwrap();
    let samples = micro_batches(2, 2).unwrap();
    let costs = ModelCosts::new(&layers, &samples, |n| vec![Flow::u32([n, 4])]).unwrap();
    let cut: Vec<_> = gpipe_partition::balance(&costs.flops(), stages)
        .unwrap()
        .ranges()
        .collect();
    let schedule = gpipe(stages, samples.len()).unwrap();
    let weights = ParameterBytes::new(&mut layers, Some(&OPTIMIZER));
    let remat_plan = RematPlan::new(Policy::Keep, &weights, &costs, &cut, &schedule).unwrap();
    Assembly {
        layers,
        cut,
        schedule,
        remat_plan,
        devices: vec![DeviceId::Cpu; stages],
        loss: Loss::CrossEntropy,
        optimizer: Some(OPTIMIZER),
        seed: stages as u64,
    }
}
