//! Runs on the disk of this machine: saved, restored, and their bits.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpipe_remat::{Assembled, copy_owned, lend_owned};
use gpipe_tensor::DeviceId;
use gpipe_tensor::safetensors::Stored;

use super::pipeline::{OPTIMIZER, WEIGHTS, assembled, model_files, weights};
use crate::{Best, Checkpoint, RunState, Saver, SaverOptions, Snapshot};

/// No limit of memory.
pub const MAX: u64 = u64::MAX;

pub fn saver(run: &Path, keep: usize) -> Saver {
    let options = SaverOptions {
        keep,
        best: None,
        clock: Arc::new(|| Duration::ZERO),
    };
    Saver::new(run, options)
}

pub fn snapshot(step: u64, assembled: &mut Assembled) -> Snapshot {
    let device = assembled.transit.host().device(DeviceId::Cpu).unwrap();
    Snapshot {
        state: RunState {
            step,
            samples: 8 * step,
            text: "abc".to_owned(),
            best: Some(Best { step, loss: 0.5 }),
            ..RunState::default()
        },
        lent: lend_owned(&mut assembled.pipeline, &device).unwrap().0,
        optimizer: OPTIMIZER,
        config: "[run]\n".to_owned(),
        model: model_files(),
        weights: weights(),
    }
}

/// Parameters as the file has them.
pub fn as_they_are(name: String, tensor: Stored) -> (String, Stored) {
    (name, tensor)
}

/// A run in a folder with the checkpoints of these steps.
pub fn run(folder: &Path, steps: &[u64]) -> Assembled {
    fs::create_dir_all(folder).unwrap();
    let mut assembled = assembled(2);
    let mut saver = saver(folder, 10);
    for &step in steps {
        saver.save(snapshot(step, &mut assembled)).unwrap();
    }
    assert_eq!(
        saver.finish().unwrap().map(|saved| saved.step),
        steps.last().copied()
    );
    assembled
}

pub fn bits(assembled: &mut Assembled) -> Vec<(String, Vec<u32>)> {
    let device = assembled.transit.host().device(DeviceId::Cpu).unwrap();
    let params = copy_owned(&mut assembled.pipeline, &device).unwrap();
    let bits = params.into_iter().map(|param| {
        let tensors = std::iter::once(&param.value).chain(&param.state);
        let bits = tensors.flat_map(|tensor| tensor.to_f32s().unwrap());
        (param.name, bits.map(f32::to_bits).collect())
    });
    bits.collect()
}

pub fn restore(checkpoint: &Checkpoint, into: &mut Assembled) -> crate::Result<()> {
    let device = into.transit.host().device(DeviceId::Cpu).unwrap();
    checkpoint.restore(
        &[WEIGHTS],
        as_they_are,
        &mut into.pipeline,
        &OPTIMIZER,
        &device,
    )
}
