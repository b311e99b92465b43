//! Products by vectors compared with double precision, and their bits in parts.

use super::*;
use crate::testing::{limited, random_values};

/// (m, n, k): exact tiles, edges of tiles, several runs of columns and of inner elements, a few steps.
const SIZES: [(usize, usize, usize); 6] = [
    (192, 128, 64),
    (133, 141, 67),
    (128, 2100, 530),
    (300, 131, 1500),
    (1, 1, 1),
    (7, 17, 3),
];

/// All instructions that this processor has; else reports that there is nothing to test.
fn instructions() -> Vec<Instructions> {
    let avx2 = V3::try_new().map(Instructions::Avx2);
    let avx512 = V4::try_new().map(Instructions::Avx512);
    if avx2.is_none() {
        eprintln!("skipped: this processor has no AVX2");
    }
    avx2.into_iter().chain(avx512).collect()
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
    instructions: Instructions,
    gemm: Gemm,
    threads: usize,
    begin: Begin<'_>,
    operands: (Matrix<'_>, Matrix<'_>),
) -> Vec<f32> {
    let stride = gemm.n + 3;
    let mut c = random_values(gemm.m * stride, 3);
    let device = limited(threads, InstructionSet::Best);
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
                        f64::from(a) * f64::from(b.floats[l * b.row_stride + j * b.column_stride])
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
fn large_products_are_taken_by_the_best_instructions_allowed() {
    let large = Gemm::new(192, 128, 64);
    let takes = |gemm, allowed| match takes(gemm, allowed) {
        Some(Instructions::Avx512(_)) => 16,
        Some(Instructions::Avx2(_)) => 8,
        None => 0,
    };
    let avx2 = if V3::try_new().is_some() { 8 } else { 0 };
    let best = if V4::try_new().is_some() { 16 } else { avx2 };
    assert_eq!(takes(large, InstructionSet::Avx2), avx2);
    assert_eq!(takes(large, InstructionSet::Avx512), best);
    for small in [
        Gemm { m: 191, ..large },
        Gemm { n: 127, ..large },
        Gemm { k: 63, ..large },
    ] {
        assert_eq!(takes(small, InstructionSet::Avx512), 0);
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
