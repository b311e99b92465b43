//! Products of every layout against a plain loop, and their bits on any number of threads.

use super::matrix::Matrix;
use super::*;
use crate::ops::add;
use crate::testing::{
    assert_close, assert_same_bits_for_any_threads, bits, device, f64s, limited, numeric_gradient,
    random,
};
use crate::{Device, InstructionSet};

const LAYOUTS: [Layout; 3] = [Layout::Nn, Layout::Nt, Layout::Tn];

/// (m, n, k): one element, edges of the kernels' tiles, vectors, long and short sums, none at all.
const SIZES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (3, 5, 7),
    (1, 33, 20),
    (40, 1, 9),
    (16, 16, 2000),
    (48, 8, 4),
    (17, 65, 129),
    (130, 70, 2),
    (96, 100, 300),
    (4, 0, 3),
    (0, 4, 3),
    (4, 3, 0),
];

/// Shapes of the operands whose product in this layout is of size (m, n, k).
fn shapes(layout: Layout, (m, n, k): (usize, usize, usize)) -> ([usize; 2], [usize; 2]) {
    match layout {
        Layout::Nn => ([m, k], [k, n]),
        Layout::Nt => ([m, k], [n, k]),
        Layout::Tn => ([k, m], [k, n]),
    }
}

/// The product by three loops in double precision.
fn reference(layout: Layout, (m, n, k): (usize, usize, usize), a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut product = vec![0.0; m * n];
    for row in 0..m {
        for column in 0..n {
            for i in 0..k {
                product[row * n + column] += match layout {
                    Layout::Nn => a[row * k + i] * b[i * n + column],
                    Layout::Nt => a[row * k + i] * b[column * k + i],
                    Layout::Tn => a[i * m + row] * b[i * n + column],
                };
            }
        }
    }
    product
}

#[test]
fn onto_another_tensor_the_bits_are_those_of_a_sum() {
    let device = device();
    for (layout, a, b) in [
        (Layout::Nn, [33, 20], [20, 17]),
        (Layout::Nt, [33, 20], [17, 20]),
        (Layout::Tn, [20, 33], [20, 17]),
    ] {
        let (a, b) = (random(&device, a, 1), random(&device, b, 2));
        let (bias, onto) = (random(&device, [17], 3), random(&device, [33, 17], 4));
        for bias in [None, Some(&bias)] {
            let wanted = add(&matmul(layout, &a, &b, bias).unwrap(), &onto).unwrap();
            let sum = matmul_onto(layout, &a, &b, bias, &onto).unwrap();
            assert_eq!(bits(&sum), bits(&wanted));
        }
        let other = random(&device, [17, 33], 4);
        let message = matmul_onto(layout, &a, &b, None, &other).unwrap_err();
        assert!(message.to_string().contains("[33, 17]"), "{message}");
    }
}

#[test]
fn products_equal_three_loops_in_double_precision() {
    let device = device();
    for layout in LAYOUTS {
        for size @ (m, n, k) in SIZES {
            let (a_shape, b_shape) = shapes(layout, size);
            let a = random(&device, a_shape, 1);
            let b = random(&device, b_shape, 2);
            let tolerance = 1e-6 * (k as f64).sqrt().max(1.0);
            let mut wanted = reference(layout, size, &f64s(&a), &f64s(&b));

            let product = matmul(layout, &a, &b, None).unwrap();
            assert_eq!(product.shape().dims(), [m, n]);
            assert_close(&product, &wanted, tolerance);

            let bias = random(&device, [n], 3);
            let biased = matmul(layout, &a, &b, Some(&bias)).unwrap();
            let bias = f64s(&bias);
            for (i, value) in wanted.iter_mut().enumerate() {
                *value += bias[i % n];
            }
            assert_close(&biased, &wanted, tolerance);

            let mut total = random(&device, [m, n], 4);
            let wanted: Vec<f64> = reference(layout, size, &f64s(&a), &f64s(&b))
                .iter()
                .zip(f64s(&total))
                .map(|(product, before)| product + before)
                .collect();
            matmul_accumulate(layout, &a, &b, &mut total).unwrap();
            assert_close(&total, &wanted, tolerance);
        }
    }
}

