//! Checks of gradients against finite differences, and of outputs and gradients against a reference.

use gpipe_tensor::{Device, Shape, Tensor, Tensors};

use super::tensors::{
    CheckError, Result, clean, device_of, expect_flow, f64s, flows, gradients_like, random,
    random_gradients, saved, take_gradients, tensor,
};
use crate::{Kind, Layer, PassContext, try_params};

/// Tolerance of a gradient against differences of the layer's own outputs, as a share of the largest
/// element. The outputs have single precision: their last bits, divided by a step of 1/32, limit the
/// accuracy of the differences.
pub const TOLERANCE: f64 = 2e-3;

/// Tolerance of outputs and gradients against a reference of double precision, as a share of the largest
/// element: some hundred roundings of 6e-8.
pub const REFERENCE_TOLERANCE: f64 = 2e-5;

/// Checks the gradients of inputs and parameters against differences of the layer's own outputs,
/// that gradients of several micro-batches add up, and that `forward_onto` adds what is around the layer to its output.
///
/// Each element of each input and parameter takes four forward passes: use small sizes, and values
/// of about 1 that stay 1/32 away from kinks such as that of ReLU at 0. Inputs and parameters are
/// of single precision. What is gathered of a statistic ([`Kind::Statistic`]) is no gradient and not
/// compared.
///
/// # Errors
/// [`CheckError::Value`] for the first element that is off by more than [`TOLERANCE`] or not finite,
/// [`CheckError::Flow`] if a pass returns other tensors than are described; and whatever error the layer
/// returns.
pub fn gradients(layer: &mut dyn Layer, cx: &PassContext, inputs: &Tensors) -> Result<()> {
    let device = device_of(layer, inputs)?;
    let shapes: Vec<Shape> = inputs.iter().map(|x| x.shape().clone()).collect();
    let forward = |layer: &mut dyn Layer, params: &[Vec<f64>], x: &[Vec<f64>]| {
        set_params(layer, &device, params)?;
        let mut flow = inputs.clone();
        for ((tensor_of, shape), values) in flow.iter_mut().zip(&shapes).zip(x) {
            if tensor_of.dtype().is_float() {
                *tensor_of = tensor(&device, shape, values)?;
            }
        }
        let (y, _) = layer.forward(cx, flow)?;
        let floats = y.iter().filter(|y| y.dtype().is_float());
        floats.map(f64s).collect()
    };
    compare(layer, cx, inputs, 1.0 / 32.0, TOLERANCE, &forward)
}

/// Checks outputs and gradients against a reference of double precision. `reference` computes the
/// elements of each float output from those of each parameter, in the order of [`Layer::params`], and of
/// each input (empty for indices).
///
/// # Errors
/// [`CheckError::Value`] for the first element that is off by more than [`REFERENCE_TOLERANCE`] or not finite,
/// [`CheckError::Flow`] if a pass returns other tensors than are described; and whatever error the layer
/// returns.
pub fn gradients_of(
    layer: &mut dyn Layer,
    cx: &PassContext,
    inputs: &Tensors,
    reference: &Reference<'_>,
) -> Result<()> {
    let forward = |_: &mut dyn Layer, params: &[Vec<f64>], x: &[Vec<f64>]| Ok(reference(params, x));
    compare(layer, cx, inputs, 1e-3, REFERENCE_TOLERANCE, &forward)
}

/// The elements of each output of floats from those of each parameter and of each input.
pub type Reference<'a> = dyn Fn(&[Vec<f64>], &[Vec<f64>]) -> Vec<Vec<f64>> + 'a;

/// The same by a layer that may fail.
type Forward<'a> = dyn Fn(&mut dyn Layer, &[Vec<f64>], &[Vec<f64>]) -> Result<Vec<Vec<f64>>> + 'a;

