//! Throughput of the operations that a training step consists of: `cargo bench -p gpipe-tensor`.
//!
//! One thread unless the name says otherwise; `thrpt` counts multiplications and additions for
//! products (Gelem/s = GFLOP/s) and bytes read and written for the rest.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gpipe_tensor::ops::{self, AdamW, AdamWUpdate, ChannelNorm, Layout, Window};
use gpipe_tensor::philox::Key;
use gpipe_tensor::{Device, DeviceId, Host, Tensor, init_normal};

fn device(threads: usize) -> Device {
    let host = Host::new(threads).expect("threads");
    host.device(DeviceId::Cpu).expect("the host's processor")
}

fn random(device: &Device, shape: &[usize], name: &str) -> Tensor {
    init_normal(device, shape, 1.0, 0, name).expect("memory")
}

fn products(c: &mut Criterion) {
    let (rows, inputs, outputs) = (2048, 384, 1536);
    let mut group = c.benchmark_group("product 2048x384x1536");
    group.throughput(Throughput::Elements((2 * rows * inputs * outputs) as u64));
    for threads in [1, 2] {
        let device = device(threads);
        let x = random(&device, &[rows, inputs], "x");
        let w = random(&device, &[inputs, outputs], "w");
        let bias = random(&device, &[outputs], "bias");
        let dy = random(&device, &[rows, outputs], "dy");
        let mut dw = Tensor::zeros(&device, [inputs, outputs]).expect("memory");
        group.bench_function(format!("Nn with bias, {threads} threads"), |b| {
            b.iter(|| ops::matmul(Layout::Nn, &x, &w, Some(&bias)));
        });
        group.bench_function(format!("Nn, {threads} threads"), |b| {
            b.iter(|| ops::matmul(Layout::Nn, &x, &w, None));
        });
        group.bench_function(format!("Nt, {threads} threads"), |b| {
            b.iter(|| ops::matmul(Layout::Nt, &dy, &w, None));
        });
        group.bench_function(format!("Tn accumulated, {threads} threads"), |b| {
            b.iter(|| ops::matmul_accumulate(Layout::Tn, &x, &dy, &mut dw));
        });
    }
    group.finish();
}

/// Samples, positions and heads of causal attention; heads have 64 elements.
const ATTENTIONS: [(usize, usize, usize); 3] = [(8, 128, 4), (4, 256, 6), (2, 1024, 12)];

fn attention(c: &mut Criterion) {
    const SIZE: usize = 64;
    let device = device(1);
    for (samples, len, heads) in ATTENTIONS {
        let width = heads * SIZE;
        let qkv = random(&device, &[samples, len, 3 * width], "qkv");
        let d_out = random(&device, &[samples, len, width], "d_out");
        let (out, lse) = ops::attention(&qkv, heads, None).expect("memory");
        // Of each product: the keys that a position sees, its own included.
        let flops = (samples * width * len * (len + 1)) as u64;
        let mut group = c.benchmark_group(format!("attention {samples}x{len}, {heads} heads"));
        group.throughput(Throughput::Elements(2 * flops));
        group.bench_function("forward", |b| {
            b.iter(|| ops::attention(&qkv, heads, None));
        });
        group.throughput(Throughput::Elements(5 * flops));
        group.bench_function("backward", |b| {
            b.iter(|| ops::attention_grad(&qkv, &out, &lse, &d_out, heads, None));
        });
        group.finish();
    }
}

/// Convolutions of a ResNet-50 with batches of 8 images of 128 x 128 pixels, from the stem to the last layer.
const CONVOLUTIONS: [(usize, usize, usize, Window); 6] = [
    (128, 3, 64, Window::square(7, 2, 3)),
    (32, 64, 64, Window::square(3, 1, 1)),
    (32, 256, 64, Window::square(1, 1, 0)),
    (16, 128, 128, Window::square(3, 1, 1)),
    (8, 256, 256, Window::square(3, 1, 1)),
    (4, 512, 512, Window::square(3, 1, 1)),
];

