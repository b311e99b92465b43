//! Cosines and sines of positions, in plain double precision, which kernels repeat step by step.

use std::f64::consts::TAU;

use super::RopeScaling;

/// The angles of the pairs of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Angles {
    /// The ratio of the angles of a pair and of the one before it, unscaled: theta^(−2/H).
    pub ratio: f64,
    /// See [`RopeScaling::line`].
    pub line: [f64; 3],
}

impl Angles {
    pub(crate) fn new(ratio: f64, scaling: RopeScaling) -> Self {
        Self {
            ratio,
            line: scaling.line(),
        }
    }

    /// Whether the angles of a head of this size up to this position are below 2⁴⁸ turns, as [`cos_sin`] needs them.
    pub(in crate::ops) fn reach(self, size: usize, position: f64) -> bool {
        // Of the pair that turns the most: the first one, or the last one of a theta below 1.
        let most = self.turns(0).max(self.turns((size / 2).saturating_sub(1)));
        position * most < 2_f64.powi(48)
    }

    /// Turns (2π) of a pair at position 1: ratioⁱ/2π by repeated squaring, scaled.
    fn turns(self, pair: usize) -> f64 {
        let (mut power, mut square, mut rest) = (1.0 / TAU, self.ratio, pair);
        while rest > 0 {
            if rest % 2 == 1 {
                power *= square;
            }
            square *= square;
            rest /= 2;
        }
        let [slow, slope, offset] = self.line;
        let share = (slope * power - offset).clamp(0.0, 1.0);
        power * (slow + (1.0 - slow) * share)
    }

    /// The cosines of a position's pairs in the first half of `row`, the sines in the second.
    pub(in crate::ops) fn fill(self, position: u64, row: &mut [f32]) {
        let half = row.len() / 2;
        let (cosines, sines) = row.split_at_mut(half);
        for (pair, (cos, sin)) in cosines.iter_mut().zip(sines).enumerate() {
            (*cos, *sin) = cos_sin(position as f64 * self.turns(pair));
        }
    }
}

/// Adding and subtracting this rounds a double below 2⁵¹ in magnitude to an integer.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// Cosine and sine of 2π · `turns`, for turns below 2⁴⁸: Taylor's series within an eighth of a turn.
fn cos_sin(turns: f64) -> (f32, f32) {
    let quarters = (4.0 * turns + ROUND) - ROUND;
    let x = (turns - 0.25 * quarters) * TAU;
    let square = x * x;
    let sin = x * series(square, &SIN);
    let cos = series(square, &COS);
    let (cos, sin) = match (quarters as i64) & 3 {
        0 => (cos, sin),
        1 => (-sin, cos),
        2 => (-cos, -sin),
        _ => (sin, -cos),
    };
    (cos as f32, sin as f32)
}

/// ±1/n! for n = 13, 11, …, 1.
const SIN: [f64; 7] = [
    1.0 / 6_227_020_800.0,
    -1.0 / 39_916_800.0,
    1.0 / 362_880.0,
    -1.0 / 5040.0,
    1.0 / 120.0,
    -1.0 / 6.0,
    1.0,
];

/// ±1/n! for n = 12, 10, …, 0.
const COS: [f64; 7] = [
    1.0 / 479_001_600.0,
    -1.0 / 3_628_800.0,
    1.0 / 40_320.0,
    -1.0 / 720.0,
    1.0 / 24.0,
    -0.5,
    1.0,
];

/// Horner's scheme, without fused additions: a kernel's bits are these.
fn series(square: f64, coefficients: &[f64; 7]) -> f64 {
    let mut sum = coefficients[0];
    for c in &coefficients[1..] {
        sum = sum * square + c;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_and_sines_are_exact_to_the_float() {
        for i in -40_000..40_000_i32 {
            let turns = f64::from(i) * 0.000_371 + 0.25 * f64::from(i % 5);
            let (cos, sin) = cos_sin(turns);
            let angle = (turns - turns.round()) * TAU;
            assert!((f64::from(cos) - angle.cos()).abs() < 4e-8, "{turns}");
            assert!((f64::from(sin) - angle.sin()).abs() < 4e-8, "{turns}");
        }
    }

    #[test]
    fn pairs_turn_by_powers_of_theta() {
        let angles = Angles::new(1e5_f64.powf(-2.0 / 64.0), RopeScaling::Unscaled);
        for pair in [0, 1, 2, 5, 31] {
            let wanted = 1e5_f64.powf(-2.0 * pair as f64 / 64.0) / TAU;
            assert!((angles.turns(pair) / wanted - 1.0).abs() < 1e-13);
        }
    }

    #[test]
    fn slow_pairs_turn_slower() {
        let scaling = RopeScaling::Llama3 {
            factor: 32.0,
            low_frequency: 1.0,
            high_frequency: 4.0,
            original_positions: 8192,
        };
        let ratio = 5e5_f64.powf(-2.0 / 64.0);
        let [plain, scaled, linear] = [
            RopeScaling::Unscaled,
            scaling,
            RopeScaling::Linear { factor: 8.0 },
        ]
        .map(|scaling| Angles::new(ratio, scaling));
        let mut kinds = [0; 3];
        for pair in 0..32 {
            let turns = plain.turns(pair);
            assert!((linear.turns(pair) / turns * 8.0 - 1.0).abs() < 1e-13);
            // As Llama 3.1 states it, by wavelengths.
            let length = turns.recip();
            let (kind, wanted) = match length {
                _ if length < 8192.0 / 4.0 => (0, turns),
                _ if length > 8192.0 => (1, turns / 32.0),
                _ => {
                    let smooth = (8192.0 / length - 1.0) / (4.0 - 1.0);
                    (2, (1.0 - smooth) * turns / 32.0 + smooth * turns)
                }
            };
            kinds[kind] += 1;
            assert!(
                (scaled.turns(pair) / wanted - 1.0).abs() < 1e-13,
                "pair {pair}"
            );
        }
        assert!(kinds.iter().all(|&count| count > 1), "{kinds:?}");
    }
}
