//! Products of matrices on the first GPU, those of a transformer's linear layers: a JSON object a line.
//!
//! `products [TOKENS WIDTH VOCABULARY] [tf32|bf16]`; `products kernels SAMPLES LEN WIDTH HEADS WORDS BLOCKS
//! [bf16]` measures the other kernels of a step instead. Without a GPU it says so.

mod kernels;

use std::time::Instant;

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DType, DeviceId, Host, Result, find_cuda, init_uniform};

/// How long a product is measured, at least.
const SECONDS: f64 = 0.2;

fn main() -> Result<()> {
    if let Err(why) = find_cuda() {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let [tokens, width, vocabulary] = match numbers[..] {
        [tokens, width, vocabulary] => [tokens, width, vocabulary],
        _ => [8192, 768, 50257],
    };
    let host = Host::new(1)?;
    let asked = |name: &str| words.iter().any(|word| word == name);
    let host = match asked("tf32") {
        true => host.with_tf32(),
        false => host,
    };
    let dtype = match asked("bf16") {
        true => DType::BF16,
        false => DType::F32,
    };
    let device = host.device(DeviceId::Cuda(0))?;
    if let (true, &[samples, len, width, heads, words, blocks]) = (asked("kernels"), &numbers[..]) {
        let model = kernels::Model {
            samples,
            len,
            width,
            heads,
            words,
            blocks,
        };
        kernels::measure(&device, dtype, &model)?;
        let bytes = device.most_reserved_bytes()?.unwrap_or(0);
        println!(r#"{{"pool_bytes":{bytes}}}"#);
        return Ok(());
    }
    for (inputs, outputs) in [
        (width, 3 * width),
        (width, 4 * width),
        (4 * width, width),
        (width, vocabulary),
    ] {
        // Random: a device draws less power, and so is faster, where it multiplies zeros.
        let random = |rows: usize, columns: usize| {
            init_uniform(&device, [rows, columns], 0.5, 0, "products")?.to_dtype(dtype)
        };
        let (x, w, dy) = (
            random(tokens, inputs)?,
            random(inputs, outputs)?,
            random(tokens, outputs)?,
        );
        // A layer forward, and both of its gradients.
        for (layout, a, b, sizes) in [
            (Layout::Nn, &x, &w, [tokens, outputs, inputs]),
            (Layout::Nt, &dy, &w, [tokens, inputs, outputs]),
            (Layout::Tn, &x, &dy, [inputs, outputs, tokens]),
        ] {
            let multiply = |times: u32| {
                (0..times).try_for_each(|_| ops::matmul(layout, a, b, None).map(drop))?;
                device.finish()
            };
            multiply(3)?;
            let mut times = 1;
            let seconds = loop {
                let start = Instant::now();
                multiply(times)?;
                let seconds = start.elapsed().as_secs_f64();
                if seconds >= SECONDS {
                    break seconds / f64::from(times);
                }
                times *= 2;
            };
            let [m, n, k] = sizes;
            println!(r#"{{"layout":"{layout:?}","m":{m},"n":{n},"k":{k},"seconds":{seconds}}}"#);
        }
    }
    Ok(())
}