fn compare(
    layer: &mut dyn Layer,
    cx: &PassContext,
    inputs: &Tensors,
    step: f64,
    tolerance: f64,
    forward: &Forward<'_>,
) -> Result<()> {
    let device = device_of(layer, inputs)?;
    clean(layer)?;
    let (params, trained) = params(layer)?;
    let x = inputs.iter().map(|tensor| match tensor.dtype().is_float() {
        true => f64s(tensor),
        false => Ok(Vec::new()),
    });
    let x = x.collect::<Result<Vec<_>>>()?;

    let (y, left) = layer.forward(cx, inputs.clone())?;
    let outputs = layer.cost(&flows(inputs))?.outputs;
    expect_flow(layer, "forward", &outputs, &y)?;
    let wanted = forward(layer, &params, &x)?;
    let floats = y.iter().filter(|y| y.dtype().is_float());
    for (i, (y, wanted)) in floats.zip(&wanted).enumerate() {
        close(layer, format!("output {i}"), tolerance, &f64s(y)?, wanted)?;
    }
    if let ([_], [y], [output]) = (inputs.as_slice(), y.as_slice(), outputs.as_slice())
        && output.dtype.is_float()
    {
        let around = random(&device, output, "around")?;
        let (sum, _) = layer.forward_onto(cx, inputs.clone(), &around)?;
        expect_flow(layer, "forward_onto", &outputs, &sum)?;
        let apart: Vec<f64> = f64s(y)?
            .iter()
            .zip(f64s(&around)?)
            .map(|(y, around)| y + around)
            .collect();
        let of = "output and around it, by forward_onto".to_owned();
        close(layer, of, REFERENCE_TOLERANCE, &f64s(&sum[0])?, &apart)?;
    }
    let dy = random_gradients(&device, &outputs)?;
    let weights = dy.iter().map(f64s).collect::<Result<Vec<_>>>()?;
    let dx = layer.backward(left, dy.clone())?;
    let described = gradients_like(&flows(inputs));
    expect_flow(layer, "backward", &described, &dx)?;
    let gradients = take_gradients(layer)?;

    // The gradients are those of this sum: the outputs weighted by dY.
    let value = |layer: &mut dyn Layer, params: &[Vec<f64>], x: &[Vec<f64>]| {
        let y = forward(layer, params, x)?;
        Ok(y.iter().zip(&weights).map(|(y, dy)| dot(y, dy)).sum())
    };
    let mut at = x.clone();
    let floats = (0..x.len()).filter(|&i| inputs[i].dtype().is_float());
    for (dx, i) in dx.iter().zip(floats) {
        let wanted = differences(&x[i], step, |values| {
            at[i].copy_from_slice(values);
            value(layer, &params, &at)
        })?;
        at[i].copy_from_slice(&x[i]);
        close(
            layer,
            format!("gradient of input {i}"),
            tolerance,
            &f64s(dx)?,
            &wanted,
        )?;
    }
    let mut at = params.clone();
    for (gradient, &(i, kind)) in gradients.iter().zip(&trained) {
        if kind == Kind::Statistic {
            continue;
        }
        let wanted = differences(&params[i], step, |values| {
            at[i].copy_from_slice(values);
            value(layer, &at, &x)
        })?;
        at[i].copy_from_slice(&params[i]);
        let got: Vec<f64> = gradient.values.iter().copied().map(f64::from).collect();
        let of = format!("gradient of {}", gradient.name);
        close(layer, of, tolerance, &got, &wanted)?;
    }
    set_params(layer, &device, &params)?;

    for _ in 0..2 {
        let left = saved(layer, cx, inputs)?;
        layer.backward(left, dy.clone())?;
    }
    let both = take_gradients(layer)?;
    for ((twice, once), (_, kind)) in both.iter().zip(&gradients).zip(trained) {
        if kind == Kind::Statistic {
            continue;
        }
        let double = |values: &[f32], times: f64| -> Vec<f64> {
            values.iter().map(|&v| times * f64::from(v)).collect()
        };
        let (got, wanted) = (double(&twice.values, 1.0), double(&once.values, 2.0));
        let of = format!("gradient of {} over two micro-batches", once.name);
        close(layer, of, REFERENCE_TOLERANCE, &got, &wanted)?;
    }
    clean(layer)
}

/// The place and kind of each parameter that has a gradient.
type Trained = Vec<(usize, Kind)>;

/// The elements of each parameter, and those that have a gradient.
fn params(layer: &mut dyn Layer) -> Result<(Vec<Vec<f64>>, Trained)> {
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut trained = Vec::new();
    try_params(layer, |param| {
        if !param.frozen {
            trained.push((tensors.len(), param.kind));
        }
        tensors.push(param.value()?.clone());
        Ok::<_, crate::Error>(())
    })?;
    let values = tensors.iter().map(f64s).collect::<Result<_>>()?;
    Ok((values, trained))
}

fn set_params(layer: &mut dyn Layer, device: &Device, values: &[Vec<f64>]) -> Result<()> {
    let mut values = values.iter();
    try_params(layer, |param| {
        if let Some(values) = values.next() {
            param.set_value(&tensor(device, &param.shape, values)?)?;
        }
        Ok(())
    })
}

/// The gradient of `f` by central differences of two steps, whose error is of the step's fourth
/// power.
fn differences(
    at: &[f64],
    step: f64,
    mut f: impl FnMut(&[f64]) -> Result<f64>,
) -> Result<Vec<f64>> {
    let mut x = at.to_vec();
    let mut slopes = Vec::with_capacity(at.len());
    for i in 0..at.len() {
        let mut slope = |step: f64| {
            // The two points as rounded to single precision.
            let (above, below) = ((at[i] + step) as f32, (at[i] - step) as f32);
            let (above, below) = (f64::from(above), f64::from(below));
            x[i] = above;
            let high = f(&x)?;
            x[i] = below;
            let low = f(&x)?;
            x[i] = at[i];
            Ok::<f64, CheckError>((high - low) / (above - below))
        };
        let (whole, half) = (slope(step)?, slope(step / 2.0)?);
        slopes.push((4.0 * half - whole) / 3.0);
    }
    Ok(slopes)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// An error unless each number is within the tolerance of the expected one, and so finite.
fn close(layer: &dyn Layer, of: String, tolerance: f64, got: &[f64], wanted: &[f64]) -> Result<()> {
    // An infinite one would be a tolerance for all others.
    let finite = wanted.iter().filter(|v| v.is_finite());
    let largest = finite.fold(1e-3, |most: f64, v| most.max(v.abs()));
    let fault = |element: usize| CheckError::Value {
        layer: layer.name().to_owned(),
        of: of.clone(),
        element,
        expected: wanted.get(element).copied().unwrap_or(f64::NAN),
        got: got.get(element).copied().unwrap_or(f64::NAN),
    };
    let near = |(got, wanted): (&f64, &f64)| (got - wanted).abs() <= tolerance * largest;
    let off = got.iter().zip(wanted).position(|pair| !near(pair));
    match off {
        Some(element) => Err(fault(element)),
        None if got.len() != wanted.len() => Err(fault(got.len().min(wanted.len()))),
        None => Ok(()),
    }
}
