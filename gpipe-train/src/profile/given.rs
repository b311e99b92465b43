//! Input tensors for measurements.

use gpipe_layers::{Flow, Loss};
use gpipe_tensor::{DType, Device, DeviceId, Shape, Tensor};

use crate::error::{Error, Result};

/// A tensor of varied numbers: zeros would be multiplied faster. On paper there are no numbers.
pub fn filled(device: &Device, flow: &Flow, vocabulary: usize) -> Result<Tensor> {
    let elements = flow.shape.elements().map_err(Error::input)?;
    let mixed = |i: usize| (i.wrapping_mul(0x9E37_79B9) >> 7) % 4093;
    let shape = flow.shape.clone();
    let made = match flow.dtype {
        DType::U32 => {
            let values = (0..elements).map(|i| (mixed(i) % vocabulary) as u32);
            Tensor::from_u32(device, shape, values.collect())
        }
        _ if matches!(device.id(), DeviceId::Known(_)) => {
            Tensor::zeros_of(device, shape, flow.dtype)
        }
        _ => {
            let values = (0..elements).map(|i| mixed(i) as f32 / 2048.0 - 1.0);
            Tensor::from_f32(device, shape, values.collect::<Vec<f32>>())
        }
    };
    made.map_err(Error::run)
}

/// Targets of scores: a class per row of logits, or a mask.
pub fn targets(device: &Device, scores: &Flow, loss: Loss) -> Result<Tensor> {
    if loss == Loss::BinaryCrossEntropy {
        return Tensor::zeros(device, scores.shape.clone()).map_err(Error::run);
    }
    let (classes, rows) = match scores.shape.dims().split_last() {
        Some((&classes, rows)) => (classes.max(1), rows),
        None => (1, &[][..]),
    };
    let count: usize = rows.iter().product();
    let values = (0..count).map(|i| (i * 31 % classes) as u32).collect();
    Tensor::from_u32(device, Shape::from(rows), values).map_err(Error::run)
}
