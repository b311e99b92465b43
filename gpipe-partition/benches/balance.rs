//! A million layers over a thousand stages.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gpipe_partition::{balance, histogram};

fn million(c: &mut Criterion) {
    let equal = vec![1_u64; 1_000_000];
    let scattered: Vec<u64> = (0..1_000_000_u64)
        .map(|layer| layer.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44)
        .collect();
    let floats: Vec<f64> = scattered.iter().map(|&cost| cost as f64).collect();
    // One layer as expensive as all others together leaves the most freedom, and the most to settle.
    let mut headed = scattered.clone();
    headed.push(scattered.iter().sum());

    let mut group = c.benchmark_group("a million layers over a thousand stages");
    group.sample_size(10);
    for (name, costs) in [
        ("equal", &equal),
        ("scattered", &scattered),
        ("dear head", &headed),
    ] {
        group.bench_function(format!("balance, {name}"), |b| {
            b.iter(|| balance(black_box(costs), 1000));
        });
    }
    group.bench_function("histogram", |b| {
        b.iter(|| histogram(black_box(&floats), 1000))
    });
    group.finish();
}

criterion_group!(benches, million);
criterion_main!(benches);