#[test]
fn threads_do_not_change_the_bits_of_any_layout_or_size() {
    let large = [
        (300, 200, 100),
        (33, 1025, 257),
        (1500, 48, 96),
        (130, 150, 3000),
    ];
    for layout in LAYOUTS {
        for size @ (m, n, _) in SIZES.into_iter().chain(large) {
            let (a_shape, b_shape) = shapes(layout, size);
            assert_same_bits_for_any_threads(|device| {
                let a = random(device, a_shape, 5);
                let b = random(device, b_shape, 6);
                let bias = random(device, [n], 7);
                let mut out = matmul(layout, &a, &b, Some(&bias)).unwrap();
                assert_eq!(out.shape().dims(), [m, n]);
                matmul_accumulate(layout, &a, &b, &mut out).unwrap();
                out
            });
        }
    }
}

#[test]
fn the_layouts_are_the_gradients_of_a_linear_layer() {
    let device = device();
    let (rows, inputs, outputs) = (4, 3, 5);
    let x = random(&device, [2, 2, inputs], 1);
    let w = random(&device, [inputs, outputs], 2);
    let dy = random(&device, [2, 2, outputs], 3);
    // The loss whose gradient with regard to y is dy: the sum of dy · y.
    let loss = |x: &[f64], w: &[f64]| -> f64 {
        let y = reference(Layout::Nn, (rows, outputs, inputs), x, w);
        y.iter().zip(f64s(&dy)).map(|(y, dy)| y * dy).sum()
    };

    let dx = matmul(Layout::Nt, &dy, &w, None).unwrap();
    assert_eq!(dx.shape(), x.shape());
    let wanted = numeric_gradient(&f64s(&x), |x| loss(x, &f64s(&w)));
    assert_close(&dx, &wanted, 1e-5);

    let dw = matmul(Layout::Tn, &x, &dy, None).unwrap();
    assert_eq!(dw.shape(), w.shape());
    let wanted = numeric_gradient(&f64s(&w), |w| loss(&f64s(&x), w));
    assert_close(&dw, &wanted, 1e-5);
}

#[test]
fn a_batch_is_its_items_for_any_number_of_threads() {
    let size = (9, 20, 33);
    for layout in LAYOUTS {
        let (a_shape, b_shape) = shapes(layout, size);
        let items =
            |device: &_, shape: [usize; 2], seed| random(device, [2, 3, shape[0], shape[1]], seed);
        let device = device();
        let (a, b) = (items(&device, a_shape, 1), items(&device, b_shape, 2));
        let product = batched_matmul(layout, &a, &b).unwrap();
        assert_eq!(product.shape().dims(), [2, 3, 9, 20]);
        for item in 0..6 {
            let of = |batch: &Tensor, shape: [usize; 2]| {
                let flat = [6, shape[0], shape[1]];
                let one = batch.reshape(flat).unwrap().rows(item..item + 1).unwrap();
                one.reshape(shape).unwrap()
            };
            let wanted = matmul(layout, &of(&a, a_shape), &of(&b, b_shape), None).unwrap();
            assert_eq!(bits(&of(&product, [9, 20])), bits(&wanted));
        }
        assert_same_bits_for_any_threads(|device| {
            let (a, b) = (items(device, a_shape, 1), items(device, b_shape, 2));
            batched_matmul(layout, &a, &b).unwrap()
        });
    }
}

#[test]
fn empty_batches_and_sums_over_nothing_are_zeros() {
    let device = device();
    let product = |a: [usize; 3], b: [usize; 3]| {
        batched_matmul(Layout::Nn, &random(&device, a, 1), &random(&device, b, 2)).unwrap()
    };
    assert_eq!(product([0, 2, 3], [0, 3, 4]).shape().dims(), [0, 2, 4]);
    assert_eq!(product([2, 2, 0], [2, 0, 4]).f32s().unwrap(), [0.0; 16]);
}

#[test]
fn a_block_of_a_larger_matrix_is_read_and_written_in_place() {
    let (a, b): (Vec<f32>, Vec<f32>) = ((0..12).map(|v| v as f32).collect(), vec![1.0, 2.0]);
    let mut c = vec![-1.0; 12];
    // Columns 1 and 2 of a (3, 4) matrix, times (2, 1), into column 2 of another.
    let gemm = Gemm {
        scale: 0.5,
        ..Gemm::new(3, 1, 2)
    };
    gemm.run(
        InstructionSet::Best,
        Matrix::new(&a[1..], 4),
        Matrix::new(&b, 1),
        MatrixMut::new(&mut c[2..], 4),
    );
    assert_eq!(
        c,
        [-1., -1., 2.5, -1., -1., -1., 8.5, -1., -1., -1., 14.5, -1.]
    );
}

