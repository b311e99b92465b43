//! Products in pieces for several threads.

use super::*;
use crate::testing::{device_with, random_values};

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
            let on = |threads| {
                let mut c = random_values(m * n, 3);
                let out = MatrixMut::new(&mut c, n);
                gemm.on_threads(threads, &device_with(threads), operands, out);
                c.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let whole = on(1);
            for threads in [2, 3, 8] {
                assert!(on(threads) == whole, "({m}, {n}, {k}) on {threads} threads");
            }
        }
    }
}
