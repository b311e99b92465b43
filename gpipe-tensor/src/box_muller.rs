//! Pairs of normally distributed numbers of pairs of random words, by the method of Box and Muller.
//!
//! The bits are those of [`exact`], in which the system's library computes logarithm, sine and cosine one at a time. A
//! block is computed here in vectors of doubles first, whose error is far below the precision of a float: where both
//! bounds of the error round to the same float, so does the library's result.

use std::f64::consts::{LN_2, SQRT_2, TAU};

use crate::simd::vectorised;

/// From 32 bits to the unit interval.
pub(crate) const UNIT: f64 = 1.0 / (1u64 << 32) as f64;

/// Pairs that are computed side by side.
const PAIRS: usize = 16;

/// A bound of what [`block`] and [`exact`] differ by, relative to radius and standard deviation.
///
/// Each is a few roundings of 2⁻⁵³ off the number that it stands for; the largest is that of an angle near 2π, 2⁻⁵¹.
/// Together they are below 2⁻⁴⁸.
const DIFFERENCE: f64 = 1.0 / (1u64 << 45) as f64;

/// Writes a normally distributed number of mean 0 and standard deviation `std` for each word of `bits`: number 2i and
/// 2i + 1 are functions of the words 2i and 2i + 1. A last number without a partner takes `bits` that has one.
pub(crate) fn normal(bits: &[u32], std: f64, values: &mut [f32]) {
    let mut numbers = [0.0; 2 * PAIRS];
    for (values, bits) in values.chunks_mut(2 * PAIRS).zip(bits.chunks(2 * PAIRS)) {
        let is_sure = match bits.try_into() {
            Ok(bits) => vectorised!(block(bits, std, &mut numbers)),
            Err(_) => false,
        };
        if !is_sure {
            for (numbers, pair) in numbers.chunks_exact_mut(2).zip(bits.chunks_exact(2)) {
                numbers.copy_from_slice(&exact([pair[0], pair[1]], std));
            }
        }
        values.copy_from_slice(&numbers[..values.len()]);
    }
}

/// The numbers of a pair of words.
fn exact(pair: [u32; 2], std: f64) -> [f32; 2] {
    // From (0, 1], so that the logarithm is finite.
    let radius = (-2.0 * ((f64::from(pair[0]) + 1.0) * UNIT).ln()).sqrt();
    let angle = TAU * f64::from(pair[1]) * UNIT;
    [angle.cos(), angle.sin()].map(|direction| (std * radius * direction) as f32)
}

/// The numbers of a block, and whether all of them are sure to be those of [`exact`].
#[inline(always)]
fn block(bits: &[u32; 2 * PAIRS], std: f64, numbers: &mut [f32; 2 * PAIRS]) -> bool {
    let (mut radii, mut turns) = ([0.0; PAIRS], [0; PAIRS]);
    for i in 0..PAIRS {
        radii[i] = std * (-2.0 * logarithm((f64::from(bits[2 * i]) + 1.0) * UNIT)).sqrt();
        turns[i] = bits[2 * i + 1];
    }
    let mut unsure = 0;
    for i in 0..PAIRS {
        let (cosine, sine) = cosine_and_sine(turns[i]);
        let difference = radii[i] * DIFFERENCE;
        let [x, y] = [radii[i] * cosine, radii[i] * sine];
        let (low_x, low_y) = ((x - difference) as f32, (y - difference) as f32);
        let (high_x, high_y) = ((x + difference) as f32, (y + difference) as f32);
        // By bits, which also tell the zeros apart.
        unsure |= low_x.to_bits() ^ high_x.to_bits() | low_y.to_bits() ^ high_y.to_bits();
        numbers[2 * i] = low_x;
        numbers[2 * i + 1] = low_y;
    }
    unsure == 0
}

/// ln u for normal numbers u: a multiple of ln 2, and the logarithm of a rest in √½..√2, which is
/// 2 artanh((rest − 1) / (rest + 1)).
#[inline(always)]
fn logarithm(u: f64) -> f64 {
    const FRACTION_BITS: u32 = 52;
    let above = u.to_bits().wrapping_sub((SQRT_2 / 2.0).to_bits()) as i64;
    let exponent = (above >> FRACTION_BITS) as i32;
    let shift = (i64::from(exponent) << FRACTION_BITS) as u64;
    let rest = f64::from_bits(u.to_bits().wrapping_sub(shift)) - 1.0;
    let s = rest / (rest + 2.0);
    let z = s * s;
    // artanh(s) / s up to s²⁰; the next term is below 2⁻⁶⁰.
    let mut sum = 1.0 / 21.0;
    for odd in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = sum * z + 1.0 / odd;
    }
    f64::from(exponent) * LN_2 + 2.0 * s * sum
}

