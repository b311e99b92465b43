//! Products on the tile unit compared with double precision and with the vector units.

use super::*;
use crate::testing::random_values;
use crate::{DeviceId, Host};

/// Whether AMX is missing, so that there is nothing to test; reports why.
fn unit_is_missing() -> bool {
    let missing = !InstructionSet::Best.uses_amx();
    if missing {
        eprintln!("skipped: this processor has no tile unit for bf16 (AMX)");
    }
    missing
}

/// A product, with each operand stored as it is or transposed.
struct Case {
    gemm: Gemm,
    a: Vec<f32>,
    b: Vec<f32>,
    flipped: (bool, bool),
}

impl Case {
    fn new((m, n, k): (usize, usize, usize), flipped: (bool, bool), value: fn(f32) -> f32) -> Self {
        let values = |n, seed| random_values(n, seed).into_iter().map(value).collect();
        Self {
            gemm: Gemm::new(m, n, k),
            a: values(m * k, 1),
            b: values(k * n, 2),
            flipped,
        }
    }

    fn operands(&self) -> (Matrix<'_>, Matrix<'_>) {
        let Gemm { m, n, k, .. } = self.gemm;
        let operand = |floats, rows, columns, flipped| match flipped {
            false => Matrix::new(floats, columns),
            true => Matrix::new(floats, rows).transposed(),
        };
        (
            operand(&self.a, m, k, self.flipped.0),
            operand(&self.b, k, n, self.flipped.1),
        )
    }

    /// The product on the tile unit; `begin` says whether it is added to `c`.
    fn on_tiles(&self, precision: Precision, begin: Begin<'_>, c: Vec<f32>) -> Vec<f32> {
        self.on_threads(3, precision, begin, c)
    }

    /// As [`on_tiles`](Self::on_tiles), on this many threads.
    fn on_threads(
        &self,
        threads: usize,
        precision: Precision,
        begin: Begin<'_>,
        mut c: Vec<f32>,
    ) -> Vec<f32> {
        let host = Host::with(threads, precision).unwrap();
        let device = host.device(DeviceId::Cpu).unwrap();
        let out = MatrixMut::new(&mut c, self.gemm.n);
        run(&device, self.gemm, begin, self.operands(), out).unwrap();
        c
    }

    /// The product on one thread, by the path of a host with this instruction set.
    fn alone(&self, instructions: InstructionSet) -> Vec<f32> {
        let mut c = vec![0.0; self.gemm.m * self.gemm.n];
        let (a, b) = self.operands();
        let out = MatrixMut::new(&mut c, self.gemm.n);
        self.gemm.run(instructions, a, b, out);
        c
    }

    /// Each element in double precision, and the sum of the magnitudes of its terms.
    fn exactly(&self) -> Vec<(f64, f64)> {
        let Gemm { m, n, k, .. } = self.gemm;
        let (a, b) = self.operands();
        let at = |matrix: Matrix<'_>, row: usize, column: usize| {
            let (rows, columns) = matrix.strides();
            f64::from(matrix.floats()[row * rows + column * columns])
        };
        let element = |i: usize| {
            let terms = (0..k).map(|l| at(a, i / n, l) * at(b, l, i % n));
            terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()))
        };
        (0..m * n).map(element).collect()
    }

    /// The largest error of an element, relative to the sum of the magnitudes of its terms.
    fn error(&self, got: &[f32]) -> f64 {
        let pairs = got.iter().zip(self.exactly());
        pairs.fold(0.0, |worst, (&got, (sum, size))| {
            worst.max((f64::from(got) - sum).abs() / size)
        })
    }
}

const FLIPS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// Whole blocks and all kinds of remainders; several panels, several runs of columns, divided sums.
const SIZES: [(usize, usize, usize); 9] = [
    (16, 16, 32),
    (32, 32, 64),
    (33, 47, 65),
    (17, 31, 100),
    (150, 70, 257),
    (64, 48, 4100),
    (20, 1100, 150),
    (40, 300, 700),
    (16, 1040, 2100),
];

/// Bounds of the ratio of the tile unit's error to that of a product on one thread.
///
/// Measured over the 72 cases of the test (sizes, transpositions and distributions of values): at most
/// 1.00 of the tile unit on one thread, whose bits are the same on every processor, and at most 1.55 of
/// the vector units (58 cases below 1; largest errors 6.8e-7 and 8.9e-7). The second bound leaves room
/// for the block sizes of the vector path: they follow the processor's caches and change the order of
/// its sums.
const RATIOS: [(InstructionSet, f64); 2] =
    [(InstructionSet::Best, 1.1), (InstructionSet::Avx512, 2.0)];

#[test]
fn products_are_about_as_exact_as_those_of_the_vector_units() {
    if unit_is_missing() {
        return;
    }
    // Magnitudes over 24 powers of two: every part of a float counts somewhere.
    let spread = |x: f32| x * 2.0f32.powi((x.to_bits() >> 5 & 31) as i32 - 16);
    for value in [|x| x, spread] {
        for size in SIZES {
            for flipped in FLIPS {
                let case = Case::new(size, flipped, value);
                let zeros = vec![0.0; size.0 * size.1];
                let got = case.error(&case.on_tiles(Precision::Single, Begin::Zero, zeros));
                for (others, factor) in RATIOS {
                    let usual = case.error(&case.alone(others));
                    assert!(
                        got <= (factor * usual).max(4e-7),
                        "{size:?} {flipped:?}: {got:e}, alone with `{others}` {usual:e}"
                    );
                }
            }
        }
    }
}

