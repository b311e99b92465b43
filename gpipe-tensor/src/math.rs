//! Functions of single-precision numbers that a loop over slices can apply to many at once.
//!
//! Straight-line code without branches, in `mul_add`s: called in a loop under run-time dispatch it
//! becomes vector code, and since every operation in it is rounded the same way everywhere, the
//! scalar, AVX2 and AVX-512 forms give the same bits. What is not a number stays so.

/// Adding and subtracting this rounds a float below 2²² in magnitude to an integer, which is then
/// found in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// The lowest exponent whose exponential is a normal float; those of lower ones count as 0.
const LOWEST: f32 = -87.33;

/// ln 2 as a float, and what that float lacks.
const LN_2: [f32; 2] = [std::f32::consts::LN_2, -1.904_654_3e-9];

/// eˣ for x up to 88, within 1 ulp; 0 where that is below the smallest normal float. Wherever exponentials are taken here,
/// the largest exponent was subtracted before.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let (power, rest) = split_powers_of_two(x);
    exp_of_split(x, power, rest)
}

/// The logistic function σ(x) = 1/(1 + e^−x), and 1 − σ(x), which does not cancel: from e^−|x|, which cannot overflow.
#[inline(always)]
pub(crate) fn logistic(x: f32) -> (f32, f32) {
    let e = exp(-x.abs());
    let upper = 1.0 / (1.0 + e);
    let lower = e * upper;
    if x > 0.0 {
        (upper, lower)
    } else {
        (lower, upper)
    }
}

/// Φ(x), the probability that a standard normal variable is at most x, and e^(−x²/2), which is √2π
/// times its density.
///
/// Φ is within 1e-7, and keeps its leading digits in the far lower tail too (4e-6 of its size), where
/// ½(1 + erf(x/√2)) would cancel; the exponential is within 2 ulp.
#[inline(always)]
pub(crate) fn normal(x: f32) -> (f32, f32) {
    // The lower tail at −|x| is e^(−x²/2) times a smooth function, here a minimax polynomial in
    // u = s/(1 + s) with s = 0.34·|x| (as in Abramowitz and Stegun 7.1.26, but in what is small where
    // the tail is large): relative error 1.5e-8.
    const STRETCH: f32 = 0.34;
    const TAIL: [f32; 10] = [
        0.028_162_993,
        -0.103_884_9,
        0.111_700_156,
        -0.011_229_346,
        0.054_058_183,
        -0.163_850_77,
        -0.230_822_67,
        0.989_227_1,
        -1.173_358_7,
        0.5,
    ];
    // Beyond, the bell is 0, and the products on the way to it stay numbers.
    const FAR: f32 = 14.5;
    let magnitude = x.abs();
    let magnitude = if magnitude > FAR { FAR } else { magnitude };
    // The exponent in two parts: the rounding of a square alone costs many ulp of its exponential.
    let square = magnitude * magnitude;
    let square_rest = magnitude.mul_add(magnitude, -square);
    let exponent = -0.5 * square;
    let (power, rest) = split_powers_of_two(exponent);
    let bell = exp_of_split(exponent, power, square_rest.mul_add(-0.5, rest));
    let s = STRETCH * magnitude;
    let tail = bell * polynomial(s / (1.0 + s), &TAIL);
    (if x > 0.0 { 1.0 - tail } else { tail }, bell)
}

/// x as a multiple n of ln 2, in the low bits of the first number, and a rest of at most ½ ln 2; for x
/// from [`LOWEST`] to 88.
#[inline(always)]
fn split_powers_of_two(x: f32) -> (f32, f32) {
    let power = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = power - ROUND;
    let rest = n.mul_add(-LN_2[0], x);
    (power, n.mul_add(-LN_2[1], rest))
}

/// 2ⁿ · eʳ for what [`split_powers_of_two`] gave of x, or 0 if x is too low.
#[inline(always)]
fn exp_of_split(x: f32, power: f32, rest: f32) -> f32 {
    // Minimax for (eʳ − 1 − r) / r² on ±½ ln 2: relative error of eʳ 3e-9.
    const CURVE: [f32; 5] = [
        0.001_381_462_7,
        0.008_368_71,
        0.041_668_387,
        0.166_665_2,
        0.499_999_93,
    ];
    let curve = polynomial(rest, &CURVE);
    let value = (rest * rest).mul_add(curve, rest) + 1.0;
    // The low bits of the power are n, and those above leave with the shift: the sum has n more in its exponent.
    let scaled = f32::from_bits(value.to_bits().wrapping_add(power.to_bits() << 23));
    // A comparison lets through what is not a number.
    if x < LOWEST { 0.0 } else { scaled }
}