fn images(c: &mut Criterion) {
    for (size, inputs, outputs, window) in CONVOLUTIONS {
        let kernel = window.kernel[0];
        let name =
            format!("images: convolution {size}x{size}x{inputs}->{outputs}, {kernel}x{kernel}");
        let mut group = c.benchmark_group(name);
        for threads in [1, 2] {
            let device = device(threads);
            let x = random(&device, &[8, size, size, inputs], "x");
            let w = random(&device, &[outputs, kernel, kernel, inputs], "w");
            let y = ops::conv2d(&x, &w, None, &window).expect("a window that fits");
            let flops = 2 * y.elements() * kernel * kernel * inputs;
            group.throughput(Throughput::Elements(flops as u64));
            group.bench_function(format!("forward, {threads} threads"), |b| {
                b.iter(|| ops::conv2d(&x, &w, None, &window));
            });
            group.bench_function(format!("input gradient, {threads} threads"), |b| {
                b.iter(|| ops::conv2d_input_grad(&y, &w, x.shape(), &window));
            });
            let mut dw = Tensor::zeros(&device, w.shape().clone()).expect("memory");
            group.bench_function(format!("weight gradient, {threads} threads"), |b| {
                b.iter(|| ops::conv2d_weight_grad(&x, &y, &mut dw, &window));
            });
        }
        group.finish();
    }
    let device = device(1);
    let x = random(&device, &[8, 32, 32, 256], "x");
    let dy = random(&device, &[8, 32, 32, 256], "dy");
    let [gain, bias] = ["gain", "bias"].map(|name| random(&device, &[256], name));
    let statistics = ops::channel_statistics(&x, 1).expect("memory");
    let norm = ChannelNorm {
        mean: &statistics.rows(0..1).expect("two rows"),
        variance: &statistics.rows(1..2).expect("two rows"),
        gain_and_bias: Some([&gain, &bias]),
        eps: 1e-5,
    };
    let mut group = c.benchmark_group("images: batch norm 8x32x32x256");
    let bytes = x.bytes() as u64;
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("statistics", |b| {
        b.iter(|| ops::channel_statistics(&x, 1));
    });
    group.throughput(Throughput::Bytes(2 * bytes));
    group.bench_function("forward", |b| b.iter(|| ops::channel_norm(&x, &norm)));
    group.bench_function("relu after it", |b| b.iter(|| ops::relu(&x)));
    group.throughput(Throughput::Bytes(5 * bytes));
    group.bench_function("gradients", |b| {
        b.iter(|| ops::channel_norm_grad(&x, &dy, &norm));
    });
    group.finish();
}

fn element_wise(c: &mut Criterion) {
    let device = device(1);
    let (rows, columns) = (4096, 1024);
    let bytes = (4 * rows * columns) as u64;
    let mut a = random(&device, &[rows, columns], "a");
    let b = random(&device, &[rows, columns], "b");
    let mut bias = random(&device, &[columns], "bias");
    let mut group = c.benchmark_group("element-wise 4096x1024");

    group.throughput(Throughput::Bytes(3 * bytes));
    group.bench_function("add", |t| t.iter(|| ops::add(&a, &b)));
    group.bench_function("add_assign", |t| t.iter(|| ops::add_assign(&mut a, &b)));
    group.throughput(Throughput::Bytes(2 * bytes));
    group.bench_function("scale", |t| t.iter(|| ops::scale(&b, 0.5)));
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("sum_rows_accumulate", |t| {
        t.iter(|| ops::sum_rows_accumulate(&b, &mut bias));
    });
    group.bench_function("sum_of_squares", |t| t.iter(|| ops::sum_of_squares(&b)));
    group.bench_function("all_finite", |t| t.iter(|| ops::all_finite(&b)));

    group.throughput(Throughput::Bytes(7 * bytes));
    let mut first = Tensor::zeros(&device, [rows, columns]).expect("memory");
    let mut second = Tensor::zeros(&device, [rows, columns]).expect("memory");
    let o = AdamW {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
    };
    group.bench_function("adamw", |t| {
        t.iter(|| {
            let update = AdamWUpdate {
                value: &mut a,
                copy: None,
                grad: &b,
                first: &mut first,
                second: &mut second,
                step: 1,
                grad_scale: 1.0,
            };
            ops::adamw(update, &o)
        });
    });

    group.throughput(Throughput::Bytes(bytes));
    let stream = Key::new(0, "dropout", 1).sample(0);
    let mut bits = vec![0; rows * columns];
    group.bench_function("philox", |t| {
        t.iter(|| stream.fill(0, black_box(&mut bits)));
    });
    group.finish();
}

criterion_group!(benches, products, attention, images, element_wise);
criterion_main!(benches);