#[test]
fn products_of_whole_numbers_are_exact() {
    if unit_is_missing() {
        return;
    }
    let precisions = [Precision::Single, Precision::Bf16];
    for (size, precision) in SIZES
        .into_iter()
        .flat_map(|size| precisions.map(|p| (size, p)))
    {
        for flipped in FLIPS {
            let case = Case::new(size, flipped, |x| (x * 30.0).round());
            let bias: Vec<f32> = (0..size.1).map(|i| i as f32).collect();
            let before = |i: usize| (i % 7) as f32;
            let start: Vec<f32> = (0..size.0 * size.1).map(before).collect();
            type Plus<'a> = &'a dyn Fn(usize) -> f32;
            let begins: [(Begin<'_>, Plus<'_>); 3] = [
                (Begin::Zero, &|_| 0.0),
                (Begin::Sum, &before),
                (Begin::Row(&bias), &|i| bias[i % size.1]),
            ];
            for (begin, plus) in begins {
                let got = case.on_tiles(precision, begin, start.clone());
                for (i, (&got, (sum, _))) in got.iter().zip(case.exactly()).enumerate() {
                    assert_eq!(
                        f64::from(got),
                        sum + f64::from(plus(i)),
                        "{size:?} {flipped:?} {i}"
                    );
                }
            }
        }
    }
}

/// The nearest bf16, ties to even.
fn rounded(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF_0000)
}

#[test]
fn one_part_is_the_nearest_bf16() {
    if unit_is_missing() {
        return;
    }
    // These include values halfway between two bf16.
    let value = |x: f32| f32::from_bits(x.to_bits() & 0xFFFF_8000);
    for size in SIZES {
        for flipped in FLIPS {
            let given = Case::new(size, flipped, value);
            let nearest = Case::new(size, flipped, |x| {
                rounded(f32::from_bits(x.to_bits() & 0xFFFF_8000))
            });
            let got = given.on_tiles(Precision::Bf16, Begin::Zero, vec![0.0; size.0 * size.1]);
            let error = nearest.error(&got);
            assert!(error <= 3e-7, "{size:?} {flipped:?}: {error:e}");
        }
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    if unit_is_missing() {
        return;
    }
    let most_bits = f32::from_bits(u32::MAX);
    for bad in [f32::NAN, most_bits, f32::INFINITY, f32::NEG_INFINITY] {
        for precision in [Precision::Single, Precision::Bf16] {
            let mut case = Case::new((32, 32, 64), (false, false), |x| x);
            case.a[5 * 64 + 7] = bad;
            let got = case.on_tiles(precision, Begin::Zero, vec![0.0; 32 * 32]);
            for (row, values) in got.chunks_exact(32).enumerate() {
                assert!(
                    values.iter().all(|x| x.is_finite() == (row != 5)),
                    "{bad} in row {row}, {precision:?}"
                );
            }
        }
    }
    // The parts of large floats do not overflow.
    let mut case = Case::new((16, 16, 32), (false, false), |_| 0.0);
    (case.a[0], case.b[0]) = (3.4e38, 1.0);
    let got = case.on_tiles(Precision::Single, Begin::Zero, vec![0.0; 16 * 16]);
    assert_eq!(got[0], 3.4e38);
}

#[test]
fn small_products_are_left_to_the_vector_units() {
    for size in [(15, 16, 32), (16, 15, 32), (16, 16, 31)] {
        assert!(!takes(
            Gemm::new(size.0, size.1, size.2),
            InstructionSet::Best
        ));
    }
}

#[test]
fn bits_are_the_same_on_any_number_of_threads() {
    if unit_is_missing() {
        return;
    }
    for size in SIZES {
        for flipped in FLIPS {
            let case = Case::new(size, flipped, |x| x);
            let before = random_values(size.0 * size.1, 3);
            let on =
                |threads| case.on_threads(threads, Precision::Single, Begin::Sum, before.clone());
            let one = on(1);
            for threads in [2, 5, 16] {
                assert_eq!(one, on(threads), "{size:?} {flipped:?} on {threads}");
            }
        }
    }
}

#[test]
fn threads_share_blocks_evenly() {
    for threads in 1..=64 {
        for (rows, columns) in [(1, 1), (8, 32), (32, 8), (32, 32), (1, 40), (7, 5)] {
            let (row_parts, column_parts) = grid(threads, rows, columns);
            assert!(row_parts * column_parts <= threads);
            assert!(row_parts <= rows && column_parts <= columns);
            let most = rows.div_ceil(row_parts) * columns.div_ceil(column_parts);
            let least = (rows * columns).div_ceil(threads);
            assert!(
                most <= 2 * least + 4,
                "{most} and {least} of {rows}, {columns} on {threads}"
            );
        }
    }
    // Gradients of weights of a few blocks of rows are divided by columns, and products of many rows by rows.
    assert_eq!(grid(2, 8, 32), (1, 2));
    assert_eq!(grid(2, 32, 8), (2, 1));
    assert_eq!(grid(16, 32, 32), (4, 4));
}

#[test]
#[should_panic(expected = "a block of the rectangle")]
fn a_block_outside_of_its_rectangle_is_refused() {
    let mut floats = vec![0.0; 64 * 64];
    let mut c = MatrixMut::new(&mut floats, 64);
    let mut all = Rectangle::grid(&mut c, &[0..32, 32..64], &[0..32, 32..64]);
    let mut quarter = all.next().expect("the upper left quarter");
    quarter.block(&(0..32), &(16..48));
}

#[test]
#[should_panic(expected = "rectangles of the matrix")]
fn rectangles_beyond_the_matrix_are_refused() {
    let mut floats = vec![0.0; 64 * 64];
    let mut c = MatrixMut::new(&mut floats, 64);
    Rectangle::whole(&mut c, 65, 64);
}
