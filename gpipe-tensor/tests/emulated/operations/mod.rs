//! Every operation on a GPU against the processor, through the backend, in single precision and on
//! values that are stored in bf16: shapes around the sizes of warps and tiles, and operands that are
//! runs of rows, shared, or on the host.
//!
//! The same source runs on the emulated host and, as `tests/cuda`, on whatever driver is there.

mod bench;
mod images;
mod padded;
mod real;
mod segments;
mod updates;

pub use bench::Sizes;

use bench::Bench;
use gpipe_tensor::ops::{self, CacheSpan, Dropout, Gelu, KeyValueCache, Layout};
use gpipe_tensor::philox::Key;
use gpipe_tensor::{DType, Device, DeviceId, Host, Result, Tensor, find_cuda};

const WIDTHS: [usize; 6] = [1, 2, 31, 33, 128, 257];

fn elements(b: &mut Bench) -> Result<()> {
    for n in [0, 1, 33, 257, 20_000] {
        let (x, y) = (b.random([2, n])?, b.random([2, n])?);
        let row = b.random([n])?;
        b.keep(&ops::add(&x, &y)?)?;
        if n > 0 {
            b.keep(&ops::add(&x, &row)?)?;
        }
        let mut sum = b.own([2, n])?;
        ops::add_assign(&mut sum, &y)?;
        ops::scale_assign(&mut sum, 0.5)?;
        b.keep(&sum)?;
        b.keep(&ops::scale(&x, -3.0)?)?;
        let relu = ops::relu(&x)?;
        b.keep(&relu)?;
        b.keep(&ops::relu_grad(&relu, &y)?)?;
        let leaky = ops::leaky_relu(&x, 0.1)?;
        b.keep(&leaky)?;
        b.keep(&ops::leaky_relu_grad(&leaky, &y, 0.1)?)?;
        for form in [Gelu::Tanh, Gelu::Erf] {
            b.keep(&ops::gelu(&x, form)?)?;
            b.keep(&ops::gelu_grad(&x, &y, form)?)?;
            let mut gradient = b.own([2, n])?;
            b.keep(&ops::gelu_with_grad(&x, &mut gradient, form)?)?;
            b.keep(&gradient)?;
        }
        let drop = Dropout {
            rate: 0.25,
            key: Key::new(7, "layer", 3),
            samples: 5..7,
        };
        b.keep(&ops::dropout(x.clone(), &drop)?)?;
        let (loss, gradient) = ops::squared_error(x.clone(), &y, 2.0)?;
        b.keep_number(loss);
        b.keep(&gradient)?;
        let targets = (0..2 * n).map(|i| (i % 3) as f32 / 2.0);
        // On the host: the operation copies them for its time.
        let host = b.device.host().device(DeviceId::Cpu)?;
        let targets = Tensor::from_f32(&host, [2, n], targets.collect::<Vec<_>>())?;
        let (loss, gradient) = ops::binary_cross_entropy(x.clone(), &targets, 2.0)?;
        b.keep_number(loss);
        b.keep(&gradient)?;
        b.keep_number(ops::binary_correct(&x, &targets)? as f64);
        for number in [ops::sum(&x)?, ops::sum_of_squares(&x)?] {
            b.keep_number(number);
        }
        b.keep_number(ops::max_abs(&x)?.into());
        let squares = ops::sums_of_squares(&[&x, &row, &y])?;
        squares.into_iter().for_each(|one| b.keep_number(one));
    }
    Ok(())
}

