//! Products by vectors compared with double precision, and their bits in parts.

use super::*;
use crate::testing::random_values;
use crate::{DeviceId, Host};

/// (m, n, k): exact tiles, edges of tiles, several runs of columns and of inner elements, a few steps.
const SIZES: [(usize, usize, usize); 6] = [
    (192, 128, 64),
    (133, 141, 67),
    (128, 2100, 530),
    (300, 131, 1500),
    (1, 1, 1),
    (7, 17, 3),
];

/// AVX-512 where a host may have products by pairs of bf16.
fn with_pairs() -> Option<V4> {
    let has_pairs = |&simd: &V4| Bf16Pairs::new(simd).is_some() && Precision::Bf16.is_available();
    V4::try_new().filter(has_pairs)
}

/// All instructions that this processor has, and the precisions of their factors; else reports that there is nothing to test.
fn instructions() -> Vec<(Instructions, Precision)> {
    let avx2 = V3::try_new().map(Instructions::Avx2);
    let avx512 = V4::try_new().map(Instructions::Avx512);
    let pairs = with_pairs();
    if avx2.is_none() {
        eprintln!("skipped: this processor has no AVX2");
    }
    if pairs.is_none() {
        eprintln!("skipped: this processor has no AVX512-BF16 that is worth while");
    }
    let single = avx2.into_iter().chain(avx512);
    let single = single.map(|instructions| (instructions, Precision::Single));
    let pairs = pairs.map(|simd| (Instructions::Avx512(simd), Precision::Bf16));
    single.chain(pairs).collect()
}

/// What becomes of a float: the nearest bf16, ties to even, or itself.
fn rounded(precision: Precision, x: f32) -> f32 {
    let bits = x.to_bits();
    match precision {
        Precision::Single => x,
        Precision::Bf16 => f32::from_bits((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF_0000),
    }
}

/// A matrix of `rows` by `columns` as it lies in memory: in rows, in columns, or with room between all elements.
fn operand(floats: &[f32], rows: usize, columns: usize, layout: usize) -> Matrix<'_> {
    let plain = Matrix::new(floats, columns);
    match layout {
        0 => plain,
        1 => Matrix::new(floats, rows).transposed(),
        _ => Matrix {
            row_stride: 2 * columns + 1,
            column_stride: 2,
            ..plain
        },
    }
}

/// The product in rows of n + 3 floats, on this many threads.
fn product(
    (instructions, precision): (Instructions, Precision),
    gemm: Gemm,
    threads: usize,
    begin: Begin<'_>,
    operands: (Matrix<'_>, Matrix<'_>),
) -> Vec<f32> {
    let stride = gemm.n + 3;
    let mut c = random_values(gemm.m * stride, 3);
    let host = Host::with(threads, precision).unwrap();
    let device = host.device(DeviceId::Cpu).unwrap();
    let out = MatrixMut::new(&mut c, stride);
    run(instructions, &device, gemm, begin, operands, out).unwrap();
    c
}

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn products_equal_double_precision_for_every_layout_and_beginning() {
    let cases = instructions()
        .into_iter()
        .flat_map(|instructions| SIZES.map(|size| (instructions, size)));
    for (instructions, (m, n, k)) in cases {
        let room = |rows: usize, columns: usize| rows * (2 * columns + 1);
        let (a, b) = (random_values(room(m, k), 1), random_values(room(k, n), 2));
        let row = random_values(n, 4);
        let stride = n + 3;
        let before = random_values(m * stride, 3);
        for (a_layout, b_layout) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)] {
            let (a, b) = (operand(&a, m, k, a_layout), operand(&b, k, n, b_layout));
            for begin in [Begin::Zero, Begin::Sum, Begin::Row(&row)] {
                let c = product(instructions, Gemm::new(m, n, k), 2, begin, (a, b));
                for place in (0..m * stride).step_by(89) {
                    let (i, j) = (place / stride, place % stride);
                    if j >= n {
                        assert_eq!(c[place].to_bits(), before[place].to_bits());
                        continue;
                    }
                    let begin = match begin {
                        Begin::Zero => 0.0,
                        Begin::Sum => f64::from(before[place]),
                        Begin::Row(row) => f64::from(row[j]),
                    };
                    let terms = (0..k).map(|l| {
                        let a = a.floats[i * a.row_stride + l * a.column_stride];
                        let b = b.floats[l * b.row_stride + j * b.column_stride];
                        let [a, b] = [a, b].map(|x| f64::from(rounded(instructions.1, x)));
                        a * b
                    });
                    let (sum, size) = terms.fold((begin, begin.abs()), |(sum, size), x| {
                        (sum + x, size + x.abs())
                    });
                    let error = (f64::from(c[place]) - sum).abs();
                    assert!(error <= 1e-6 * size, "({m}, {n}, {k}): {error} at {i}, {j}");
                }
            }
        }
    }
}

