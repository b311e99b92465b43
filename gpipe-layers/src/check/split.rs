//! Check that all kinds of backward pass have the same bits.

use gpipe_tensor::{Tensor, Tensors, ops};

use super::tensors::{
    CheckError, Gradient, Result, clean, device_of, expect_flow, flows, random_gradients, saved,
    take_gradients,
};
use crate::{Error, Layer, PassContext};

/// Checks that `backward` has the same bits as `input_grad` then `weight_grad`, and that
/// `param_only_grad` then `weight_grad` has the same gradients of parameters; likewise `backward_onto` and
/// `input_grad_onto`, whose dX has the bits of the sum, and `backward` after `recompute`.
///
/// # Errors
/// [`CheckError::Bits`] for the first element that differs; and whatever error the layer returns.
pub fn split(layer: &mut dyn Layer, cx: &PassContext, inputs: &Tensors) -> Result<()> {
    let device = device_of(layer, inputs)?;
    clean(layer)?;
    let outputs = layer.cost(&flows(inputs))?.outputs;
    let dy = random_gradients(&device, &outputs)?;

    let left = saved(layer, cx, inputs)?;
    let fused_dx = layer.backward(left, dy.clone())?;
    let fused = take_gradients(layer)?;

    let way = "input_grad and weight_grad";
    let left = saved(layer, cx, inputs)?;
    let (dx, pending) = layer.input_grad(left, dy.clone())?;
    layer.weight_grad(pending)?;
    same_flow(layer, way, &fused_dx, &dx)?;
    let gradients = take_gradients(layer)?;
    same_gradients(layer, way, &fused, &gradients)?;

    let way = "param_only_grad and weight_grad";
    let left = saved(layer, cx, inputs)?;
    let pending = layer.param_only_grad(left, dy.clone())?;
    layer.weight_grad(pending)?;
    let gradients = take_gradients(layer)?;
    same_gradients(layer, way, &fused, &gradients)?;

    let way = "backward after recompute";
    let needed = match layer.saves_numbers() {
        true => inputs.clone(),
        false => Tensors::new(),
    };
    let left = layer.recompute(cx, needed)?;
    let dx = layer.backward(left, dy.clone())?;
    same_flow(layer, way, &fused_dx, &dx)?;
    let gradients = take_gradients(layer)?;
    same_gradients(layer, way, &fused, &gradients)?;

    if let [dx] = fused_dx.as_slice() {
        let around = random_gradients(&device, &flows(&fused_dx))?;
        for (is_fused, way) in [
            (false, "input_grad_onto and weight_grad"),
            (true, "backward_onto"),
        ] {
            let left = saved(layer, cx, inputs)?;
            let onto = match is_fused {
                true => layer.backward_onto(left, dy.clone(), &around[0])?,
                false => {
                    let (dx, pending) = layer.input_grad_onto(left, dy.clone(), &around[0])?;
                    layer.weight_grad(pending)?;
                    dx
                }
            };
            expect_flow(layer, way, &flows(&fused_dx), &onto)?;
            let apart = ops::add(dx, &around[0]).map_err(Error::within(layer.name()))?;
            let of = "gradient of the input and around it".to_owned();
            same(layer, of, way, &f32s(&apart)?, &f32s(&onto[0])?)?;
            let gradients = take_gradients(layer)?;
            same_gradients(layer, way, &fused, &gradients)?;
        }
    }
    clean(layer)
}

/// Compares the gradients of the inputs.
fn same_flow(layer: &dyn Layer, way: &'static str, fused: &Tensors, dx: &Tensors) -> Result<()> {
    expect_flow(layer, way, &flows(fused), dx)?;
    for (i, (fused, dx)) in fused.iter().zip(dx).enumerate() {
        let of = format!("gradient of input {i}");
        same(layer, of, way, &f32s(fused)?, &f32s(dx)?)?;
    }
    Ok(())
}

fn f32s(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(tensor.to_f32s()?.to_vec())
}

fn same_gradients(
    layer: &dyn Layer,
    way: &'static str,
    fused: &[Gradient],
    split: &[Gradient],
) -> Result<()> {
    for (fused, split) in fused.iter().zip(split) {
        let of = format!("gradient of {}", fused.name);
        same(layer, of, way, &fused.values, &split.values)?;
    }
    Ok(())
}

fn same(
    layer: &dyn Layer,
    of: String,
    way: &'static str,
    fused: &[f32],
    split: &[f32],
) -> Result<()> {
    let pairs = fused.iter().zip(split);
    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
    match pairs.clone().position(differs) {
        None => Ok(()),
        Some(element) => Err(CheckError::Bits {
            layer: layer.name().to_owned(),
            of,
            element,
            way,
            fused: fused[element],
            split: split[element],
        }),
    }
}
