//! Products of matrices on the first GPU, those of a transformer's linear layers: a JSON object a line, each as soon as it
//! is known.
//!
//! `products [TOKENS WIDTH VOCABULARY] [tf32|bf16]`; `products ceilings EXTENT [tf32|bf16]` measures what the device reaches
//! at best: a copy within its memory, and a product of EXTENT rows, columns and terms. Without a GPU it says so.

use std::time::Instant;

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DType, Device, DeviceId, Host, Result, Tensor, find_cuda, init_uniform};

/// How long something is measured, at least.
const SECONDS: f64 = 0.2;

/// Calls that a device is asked for at once, by a CUDA graph as in training: one call may take less time than asking for it.
const CALLS: u32 = 16;

/// Squares of the extent, in single precision, that a ceiling copies.
const SQUARES: usize = 4;

fn main() -> Result<()> {
    if let Err(why) = find_cuda() {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let asked = |name: &str| words.iter().any(|word| word == name);
    let host = Host::new(1)?.with_cuda_graphs();
    let (host, dtype, precision) = match (asked("tf32"), asked("bf16")) {
        (true, _) => (host.with_tf32(), DType::F32, "tf32"),
        (_, true) => (host, DType::BF16, "bf16"),
        _ => (host, DType::F32, "f32"),
    };
    let device = host.device(DeviceId::Cuda(0))?;
    match numbers[..] {
        [extent] if asked("ceilings") => ceilings(&device, dtype, precision, extent),
        [tokens, width, vocabulary] => linear_layers(&device, dtype, tokens, width, vocabulary),
        _ => linear_layers(&device, dtype, 8192, 768, 50257),
    }
}

/// Random: a device draws less power, and so is faster, where it multiplies zeros.
fn random(device: &Device, rows: usize, columns: usize, dtype: DType) -> Result<Tensor> {
    init_uniform(device, [rows, columns], 0.5, 0, "products")?.to_dtype(dtype)
}

/// Seconds of one call of several, which the device does one after the other.
fn seconds(device: &Device, mut call: impl FnMut() -> Result<Tensor>) -> Result<f64> {
    let mut run = |graphs: u32| {
        let start = Instant::now();
        for _ in 0..graphs {
            device.begin_step()?;
            device.begin_action();
            (0..CALLS).try_for_each(|_| call().map(drop))?;
            device.end_action()?;
        }
        device.finish()?;
        Ok(start.elapsed().as_secs_f64())
    };
    // The first makes the arena, the second its addresses, the third the graph.
    run(3)?;
    let mut graphs = 1;
    loop {
        let seconds = run(graphs)?;
        if seconds >= SECONDS {
            return Ok(seconds / f64::from(CALLS * graphs));
        }
        graphs *= 2;
    }
}

/// What the device reaches at best. Bytes are those read and written.
fn ceilings(device: &Device, dtype: DType, precision: &str, extent: usize) -> Result<()> {
    if dtype == DType::BF16 {
        let x = random(device, SQUARES * extent, extent, DType::F32)?;
        let bytes = 2 * 4 * x.elements();
        let seconds = seconds(device, || x.copy_to(device))?;
        println!(
            r#"{{"kind":"ceiling","ceiling":"copy","seconds":{seconds},"bytes":{bytes},"flops":0}}"#
        );
    }
    let (a, b) = (
        random(device, extent, extent, dtype)?,
        random(device, extent, extent, dtype)?,
    );
    let seconds = seconds(device, || ops::matmul(Layout::Nn, &a, &b, None))?;
    let bytes = 3 * dtype.bytes() * a.elements();
    let flops = 2.0 * (extent as f64).powi(3);
    println!(
        r#"{{"kind":"ceiling","ceiling":"product {precision}","seconds":{seconds},"bytes":{bytes},"flops":{flops}}}"#
    );
    Ok(())
}

/// The products of a transformer's linear layers, forward and both gradients.
fn linear_layers(
    device: &Device,
    dtype: DType,
    tokens: usize,
    width: usize,
    vocabulary: usize,
) -> Result<()> {
    for (inputs, outputs) in [
        (width, 3 * width),
        (width, 4 * width),
        (4 * width, width),
        (width, vocabulary),
    ] {
        let (x, w, dy) = (
            random(device, tokens, inputs, dtype)?,
            random(device, inputs, outputs, dtype)?,
            random(device, tokens, outputs, dtype)?,
        );
        for (layout, a, b, [m, n, k]) in [
            (Layout::Nn, &x, &w, [tokens, outputs, inputs]),
            (Layout::Nt, &dy, &w, [tokens, inputs, outputs]),
            (Layout::Tn, &x, &dy, [inputs, outputs, tokens]),
        ] {
            let seconds = seconds(device, || ops::matmul(layout, a, b, None))?;
            println!(r#"{{"layout":"{layout:?}","m":{m},"n":{n},"k":{k},"seconds":{seconds}}}"#);
        }
    }
    Ok(())
}