#[test]
fn neither_threads_nor_other_rows_and_columns_change_the_bits_of_an_element() {
    let cases = instructions()
        .into_iter()
        .flat_map(|instructions| SIZES.map(|size| (instructions, size)));
    for (instructions, (m, n, k)) in cases {
        let (a, b) = (random_values(m * k, 1), random_values(k * n, 2));
        let operands = (Matrix::new(&a, k), Matrix::new(&b, n));
        let whole = product(instructions, Gemm::new(m, n, k), 1, Begin::Zero, operands);
        for threads in [2, 3, 16] {
            let c = product(
                instructions,
                Gemm::new(m, n, k),
                threads,
                Begin::Zero,
                operands,
            );
            assert!(
                bits(&c) == bits(&whole),
                "({m}, {n}, {k}) on {threads} threads"
            );
        }
        // The last rows and columns alone.
        let (row, column) = (m / 3, n / 3);
        let part = Gemm::new(m - row, n - column, k);
        let operands = (Matrix::new(&a[row * k..], k), Matrix::new(&b[column..], n));
        let c = product(instructions, part, 1, Begin::Zero, operands);
        for (c, whole) in c.chunks(part.n + 3).zip(whole.chunks(n + 3).skip(row)) {
            assert!(
                bits(&c[..part.n]) == bits(&whole[column..n]),
                "({m}, {n}, {k})"
            );
        }
    }
}

#[test]
fn pairs_of_what_is_not_finite_stay_so_and_halves_go_to_even() {
    let Some(simd) = with_pairs() else {
        eprintln!("skipped: this processor has no AVX512-BF16 that is worth while");
        return;
    };
    let (m, n, k) = (24, 40, 65);
    let of = |values: Vec<f32>| {
        let ones = vec![1.0; k * n];
        let operands = (Matrix::new(&values, k), Matrix::new(&ones, n));
        let instructions = (Instructions::Avx512(simd), Precision::Bf16);
        product(instructions, Gemm::new(m, n, k), 1, Begin::Zero, operands)
    };
    // The least bits of a NaN are all that tells it from infinity.
    let low_bits = f32::from_bits(0x7F80_0001);
    for bad in [f32::NAN, f32::from_bits(u32::MAX), low_bits] {
        for place in [7, k - 1] {
            let mut values = vec![1.0; m * k];
            values[5 * k + place] = bad;
            for (row, c) in of(values).chunks(n + 3).enumerate() {
                assert!(c[..n].iter().all(|x| x.is_nan() == (row == 5)), "{bad}");
            }
        }
    }
    for (value, expected) in [
        (f32::INFINITY, f32::INFINITY),
        (f32::MAX, f32::INFINITY),
        (1.0 + 1.0 / 256.0, 1.0),
        (1.0 + 3.0 / 256.0, 1.0 + 1.0 / 64.0),
        (-2.0, -2.0),
    ] {
        let mut values = vec![0.0; m * k];
        values[23 * k + 64] = value;
        assert_eq!(of(values)[23 * (n + 3)..][..n], [expected; 40]);
    }
}

#[test]
fn large_products_are_taken_by_the_best_instructions_allowed() {
    let takes = |gemm, precision, allowed| {
        let host = Host::with(1, precision).and_then(|host| host.with_instruction_set(allowed));
        match takes(gemm, &host.unwrap()) {
            Some(Instructions::Avx512(_)) => 16,
            Some(Instructions::Avx2(_)) => 8,
            None => 0,
        }
    };
    let avx2 = if V3::try_new().is_some() { 8 } else { 0 };
    let best = if V4::try_new().is_some() { 16 } else { avx2 };
    let single = (Precision::Single, Gemm::new(192, 128, 64));
    let pairs = (Precision::Bf16, Gemm::new(64, 32, 32));
    assert_eq!(takes(single.1, single.0, InstructionSet::Avx2), avx2);
    let has_pairs = Precision::Bf16.is_available_with(InstructionSet::Avx512);
    for (precision, least) in [single].into_iter().chain(has_pairs.then_some(pairs)) {
        assert_eq!(takes(least, precision, InstructionSet::Avx512), best);
        let Gemm { m, n, k, .. } = least;
        for smaller in [(m - 1, n, k), (m, n - 1, k), (m, n, k - 1)] {
            let smaller = Gemm::new(smaller.0, smaller.1, smaller.2);
            assert_eq!(takes(smaller, precision, InstructionSet::Avx512), 0);
        }
    }
}

#[test]
fn items_hold_all_rows_once_and_become_smaller_towards_the_end_of_a_part() {
    assert_eq!(
        rows_of_items(0..14, (6, 1), (12, 165)),
        [0..72, 72..144, 144..165]
    );
    let few = [60..96, 96..114, 114..120, 120..126, 126..132];
    assert_eq!(rows_of_items(10..22, (6, 2), (6, 200)), few);
    for (rows, threads) in [(1_usize, 1), (1, 16), (260, 16), (1024, 2), (8400, 3)] {
        let parts: Vec<_> = even_parts(rows.div_ceil(12), threads)
            .map(|tiles| rows_of_items(tiles, (6, threads), (12, rows)))
            .collect();
        let all: Vec<usize> = parts.iter().flatten().cloned().flatten().collect();
        assert_eq!(
            all,
            Vec::from_iter(0..rows),
            "{rows} rows, {threads} threads"
        );
        for items in parts {
            assert!(items.is_sorted_by_key(|item| std::cmp::Reverse(item.len())));
            assert!(items.iter().all(|item| (1..=72).contains(&item.len())));
        }
    }
}