/// Horner's scheme, highest power first.
#[inline(always)]
fn polynomial(x: f32, coefficients: &[f32]) -> f32 {
    let (&first, rest) = coefficients.split_first().unwrap_or((&0.0, &[]));
    rest.iter().fold(first, |sum, &c| sum.mul_add(x, c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vectorised;

    /// Every 997th float in bit order, and those around which things change.
    fn sweep() -> impl Iterator<Item = f32> {
        let edges = [
            0.0,
            -0.0,
            1.0,
            14.4,
            14.5,
            88.72,
            88.73,
            103.9,
            104.1,
            87.33,
            87.4,
            1e-40,
            1e-45,
            f32::MAX,
            f32::INFINITY,
        ];
        let magnitudes = (0..f32::INFINITY.to_bits())
            .step_by(997)
            .map(f32::from_bits);
        magnitudes.chain(edges).flat_map(|x| [x, -x])
    }

    /// The distance from `wanted` in units of the last place of the float next to it; none for 0 where that is not normal.
    fn ulps(got: f32, wanted: f64) -> f64 {
        if f64::from(got) == wanted || f64::from(got) == f64::from(wanted as f32) {
            return 0.0;
        }
        if got == 0.0 && wanted < 1.001 * f64::from(f32::MIN_POSITIVE) {
            return 0.0;
        }
        let magnitude = (wanted as f32).abs().min(f32::MAX);
        let unit = f64::from(f32::from_bits(magnitude.to_bits() + 1)) - f64::from(magnitude);
        let unit = if unit.is_finite() {
            unit
        } else {
            2f64.powi(104)
        };
        (f64::from(got) - wanted).abs() / unit
    }

    #[test]
    fn exp_is_within_one_ulp() {
        for x in sweep().filter(|&x| x <= 88.0) {
            let off = ulps(exp(x), libm::exp(f64::from(x)));
            assert!(off <= 1.0, "exp({x}) is off by {off} ulp");
        }
    }

    #[test]
    fn logistic_does_not_cancel() {
        for x in sweep() {
            let (sigma, rest) = logistic(x);
            for (got, x) in [(sigma, f64::from(x)), (rest, f64::from(-x))] {
                let wanted = 1.0 / (1.0 + libm::exp(-x));
                let off = (f64::from(got) - wanted).abs();
                let most = 4e-7 * wanted + f64::from(f32::MIN_POSITIVE);
                assert!(off <= most, "of {x}: {got} for {wanted}");
            }
        }
        assert_eq!(logistic(f32::NEG_INFINITY), (0.0, 1.0));
        assert_eq!(logistic(f32::INFINITY), (1.0, 0.0));
    }

    #[test]
    fn normal_is_accurate_and_does_not_cancel_in_the_tail() {
        for x in sweep() {
            let (wide, (cumulative, bell)) = (f64::from(x), normal(x));
            let off = ulps(bell, libm::exp(-0.5 * wide * wide));
            assert!(off <= 2.0, "e^(-x²/2) at {x} is off by {off} ulp");
            let wanted = 0.5 * libm::erfc(-wide / std::f64::consts::SQRT_2);
            let off = (f64::from(cumulative) - wanted).abs();
            assert!(
                off < 1e-7_f64.min(4e-6 * wanted + f64::from(f32::MIN_POSITIVE)),
                "the normal at {x} is off by {off}"
            );
        }
    }

    #[test]
    fn what_is_not_a_number_stays_so() {
        for nan in [f32::NAN, -f32::NAN] {
            assert!(exp(nan).is_nan());
            assert!(logistic(nan).0.is_nan() && logistic(nan).1.is_nan());
            assert!(normal(nan).0.is_nan() && normal(nan).1.is_nan());
        }
    }

    #[test]
    fn vector_and_scalar_code_give_the_same_bits() {
        #[inline(always)]
        fn all(x: f32) -> [f32; 4] {
            [exp(x), logistic(x).1, normal(x).0, normal(x).1]
        }
        let xs: Vec<f32> = sweep().filter(|&x| x <= 88.0).step_by(7).collect();
        let one_by_one: Vec<[u32; 4]> = xs
            .iter()
            .map(|&x| {
                let x = std::hint::black_box(x);
                all(x).map(f32::to_bits)
            })
            .collect();
        let mut at_once = vec![[0; 4]; xs.len()];
        vectorised!({
            for (out, &x) in at_once.iter_mut().zip(&xs) {
                *out = all(x).map(f32::to_bits);
            }
        });
        assert!(at_once == one_by_one);
    }
}
