//! Every kernel of a step of GPT-2 at its shapes, alone, between two events of the device.

use gpipe_tensor::ops::{self, Gelu};
use gpipe_tensor::{DType, Device, Result, Tensor, init_uniform};

/// The model and the positions of a micro-batch.
pub struct Model {
    pub samples: usize,
    pub len: usize,
    pub width: usize,
    pub heads: usize,
    pub words: usize,
    pub blocks: usize,
}

/// Runs that are measured at once, after one that is not.
const TIMES: u32 = 5;

/// How often a step runs an operation, and the least bytes and FLOPs that one run takes.
struct Work {
    count: usize,
    bytes: f64,
    flops: f64,
}

/// Measures an operation and prints its line.
fn report(
    device: &Device,
    kernel: &str,
    work: Work,
    mut run: impl FnMut() -> Result<()>,
) -> Result<()> {
    run()?;
    let start = device.record_event()?;
    (0..TIMES).try_for_each(|_| run())?;
    let end = device.record_event()?;
    device.finish()?;
    let seconds = match (start, end) {
        (Some(start), Some(end)) => start.seconds_until(&end)? / f64::from(TIMES),
        _ => f64::NAN,
    };
    let Work {
        count,
        bytes,
        flops,
    } = work;
    println!(
        r#"{{"kernel":"{kernel}","count":{count},"seconds":{seconds},"bytes":{bytes},"flops":{flops}}}"#
    );
    Ok(())
}

/// Measures each operation of a step that is no product of matrices: a JSON object a line.
pub fn measure(device: &Device, dtype: DType, model: &Model) -> Result<()> {
    let Model {
        samples,
        len,
        width,
        heads,
        words,
        blocks,
    } = *model;
    let random =
        |shape: &[usize], dtype| init_uniform(device, shape, 0.5, 0, "kernels")?.to_dtype(dtype);
    let stored = |shape: &[usize]| random(shape, dtype);
    let (rows, size) = (samples * len, dtype.bytes() as f64);
    // Bytes of one tensor of the model's width.
    let narrow = rows as f64 * width as f64 * size;
    let work = |count, tensors: f64| Work {
        count,
        bytes: tensors * narrow,
        flops: 0.0,
    };
    let (x, dy) = (
        stored(&[samples, len, width])?,
        stored(&[samples, len, width])?,
    );

    let qkv = stored(&[samples, len, 3 * width])?;
    // Causal: half of the products of each query with each key.
    let pairs = samples as f64 * (len as f64).powi(2) / 2.0 * width as f64;
    let forward = Work {
        flops: 4.0 * pairs,
        ..work(blocks, 4.0)
    };
    let backward = Work {
        flops: 10.0 * pairs,
        ..work(blocks, 9.0)
    };
    report(device, "attention", forward, || {
        ops::attention(&qkv, heads, None).map(drop)
    })?;
    let (out, lse) = ops::attention(&qkv, heads, None)?;
    report(device, "attention, gradient", backward, || {
        ops::attention_grad(&qkv, &out, &lse, &dy, heads, None).map(drop)
    })?;
    drop((qkv, out, lse));

    let (gain, bias) = (stored(&[width])?, stored(&[width])?);
    let norms = 2 * blocks + 1;
    report(device, "layer norm", work(norms, 2.0), || {
        ops::layer_norm(&x, &gain, &bias, 1e-5).map(drop)
    })?;
    let (_, stats) = ops::layer_norm(&x, &gain, &bias, 1e-5)?;
    report(device, "layer norm, gradient", work(norms, 3.0), || {
        ops::layer_norm_grad(&x, &stats, &gain, &dy).map(drop)
    })?;
    report(device, "add", work(4 * blocks, 3.0), || {
        ops::add(&x, &dy).map(drop)
    })?;

    let wide = stored(&[samples, len, 4 * width])?;
    let mut slope = stored(&[samples, len, 4 * width])?;
    report(device, "GELU", work(blocks, 8.0), || {
        ops::gelu(&wide, Gelu::Tanh).map(drop)
    })?;
    report(
        device,
        "GELU again and gradient",
        work(blocks, 16.0),
        || ops::gelu_with_grad(&wide, &mut slope, Gelu::Tanh).map(drop),
    )?;
    drop(slope);
    let mut sums = random(&[4 * width], DType::F32)?;
    report(device, "sum of rows", work(blocks, 4.0), || {
        ops::sum_rows_accumulate(&wide, &mut sums)
    })?;
    drop(wide);

    let ids = |frequent: usize| {
        // Every `frequent`-th position is the same word, as a space in a text is.
        let words = (0..rows).map(|i| match i % frequent {
            0 => 7,
            _ => (i * 7919 % words) as u32,
        });
        Tensor::from_u32(device, [samples, len], words.collect())
    };
    let table = stored(&[words, width])?;
    let (spread, frequent) = (ids(rows)?, ids(5)?);
    report(device, "embedding", work(1, 2.0), || {
        ops::embedding(&spread, &table).map(drop)
    })?;
    drop(table);
    let mut table_grad = random(&[words, width], DType::F32)?;
    report(device, "embedding, gradient", work(1, 3.0), || {
        ops::embedding_grad(&spread, &dy, &mut table_grad)
    })?;
    report(
        device,
        "embedding, gradient, a frequent id",
        work(0, 3.0),
        || ops::embedding_grad(&frequent, &dy, &mut table_grad),
    )?;
    let squares = Work {
        count: 1,
        bytes: 4.0 * table_grad.elements() as f64,
        flops: 0.0,
    };
    report(device, "sum of squares of the table", squares, || {
        ops::sum_of_squares(&table_grad).map(drop)
    })?;
    drop(table_grad);

    // In place, so that the memory holds logits once; what the values are does not count.
    let mut logits = Some(stored(&[rows, words])?);
    let targets = spread.reshape([rows])?;
    let twice = Work {
        count: 1,
        bytes: 2.0 * rows as f64 * words as f64 * size,
        flops: 0.0,
    };
    report(device, "cross-entropy", twice, || {
        if let Some(taken) = logits.take() {
            logits = Some(ops::cross_entropy(taken, &targets, rows as f64)?.1);
        }
        Ok(())
    })
}