/// Cosine and sine of this part of 2³² of a turn: by Taylor's series on ±π/4, from the nearest quarter.
#[inline(always)]
fn cosine_and_sine(turn: u32) -> (f64, f64) {
    let quarter = turn.wrapping_add(1 << 29) >> 30;
    let rest = turn.wrapping_sub(quarter << 30) as i32;
    let x = f64::from(rest) * (TAU * UNIT);
    let z = x * x;
    // The next terms are below 2⁻⁵⁷.
    let (mut cosine, mut sine) = (1.0, 1.0);
    for k in [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0] {
        cosine = 1.0 - cosine * z * (1.0 / (2.0 * k * (2.0 * k - 1.0)));
        sine = 1.0 - sine * z * (1.0 / (2.0 * k * (2.0 * k + 1.0)));
    }
    sine *= x;
    let (c, s) = match quarter & 1 == 0 {
        true => (cosine, sine),
        false => (sine, cosine),
    };
    let sign = |of: u32| f64::from_bits(u64::from(of & 2) << 62);
    let signed = |value: f64, of: u32| f64::from_bits(value.to_bits() ^ sign(of).to_bits());
    (signed(c, quarter.wrapping_add(1)), signed(s, quarter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::Key;

    /// Words at which branches, signs and precision change, each beside all others.
    fn edges() -> Vec<u32> {
        let mut words = vec![];
        for base in (0..8).map(|eighth| eighth << 29).chain([3_037_000_499]) {
            words.extend((0..7).map(|i| u32::wrapping_add(base, i).wrapping_sub(3)));
        }
        words
    }

    fn expected(bits: &[u32], std: f64) -> Vec<u32> {
        let pairs = bits.chunks_exact(2);
        let numbers = pairs.flat_map(|pair| exact([pair[0], pair[1]], std));
        numbers.map(f32::to_bits).collect()
    }

    fn found(bits: &[u32], std: f64) -> Vec<u32> {
        let mut values = vec![0.0; bits.len()];
        normal(bits, std, &mut values);
        values.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn every_bit_is_that_of_the_systems_library() {
        let words = edges();
        let pairs = words
            .iter()
            .flat_map(|&a| words.iter().flat_map(move |&b| [a, b]));
        let mut bits: Vec<u32> = pairs.collect();
        let edges = bits.len();
        bits.resize(edges + if cfg!(miri) { 200 } else { 1_000_000 }, 0);
        Key::new(3, "w", 0).sample(0).fill(0, &mut bits[edges..]);
        for std in [1.0, 0.02, 1e30, 1e-39, 1e-300, 0.0] {
            let bits = if std == 1.0 {
                &bits
            } else {
                &bits[..edges + 200]
            };
            assert!(expected(bits, std) == found(bits, std), "{std}");
        }
    }

    #[test]
    fn most_blocks_are_sure() {
        let mut bits = vec![0; 2 * PAIRS * 1000];
        Key::new(4, "w", 0).sample(0).fill(0, &mut bits);
        let mut numbers = [0.0; 2 * PAIRS];
        let blocks = bits.chunks_exact(2 * PAIRS);
        let sure = blocks.filter(|bits| block((*bits).try_into().unwrap(), 0.02, &mut numbers));
        assert!(sure.count() > 990);
    }

    #[test]
    fn the_difference_is_a_multiple_of_what_is_found() {
        let mut bits = vec![0; 40_000];
        Key::new(5, "w", 0).sample(0).fill(0, &mut bits);
        for pair in bits.chunks_exact(2) {
            let u = (f64::from(pair[0]) + 1.0) * UNIT;
            let angle = TAU * f64::from(pair[1]) * UNIT;
            let (cosine, sine) = cosine_and_sine(pair[1]);
            for (here, there, size) in [
                (logarithm(u), u.ln(), u.ln().abs()),
                (cosine, angle.cos(), 1.0),
                (sine, angle.sin(), 1.0),
            ] {
                assert!((here - there).abs() <= size * DIFFERENCE / 8.0, "{pair:?}");
            }
        }
    }

    #[test]
    fn a_number_does_not_depend_on_its_block() {
        let mut bits = vec![0; 100];
        Key::new(6, "w", 0).sample(0).fill(0, &mut bits);
        let all = found(&bits, 1.0);
        let mut some = vec![0.0; 69];
        normal(&bits[..70], 1.0, &mut some);
        let some: Vec<u32> = some.into_iter().map(f32::to_bits).collect();
        assert_eq!(all[..69], some);
    }
}