fn rows(b: &mut Bench) -> Result<()> {
    for width in WIDTHS {
        let (x, dy) = (b.random([3, 11, width])?, b.random([3, 11, width])?);
        let y = ops::softmax(&x)?;
        b.keep(&y)?;
        b.keep(&ops::softmax_grad(&y, &dy)?)?;
        let (gain, bias) = (b.random([width])?, b.random([width])?);
        let (y, stats) = ops::layer_norm(&x, &gain, &bias, 1e-2)?;
        b.keep(&y)?;
        let (dx, dparams) = ops::layer_norm_grad(&x, &stats, &gain, &dy, None)?;
        let (sum, _) = ops::layer_norm_grad(&x, &stats, &gain, &dy, Some(&y))?;
        b.keep_sum(&sum, [&dx, &y])?;
        b.keep(&dx)?;
        b.keep(&dparams)?;
        let mut sum = b.single([width])?;
        ops::sum_rows_accumulate(&x, &mut sum)?;
        b.keep(&sum)?;
        let targets: Vec<u32> = (0..33).map(|i| (i * 7) % width as u32).collect();
        let mut targets = targets;
        targets[4] = ops::IGNORE;
        // On the host: the operation copies them for its time.
        let host = b.device.host().device(DeviceId::Cpu)?;
        let targets = Tensor::from_u32(&host, [3, 11], targets)?;
        b.keep_number(ops::cross_entropy_loss(&x, &targets, 32.0)?);
        b.keep_number(ops::correct(&x, &targets)? as f64);
        let (loss, gradient) = ops::cross_entropy(x.clone(), &targets, 32.0)?;
        b.keep_number(loss);
        b.keep(&gradient)?;
        let labels = (0..33).map(|i| (i * 7) % width as u32).collect();
        let labels = Tensor::from_u32(&host, [3, 11], labels)?;
        let (loss, gradient) = ops::one_hot_squared_error(x.clone(), &labels, 32.0)?;
        b.keep_number(loss);
        b.keep(&gradient)?;
        let scores = b.random([2, width, width])?;
        let y = ops::causal_softmax(&scores)?;
        b.keep(&y)?;
        let dy = b.random([2, width, width])?;
        b.keep(&ops::causal_softmax_grad(&y, &dy)?)?;
        let table = b.random([9, width])?;
        let ids = Tensor::from_u32(&b.device, [2, 5], vec![0, 8, 3, 3, 1, 0, 3, 8, 8, 2])?;
        b.keep(&ops::embedding(&ids, &table)?)?;
        let (mut grad, dy) = (b.single([9, width])?, b.random([2, 5, width])?);
        ops::embedding_grad(&ids, &dy, &mut grad)?;
        b.keep(&grad)?;
    }
    Ok(())
}

fn products(b: &mut Bench) -> Result<()> {
    for (m, n, k) in [
        (1, 1, 1),
        (3, 5, 7),
        (33, 17, 64),
        // Rows at multiples of 16 bytes.
        (16, 24, 40),
        (4, 0, 3),
        (2, 3, 0),
    ] {
        for layout in [Layout::Nn, Layout::Nt, Layout::Tn] {
            let (left, right) = match layout {
                Layout::Nn => ([m, k], [k, n]),
                Layout::Nt => ([m, k], [n, k]),
                Layout::Tn => ([k, m], [k, n]),
            };
            let (x, w, bias) = (b.random(left)?, b.random(right)?, b.random([n])?);
            b.keep(&ops::matmul(layout, &x, &w, None)?)?;
            b.keep(&ops::matmul(layout, &x, &w, Some(&bias))?)?;
            let onto = b.random([m, n])?;
            b.keep(&ops::matmul_onto(layout, &x, &w, Some(&bias), &onto)?)?;
            b.keep(&ops::matmul_onto(layout, &x, &w, None, &onto)?)?;
            let mut sum = b.single([m, n])?;
            ops::matmul_accumulate(layout, &x, &w, &mut sum)?;
            b.keep(&sum)?;
            let items = |[rows, columns]: [usize; 2]| [2, rows, columns];
            let (x, w) = (b.random(items(left))?, b.random(items(right))?);
            b.keep(&ops::batched_matmul(layout, &x, &w)?)?;
        }
    }
    Ok(())
}

fn attention(b: &mut Bench) -> Result<()> {
    for (len, heads, size) in [(1, 1, 1), (33, 2, 8), (40, 3, 64)] {
        let width = heads * size;
        let drop = Dropout {
            rate: 0.1,
            key: Key::new(1, "attention", 2),
            samples: 3..5,
        };
        for dropout in [None, Some(&drop)] {
            let (qkv, dy) = (b.random([2, len, 3 * width])?, b.random([2, len, width])?);
            let (out, lse) = ops::attention(&qkv, heads, dropout)?;
            b.keep(&out)?;
            b.keep(&lse)?;
            b.keep(&ops::attention_grad(&qkv, &out, &lse, &dy, heads, dropout)?)?;
        }
    }
    Ok(())
}

