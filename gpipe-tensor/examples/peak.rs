//! What this machine can do at most: multiplications and additions of floats in registers, and the best
//! matrix products of this crate, on one thread and on several at once.
//!
//! `cargo run --release -p gpipe-tensor --example peak [THREADS] [--json]`, with GPIPE_INSTRUCTION_SET=avx2 or avx512 by no more
//! than these instructions.

use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DeviceId, Host, InstructionSet, Tensor, init_normal};
use pulp::{Arch, Simd, WithSimd};

/// Vectors of sums: enough to fill two units whose results take four or five cycles, few enough to stay in
/// registers.
const SUMS: usize = 12;

/// How often each sum is added to: some tenths of a millisecond.
const ADDITIONS: usize = 50_000;

/// How long each thing is repeated; the best counts.
const TIME: Duration = Duration::from_millis(150);

/// Rows, width and columns of the products of a transformer's block.
const SHAPES: [[usize; 3]; 4] = [
    [4096, 256, 1024],
    [4096, 1024, 256],
    [2048, 384, 1536],
    [1024, 1024, 1024],
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    arguments.retain(|argument| argument != "--json");
    let there = thread::available_parallelism().map_or(1, usize::from);
    let threads: usize = arguments.first().map_or(Ok(there), |text| text.parse())?;
    let allowed = match std::env::var("GPIPE_INSTRUCTION_SET").unwrap_or_default() {
        text if text.is_empty() => InstructionSet::Best,
        text => text.parse::<InstructionSet>()?,
    };
    let mut counts = vec![1, threads.max(1)];
    counts.dedup();
    for threads in counts {
        let fused = fused(threads, allowed);
        let (product, best) = products(threads, allowed)?;
        if json {
            println!(
                r#"{{"kind":"peak","threads":{threads},"fused_flops_per_second":{fused},"product_flops_per_second":{best},"product":"{product}"}}"#
            );
        } else {
            println!(
                "{threads} threads: {:.0} GFLOP/s of fused multiplications and additions, {:.0} of the product \
                 {product}",
                fused / 1e9,
                best / 1e9
            );
        }
    }
    Ok(())
}

/// FLOPs a second of all threads at once in the widest vectors allowed.
fn fused(threads: usize, allowed: InstructionSet) -> f64 {
    let start = Barrier::new(threads);
    let best = || {
        start.wait();
        let begin = Instant::now();
        let mut best = 0.0_f64;
        while begin.elapsed() < TIME {
            let start = Instant::now();
            let flops = add_products(allowed);
            best = best.max(flops / start.elapsed().as_secs_f64());
        }
        best
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(best)).collect();
        let each = all.into_iter().map(|one| one.join().unwrap_or(f64::NAN));
        each.sum()
    })
}

/// Adds products to sums that do not wait for each other; gives the FLOPs that this took.
fn add_products(allowed: InstructionSet) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if allowed == InstructionSet::Avx2
        && let Some(simd) = pulp::x86::V3::try_new()
    {
        return simd.vectorize(|| Sums.with_simd(simd));
    }
    let _ = allowed;
    Arch::new().dispatch(Sums)
}

/// The additions, in vectors of any instruction set.
struct Sums;

impl WithSimd for Sums {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let [x, y] = black_box([0.999_9_f32, 1e-4]).map(|number| simd.splat_f32s(number));
        let mut sums = [y; SUMS];
        for _ in 0..ADDITIONS {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, x, y);
            }
        }
        let total: f32 = sums.map(|sum| simd.reduce_sum_f32s(sum)).iter().sum();
        black_box(total);
        (2 * S::F32_LANES * SUMS * ADDITIONS) as f64
    }
}

/// The product with the most FLOPs a second, and how many.
fn products(threads: usize, allowed: InstructionSet) -> Result<(String, f64), Box<dyn Error>> {
    let host = Host::new(threads)?.with_instruction_set(allowed)?;
    let device = host.device(DeviceId::Cpu)?;
    let mut best = (String::new(), 0.0_f64);
    for [rows, width, columns] in SHAPES {
        let random = |shape: [usize; 2], name| init_normal(&device, shape, 1.0, 0, name);
        let x = random([rows, width], "x")?;
        let w = random([width, columns], "w")?;
        let dy = random([rows, columns], "dy")?;
        let mut dw = Tensor::zeros(&device, [width, columns])?;
        let flops = (2 * rows * width * columns) as f64;
        for layout in [Layout::Nn, Layout::Nt, Layout::Tn] {
            let begin = Instant::now();
            while begin.elapsed() < TIME / 2 {
                let start = Instant::now();
                match layout {
                    Layout::Nn => drop(ops::matmul(layout, &x, &w, None)?),
                    Layout::Nt => drop(ops::matmul(layout, &dy, &w, None)?),
                    Layout::Tn => ops::matmul_accumulate(layout, &x, &dy, &mut dw)?,
                }
                let found = flops / start.elapsed().as_secs_f64();
                if found > best.1 {
                    best = (format!("{layout:?} {rows}x{width}x{columns}"), found);
                }
            }
        }
    }
    Ok(best)
}
