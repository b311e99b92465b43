//! Products in pieces for several threads.

use super::*;
use crate::testing::{device_with, limited, random_values};

#[test]
fn pieces_are_all_of_the_result_and_none_is_small() {
    let sizes = [
        (1, 1),
        (0, 5),
        (257, 9),
        (9, 1025),
        (1, 4096),
        (4096, 1),
        (385, 384),
    ];
    for (m, n) in sizes {
        for threads in [1, 2, 3, 8, 64] {
            let mut covered = vec![0; m * n];
            let mut count = 0;
            for (rows, columns) in Gemm::new(m, n, 7).pieces(threads) {
                count += 1;
                let longer = rows.len().max(columns.len());
                assert!(longer == m.max(n) || longer > 64);
                for row in rows {
                    (columns.clone()).for_each(|column| covered[row * n + column] += 1);
                }
            }
            assert!(covered.iter().all(|&times| times == 1), "{m} x {n}");
            let is_whole = threads == 1 || m.max(n) < 256 || m.min(n) < 4;
            assert_eq!(count == 1, is_whole, "{m} x {n} on {threads}");
            assert!(count <= threads);
        }
    }
}

/// What processors without a unit for products do with large ones.
#[test]
fn pieces_have_the_bits_of_the_whole() {
    let layouts = [(false, false), (true, false), (false, true)];
    for (m, n, k) in [
        (300, 200, 700),
        (33, 1025, 257),
        (1500, 5, 96),
        (4, 600, 1030),
        (1, 900, 64),
    ] {
        let (a, b) = (random_values(m * k, 1), random_values(k * n, 2));
        for (a_flipped, b_flipped) in layouts {
            let operand = |floats, rows, columns, is_flipped| match is_flipped {
                false => Matrix::new(floats, columns),
                true => Matrix::new(floats, rows).transposed(),
            };
            let operands = (operand(&a, m, k, a_flipped), operand(&b, k, n, b_flipped));
            let gemm = Gemm {
                accumulate: true,
                ..Gemm::new(m, n, k)
            };
            let begin = random_values(m * n, 3);
            let exact = |row: usize, column: usize| {
                let (a, b) = operands;
                let product = |i| {
                    let a = a.floats[row * a.row_stride + i * a.column_stride];
                    f64::from(a) * f64::from(b.floats[i * b.row_stride + column * b.column_stride])
                };
                (0..k).map(product).sum::<f64>() + f64::from(begin[row * n + column])
            };
            for level in [InstructionSet::Best, InstructionSet::Avx2] {
                let on = |threads| {
                    let mut c = begin.clone();
                    let out = MatrixMut::new(&mut c, n);
                    gemm.on_threads(threads, &limited(threads, level), operands, out);
                    c
                };
                let whole = on(1);
                for place in (0..m * n).step_by(97) {
                    let exact = exact(place / n, place % n);
                    let error = (f64::from(whole[place]) - exact).abs();
                    assert!(
                        error < 1e-3,
                        "{level} ({m}, {n}, {k}): {error} off at {place}"
                    );
                }
                let bits = |c: Vec<f32>| c.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                let whole = bits(whole);
                for threads in [2, 3, 8] {
                    let same = bits(on(threads)) == whole;
                    assert!(same, "{level} ({m}, {n}, {k}) on {threads} threads");
                }
            }
        }
    }
}

#[test]
fn a_product_by_way_of_rows_has_the_bits_of_the_plain_one() {
    for (m, n, k) in [
        (65, 64, 64),
        (130, 2100, 77),
        (100, 1025, 530),
        (257, 96, 1030),
    ] {
        let (a, b) = (random_values(m * k, 1), random_values(k * n, 2));
        let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, k).transposed());
        assert!(Gemm::new(m, n, k).is_faster_from_rows(b));
        for accumulate in [false, true] {
            let gemm = Gemm {
                accumulate,
                ..Gemm::new(m, n, k)
            };
            // Rows that begin further apart keep what lies between them.
            let stride = n + 3;
            let begin = random_values(m * stride, 3);
            for level in [InstructionSet::Best, InstructionSet::Avx2] {
                let mut plain = begin.clone();
                gemm.alone(level, a, b, MatrixMut::new(&mut plain, stride));
                for threads in [1, 3] {
                    let mut c = begin.clone();
                    let out = MatrixMut::new(&mut c, stride);
                    gemm.run_from_rows(&limited(threads, level), (a, b), out)
                        .unwrap();
                    let bits = |c: &[f32]| c.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    let same = bits(&c) == bits(&plain);
                    assert!(same, "{level} ({m}, {n}, {k}) on {threads} threads");
                }
            }
        }
    }
}

#[test]
fn a_transposed_product_has_the_bits_of_the_plain_one() {
    for (m, n, k) in [
        (2, 64, 512),
        (7, 300, 1030),
        (33, 129, 515),
        (128, 257, 2049),
    ] {
        let (a, b) = (random_values(m * k, 1), random_values(k * n, 2));
        let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, k).transposed());
        let gemm = Gemm::new(m, n, k);
        assert!(gemm.is_faster_transposed(a, b));
        let row = random_values(n, 3);
        for begin in [Begin::Zero, Begin::Row(&row)] {
            let mut plain = random_values(m * n, 4);
            let mut out = MatrixMut::new(&mut plain, n);
            (0..m).for_each(|i| begin.row(out.row(i, n)));
            let accumulating = Gemm {
                accumulate: !matches!(begin, Begin::Zero),
                ..gemm
            };
            accumulating.alone(InstructionSet::Best, a, b, out);
            // Rows that begin further apart keep what lies between them.
            let stride = n + 3;
            for threads in [1, 3] {
                let device = device_with(threads);
                let mut wide = vec![9.0; m * stride];
                let out = MatrixMut::new(&mut wide, stride);
                gemm.run_transposed(&device, begin, (a, b), out).unwrap();
                for (wide, plain) in wide.chunks(stride).zip(plain.chunks(n)) {
                    let bits =
                        |floats: &[f32]| floats.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&wide[..n]), bits(plain), "({m}, {n}, {k})");
                    assert_eq!(wide[n..], [9.0; 3]);
                }
            }
        }
    }
}