/// Normalization, positions, grouped attention within a window, and gates of Llama's blocks.
fn llama(b: &mut Bench) -> Result<()> {
    for width in WIDTHS {
        let (x, dy, gain) = (
            b.random([3, 11, width])?,
            b.random([3, 11, width])?,
            b.random([width])?,
        );
        let (y, inverse) = ops::rms_norm(&x, &gain, 1e-2)?;
        b.keep(&y)?;
        let (dx, dgain) = ops::rms_norm_grad(&x, &inverse, &gain, &dy, None)?;
        let (sum, _) = ops::rms_norm_grad(&x, &inverse, &gain, &dy, Some(&y))?;
        b.keep_sum(&sum, [&dx, &y])?;
        b.keep(&dx)?;
        b.keep(&dgain)?;
        for function in [ops::Gate::Silu, ops::Gate::GeluTanh] {
            b.keep(&ops::glu(function, &x, &dy)?)?;
            let mut parts = [
                b.own([33, width])?,
                b.own([33, width])?,
                b.own([33, width])?,
            ];
            let [gate, up, dy] = &mut parts;
            ops::glu_with_grad(function, gate, up, dy)?;
            for part in &parts {
                b.keep(part)?;
            }
        }
    }
    for (len, queries, groups, window, size) in [
        (1, 2, 2, None, 8),
        (40, 6, 2, None, 8),
        (70, 4, 1, Some(9), 8),
        (40, 4, 2, Some(33), 64),
        (33, 2, 1, Some(5), 128),
    ] {
        let rope = ops::Rope {
            size,
            theta: 1e4,
            scaling: ops::RopeScaling::Llama3 {
                factor: 8.0,
                low_frequency: 1.0,
                high_frequency: 4.0,
                original_positions: 40,
            },
            first: 3,
        };
        let (q, k, v) = (
            b.random([2, len, queries * size])?,
            b.random([2, len, groups * size])?,
            b.random([2, len, groups * size])?,
        );
        let qkv = ops::rope(&q, &k, &v, &rope)?;
        b.keep(&qkv)?;
        let heads = ops::Heads {
            queries,
            groups,
            window,
        };
        let (out, lse) = ops::attention(&qkv, heads, None)?;
        b.keep(&out)?;
        let dy = b.random([2, len, queries * size])?;
        let dqkv = ops::attention_grad(&qkv, &out, &lse, &dy, heads, None)?;
        b.keep(&dqkv)?;
        for part in ops::rope_grad(&dqkv, groups, &rope)? {
            b.keep(&part)?;
        }
    }
    Ok(())
}

/// Attention over a cache, whose capacity doubles and whose rows change places.
fn key_value_cache(b: &mut Bench) -> Result<()> {
    let heads = ops::Heads {
        queries: 4,
        groups: 2,
        window: Some(50),
    };
    let (width, mut cache) = (2 * 20, KeyValueCache::default());
    for (past, len) in [([0, 0], 60), ([60, 30], 1), ([5, 61], 7)] {
        let x = b.random([2, len, 4 * width])?;
        let span = CacheSpan::new(&b.device, 2, 0, past.to_vec())?;
        cache.store(&span, (&x, 2 * width), (&x, 3 * width), width)?;
        b.keep(&cache.attend(&span, (&x, 0), heads)?)?;
        cache.select(&[1, 0])?;
        // What was stored goes along, and nothing else is read.
        let span = CacheSpan::new(&b.device, 2, 0, vec![past[1], past[0]])?;
        b.keep(&cache.attend(&span, (&x, 0), heads)?)?;
    }
    Ok(())
}

