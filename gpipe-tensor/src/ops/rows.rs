//! Reductions of one row of floats, in a fixed order: element i of all whole chunks goes to lane
//! i % [`LANES`]; the rest is reduced one by one, and then the lanes. To be called where vector
//! instructions are on.

use crate::math::exp;

/// Partial results that are carried side by side: enough to hide the latency of an addition.
pub(super) const LANES: usize = 16;

/// Exponentials that are summed in single precision before their sum joins one in double.
pub(super) const RUN: usize = 1024;

/// Σ x
#[inline(always)]
pub(super) fn sum(x: &[f32]) -> f32 {
    reduce(x, 0.0, plus, plus)
}

/// Σ (x − center)²
#[inline(always)]
pub(super) fn sum_of_squares_around(x: &[f32], center: f32) -> f32 {
    reduce(
        x,
        0.0,
        #[inline(always)]
        |sum, x| {
            let distance = x - center;
            distance.mul_add(distance, sum)
        },
        plus,
    )
}

/// The largest element, −∞ for none; what is not a number is passed over.
#[inline(always)]
pub(super) fn max(x: &[f32]) -> f32 {
    reduce(x, f32::NEG_INFINITY, larger, larger)
}

/// Σ a · b
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] = a[i].mul_add(b[i], lanes[i]);
        }
    }
    let mut sum = 0.0f32;
    for (a, b) in a_rest.iter().zip(b_rest) {
        sum = a.mul_add(*b, sum);
    }
    join(lanes, sum, plus)
}

/// Puts e^(x − shift) in the place of every x, and gives their sum.
#[inline(always)]
pub(super) fn exponentials(row: &mut [f32], shift: f32) -> f64 {
    let mut total = 0.0;
    for run in row.chunks_mut(RUN) {
        for x in run.iter_mut() {
            *x = exp(*x - shift);
        }
        total += f64::from(sum(run));
    }
    total
}

#[inline(always)]
fn reduce(
    x: &[f32],
    start: f32,
    step: impl Fn(f32, f32) -> f32,
    merge: impl Fn(f32, f32) -> f32,
) -> f32 {
    let mut lanes = [start; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = step(lanes[i], chunk[i]);
        }
    }
    let mut joined = start;
    for &x in rest {
        joined = step(joined, x);
    }
    join(lanes, joined, merge)
}

/// The lanes merged in columns of four, and these one by one into what the rest gave. A tree would be
/// shorter, but it leads the compiler to pair up neighbours, and the loop before it ends up with
/// narrow vectors.
#[inline(always)]
pub(super) fn join(lanes: [f32; LANES], rest: f32, merge: impl Fn(f32, f32) -> f32) -> f32 {
    let mut joined = rest;
    let mut columns = [0.0; 4];
    for (i, column) in columns.iter_mut().enumerate() {
        *column = merge(lanes[i], lanes[i + 4]);
        *column = merge(*column, lanes[i + 8]);
        *column = merge(*column, lanes[i + 12]);
    }
    for column in columns {
        joined = merge(joined, column);
    }
    joined
}

#[inline(always)]
pub(super) fn plus(a: f32, b: f32) -> f32 {
    a + b
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vectorised;
    use crate::testing::random_values;

    const LENGTHS: [usize; 12] = [0, 1, 15, 16, 17, 31, 32, 33, 100, 1023, 1025, 3000];

    /// All reductions of the values, as bits.
    #[inline(always)]
    fn reductions(a: &[f32], b: &[f32]) -> [u64; 5] {
        let floats = [sum(a), sum_of_squares_around(a, 0.25), max(a), dot(a, b)];
        let [a_sum, squares, largest, product] = floats.map(|x| u64::from(x.to_bits()));
        let exponentials = exponentials(&mut a.to_vec(), 1.0).to_bits();
        [a_sum, squares, largest, product, exponentials]
    }

    #[test]
    fn vector_and_scalar_code_give_the_same_bits() {
        for n in LENGTHS {
            let (a, b) = (random_values(n, 1), random_values(n, 2));
            let vector = vectorised!(reductions(&a, &b));
            assert_eq!(vector, reductions(&a, &b), "{n} elements");
        }
    }

    #[test]
    fn reductions_equal_plain_loops() {
        for n in LENGTHS {
            let (a, b) = (random_values(n, 1), random_values(n, 2));
            let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let (x, y) = (wide(&a), wide(&b));
            let near = |got: f64, wanted: f64| {
                assert!(
                    (got - wanted).abs() <= 1e-6 * wanted.abs().max(30.0),
                    "{n}: {got}, {wanted}"
                );
            };
            near(sum(&a).into(), x.iter().sum());
            let squares = x.iter().map(|x| (x - 0.25) * (x - 0.25)).sum();
            near(sum_of_squares_around(&a, 0.25).into(), squares);
            near(
                dot(&a, &b).into(),
                x.iter().zip(&y).map(|(x, y)| x * y).sum(),
            );
            near(
                exponentials(&mut a.clone(), 1.0),
                x.iter().map(|x| (x - 1.0).exp()).sum(),
            );
            let largest = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(max(&a), largest);
        }
    }
}
