//! The model that the benchmarks also train in PyTorch, with the same initial values and data: its
//! losses are PyTorch's.

use std::num::NonZero;

use gpipe_layers::models::{GptConfig, gpt, preset};
use gpipe_layers::{
    AdamW, Decay, Init, Layer, Loss, Optimizer, Param, PassContext, Result, UpdateSettings,
    try_params,
};
use gpipe_tensor::{Device, DeviceId, Host, Tensor, Tensors};

/// Steele, Lea and Flood's mixer, from which both sides draw values and data.
fn splitmix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Element `i` of PyTorch's parameter number `p`: uniform with standard deviation 0.02.
fn uniform(p: u64, i: u64) -> f32 {
    let unit = (splitmix64(i + (p << 32)) >> 11) as f64 / (1u64 << 53) as f64;
    ((2.0 * unit - 1.0) * 0.02 * 3f64.sqrt()) as f32
}

/// Sets a parameter to the values of PyTorch's parameter number `p`, whose weights of linear layers
/// lie as (out, in).
fn set(param: &mut Param, p: u64) -> Result<()> {
    let device = param.value()?.device().clone();
    if !matches!(param.init, Init::Normal(_)) {
        // Gains are ones and biases zeros on both sides.
        return Ok(());
    }
    let (rows, columns) = (param.shape.rows(), param.shape.last());
    let lies_transposed = param.name.contains(".c_");
    let index = |row: usize, column: usize| match lies_transposed {
        true => column * rows + row,
        false => row * columns + column,
    };
    let elements = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let values: Vec<f32> = elements
        .map(|(row, column)| uniform(p, index(row, column) as u64))
        .collect();
    let values = Tensor::from_f32(&device, param.shape.clone(), values);
    param.set_value(&values.expect("a matrix"))
}

/// The inputs and targets of a step: each sequence follows one of four rules from its first byte.
fn batch(step: u64, batch: usize, time: usize, device: &Device) -> (Tensor, Tensor) {
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for b in 0..batch as u64 {
        let hash = splitmix64(b + step * batch as u64 + (1 << 40));
        let (factor, shift) = [(1, 1), (1, 7), (5, 3), (3, 11)][(hash >> 8 & 3) as usize];
        let mut token = (hash & 255) as u32;
        for _ in 0..time {
            inputs.push(token);
            token = (factor * token + shift) % 256;
            targets.push(token);
        }
    }
    let tensor = |ids| Tensor::from_u32(device, [batch, time], ids).expect("a batch of ids");
    (tensor(inputs), tensor(targets))
}

fn forward_and_back(
    layers: &mut [Box<dyn Layer>],
    step: u64,
    x: Tensor,
    y: &Tensor,
) -> Result<f64> {
    let cx = PassContext::training(0, step, 0..x.shape().rows() as u64);
    let mut flow = Tensors::from_iter([x]);
    let mut saved = Vec::new();
    for layer in layers.iter() {
        let (next, left) = layer.forward(&cx, flow)?;
        saved.push(left);
        flow = next;
    }
    let logits = flow.pop().expect("logits");
    let (loss, gradient) = Loss::CrossEntropy.gradient(logits, y, Loss::CrossEntropy.terms(y)?)?;
    flow.push(gradient);
    for (layer, saved) in layers.iter_mut().zip(saved).rev() {
        flow = layer.backward(saved, flow)?;
    }
    Ok(loss)
}

/// The losses of the first steps, each before its update.
fn losses(config: &GptConfig, samples: usize, steps: usize) -> Result<Vec<f64>> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let host = Host::new(threads).expect("threads");
    let device = host.device(DeviceId::Cpu).expect("a CPU");
    let mut layers = gpt(config)?;
    let optimizer = Optimizer::from(AdamW {
        beta2: 0.95,
        weight_decay: 0.1,
        decay: Decay::All,
        ..AdamW::default()
    });
    let mut number = 0;
    for layer in &mut layers {
        try_params(layer.as_mut(), |param| {
            param.make(&device, 0)?;
            optimizer.make_state(param)?;
            // PyTorch has the positions first, then the tokens; the rest is in our order.
            let p = match number {
                0 => 1,
                1 => 0,
                n => n,
            };
            number += 1;
            set(param, p)
        })?;
    }
    let step = |step: u64| {
        let (x, y) = batch(step, samples, config.context, &device);
        let loss = forward_and_back(&mut layers, step, x, &y)?;
        for layer in &mut layers {
            try_params(layer.as_mut(), |param| {
                optimizer.update(
                    param,
                    UpdateSettings {
                        lr: 3e-4,
                        step,
                        grad_scale: 1.0,
                    },
                )?;
                param.zero_grad()
            })?;
        }
        Ok(loss)
    };
    (0..steps as u64).map(step).collect()
}

fn assert_losses(config: &GptConfig, samples: usize, wanted: &[f64]) {
    let losses = losses(config, samples, wanted.len()).expect("steps");
    for (ours, theirs) in losses.iter().zip(wanted) {
        // PyTorch's are printed with five decimals.
        assert!(
            (ours - theirs).abs() < 1.5e-5,
            "{losses:?} is not {wanted:?}"
        );
    }
}

#[test]
fn a_tiny_model_has_the_losses_of_pytorch() {
    let tiny = preset("bench-tiny").expect("a preset");
    assert_losses(
        &tiny.config,
        tiny.batch,
        &[5.54250, 5.54596, 5.53865, 5.52699, 5.51544],
    );
}

#[test]
fn bench_a_has_the_losses_of_pytorch() {
    let bench = preset("bench-a").expect("a preset");
    assert_eq!(bench.sequence, bench.config.context);
    // A step takes seconds here.
    let wanted = [5.58828, 5.53257, 5.39719];
    assert_losses(&bench.config, bench.batch, &wanted);
}