/// Copies and handing over, within a device and between two, each beside a change of the source.
fn moves(b: &mut Bench) -> Result<()> {
    let transit = b.device.host().device(DeviceId::Cpu)?;
    // Another device if there is one, or else another handle.
    let devices = find_cuda().map_or(0, |found| found.devices.len());
    let other = b.device.host().device(match b.device.id() {
        DeviceId::Cuda(0) if devices > 1 => DeviceId::Cuda(1),
        id => id,
    })?;
    let beside = b.device.host().device(b.device.id())?;
    let large = b.largest;
    for n in [1, 1000, large] {
        for to in [&other, &beside, &transit] {
            let mut x = b.own([n])?;
            let copy = x.copy_to(to)?;
            // The copy is of what was there before.
            x.fill(7.0)?;
            b.keep(&copy)?;
            let back = copy.send(&transit)?.receive(&b.device)?;
            b.keep(&back)?;
            let held = back.clone();
            let shared = back.send(&transit)?.receive(to)?;
            drop(held);
            if n < large {
                let mut y = ops::scale(&shared, 2.0)?;
                drop(shared);
                y.copy_from(&x)?;
                b.keep(&y)?;
            }
            let part = x.reshape([1, n])?.rows(0..1)?.send(&transit)?;
            drop(x);
            b.keep(&part.receive(to)?)?;
        }
    }
    let live = [&b.device, &other, &beside, &transit].map(Device::live_bytes);
    assert_eq!(live, [0; 4], "bytes that nobody holds");
    Ok(())
}

/// How far a result may be from the processor's in single precision, where the largest of all is
/// `largest`. In bf16 a number has 8 bits, and what is computed in two steps is rounded twice; in TF32 a factor has 11.
fn tolerance(stored: DType, tf32: bool, wanted: f32, largest: f32) -> f32 {
    match stored {
        DType::F32 if !tf32 => 2e-5 * wanted.abs().max(1.0),
        _ => largest / 128.0 + 1e-6,
    }
}

/// All of them on the processor and on the first GPU, which stores values in this type: the numbers are
/// the same to rounding. Those with products in single precision once more where factors may be rounded to TF32.
pub fn compare(sizes: Sizes, stored: DType) {
    type Family = fn(&mut Bench) -> Result<()>;
    const FAMILIES: [(&str, Family); 11] = [
        ("elements", elements),
        ("rows", rows),
        ("products", products),
        ("padded", padded::padded),
        ("attention", attention),
        ("segments", segments::segments),
        ("llama", llama),
        ("key_value_cache", key_value_cache),
        ("images", images::images),
        ("updates", updates::updates),
        ("moves", moves),
    ];
    let families: &[_] = match sizes {
        Sizes::Real => &[("real shapes", real::shapes as Family)],
        _ => &FAMILIES,
    };
    let host = || Host::new(1).expect("one thread");
    let all = |host: &Host, id, family: Family| {
        let mut bench = Bench::new(host, id, sizes, stored)?;
        family(&mut bench).map(|()| bench.results)
    };
    let exact = families.iter().map(|family| (family, false));
    let rounded = families.iter().map(|family| (family, true));
    let rounded = rounded.filter(|((name, _), _)| {
        stored == DType::F32 && ["products", "attention", "real shapes"].contains(name)
    });
    for (&(name, family), tf32) in exact.chain(rounded) {
        let host = match tf32 {
            true => host().with_tf32(),
            false => host(),
        };
        let wanted = all(&host, DeviceId::Cpu, family).expect("the processor computes");
        let got = match all(&host, DeviceId::Cuda(0), family) {
            Ok(got) => got,
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(got.len(), wanted.len(), "{name}");
        for (place, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
            assert_eq!(got.len(), wanted.len(), "{name}: result {place}");
            let largest = wanted.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for (got, wanted) in got.iter().zip(wanted) {
                let error = (got - wanted).abs();
                assert!(
                    error <= tolerance(stored, tf32, *wanted, largest),
                    "{name}: result {place}: {got} is not {wanted}"
                );
            }
        }
        let factors = if tf32 { ", factors in TF32" } else { "" };
        println!(
            "{name} in {stored}{factors}: {} results equal the processor's",
            wanted.len()
        );
    }
}