#[test]
#[should_panic(expected = "the right matrix is shorter than 2 x 3")]
fn a_slice_that_is_too_short_is_never_read() {
    let gemm = Gemm::new(2, 3, 2);
    gemm.run(
        InstructionSet::Best,
        Matrix::new(&[0.0; 4], 2),
        Matrix::new(&[0.0; 5], 3),
        MatrixMut::new(&mut [0.0; 6], 3),
    );
}

#[test]
fn operands_that_do_not_fit_are_refused_with_their_shapes() {
    let device = device();
    let (a, b) = (random(&device, [2, 3], 1), random(&device, [4, 5], 2));
    let message = |layout| matmul(layout, &a, &b, None).unwrap_err().to_string();
    assert_eq!(
        message(Layout::Nn),
        "matmul: operands whose inner extents agree for Nn, got [2, 3] and [4, 5]"
    );
    let fits = random(&device, [3, 5], 3);
    let bias = random(&device, [4], 4);
    assert!(matmul(Layout::Nn, &a, &fits, Some(&bias)).is_err());
    let mut sum = random(&device, [5, 2], 5);
    assert!(matmul_accumulate(Layout::Nn, &a, &fits, &mut sum).is_err());
    assert!(batched_matmul(Layout::Nn, &bias, &fits).is_err());
    let (two, three) = (random(&device, [2, 2, 2], 6), random(&device, [3, 2, 2], 7));
    assert!(batched_matmul(Layout::Nn, &two, &three).is_err());
    let huge = Tensor::zeros(&device, [0, usize::MAX, usize::MAX]).unwrap();
    let none = batched_matmul(Layout::Nn, &huge, &huge).unwrap();
    assert_eq!(none.shape(), huge.shape());

    let mut shared = random(&device, [2, 5], 8);
    let _other = shared.clone();
    let outcome = matmul_accumulate(Layout::Nn, &a, &fits, &mut shared);
    assert!(matches!(outcome, Err(Error::Shared { .. })));

    let indices = Tensor::from_u32(&device, [2, 3], vec![0; 6]).unwrap();
    let outcome = matmul(Layout::Nn, &indices, &fits, None);
    assert!(matches!(outcome, Err(Error::DType { .. })));
}

#[test]
fn products_differ_between_levels_where_the_best_is_amx() {
    for size in [(96, 100, 300), (64, 48, 4100), (300, 200, 700)] {
        for layout in LAYOUTS {
            let (a_shape, b_shape) = shapes(layout, size);
            let product = |device: &Device| {
                let (a, b) = (random(device, a_shape, 1), random(device, b_shape, 2));
                bits(&matmul(layout, &a, &b, None).unwrap())
            };
            let [vectors, _] = [InstructionSet::Avx512, InstructionSet::Avx2].map(|level| {
                let alone = product(&limited(1, level));
                let together = product(&limited(3, level));
                assert!(alone == together, "{level} {layout:?} {size:?}");
                alone
            });
            // The default level is the best one, whose bits are others where AMX computes.
            let best = product(&limited(1, InstructionSet::Best));
            assert!(best == product(&device()));
            assert_eq!(best != vectors, InstructionSet::Best.uses_amx(), "{size:?}");
        }
    }
}

#[test]
fn without_amx_batches_and_attention_use_the_vector_path_too() {
    let all = |device: &Device| {
        let (a, b) = (
            random(device, [3, 64, 64], 1),
            random(device, [3, 64, 64], 2),
        );
        let batch = batched_matmul(Layout::Nn, &a, &b).unwrap();
        let qkv = random(device, [2, 70, 3 * 128], 3);
        let (out, lse) = crate::ops::attention(&qkv, 2, None).unwrap();
        let gradient = crate::ops::attention_grad(&qkv, &out, &lse, &out, 2, None).unwrap();
        let mut sum = random(device, [64, 64], 4);
        matmul_accumulate(
            Layout::Tn,
            &a.rows(0..1).unwrap(),
            &b.rows(0..1).unwrap(),
            &mut sum,
        )
        .unwrap();
        [batch, out, gradient, sum].map(|tensor| bits(&tensor))
    };
    let [vectors, _] = [InstructionSet::Avx512, InstructionSet::Avx2].map(|level| {
        let vectors = all(&limited(1, level));
        assert!(vectors == all(&limited(3, level)));
        vectors
    });
    let best = all(&limited(1, InstructionSet::Best));
    assert!(best == all(&device()));
    for (best, vectors) in best.iter().zip(&vectors) {
        assert_eq!(best != vectors, InstructionSet::Best.uses_amx());
    }
}
