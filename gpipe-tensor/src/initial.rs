//! Initial values: functions of the seed, the parameter's name and the element's index alone, so
//! that no cut of the model into stages changes them.

use crate::box_muller::{UNIT, normal};
use crate::parallel::{CHUNK, for_each};
use crate::philox::Key;
use crate::simd::vectorised;
use crate::{Device, Error, Result, Shape, Tensor};

/// The step that stands for "before the first" in the keys of initial values.
const BEFORE_ALL_STEPS: u64 = u64::MAX;

/// Normally distributed values of mean 0 and this standard deviation (Box and Muller's method, in
/// double precision).
///
/// # Errors
/// [`Error::Argument`] unless `std` is finite and not negative; errors of allocation.
pub fn init_normal(
    device: &Device,
    shape: impl Into<Shape>,
    std: f64,
    seed: u64,
    name: &str,
) -> Result<Tensor> {
    check("init_normal", "standard deviation", std)?;
    fill(device, shape.into(), seed, name, |bits, values| {
        normal(bits, std, values);
    })
}

/// Values spread evenly over -bound..bound.
///
/// # Errors
/// [`Error::Argument`] unless `bound` is finite and not negative; errors of allocation.
pub fn init_uniform(
    device: &Device,
    shape: impl Into<Shape>,
    bound: f64,
    seed: u64,
    name: &str,
) -> Result<Tensor> {
    check("init_uniform", "bound", bound)?;
    fill(device, shape.into(), seed, name, |bits, values| {
        vectorised!({
            for (value, &bits) in values.iter_mut().zip(bits) {
                *value = (bound * (2.0 * f64::from(bits) * UNIT - 1.0)) as f32;
            }
        });
    })
}

fn check(op: &'static str, what: &str, value: f64) -> Result<()> {
    /// A seventh of the largest float: normal numbers reach 6.8 standard deviations.
    const MOST: f64 = f32::MAX as f64 / 7.0;
    if (0.0..=MOST).contains(&value) {
        return Ok(());
    }
    Err(Error::Argument {
        op,
        message: format!("the {what} is {value}: use a number from 0 to {MOST:.1e}"),
    })
}

/// A tensor whose elements `draw` writes, some at a time from an even one on: 2i and 2i + 1 are a function of the random
/// bits of both, the last of which `draw` gets even if there is no such element.
fn fill(
    device: &Device,
    shape: Shape,
    seed: u64,
    name: &str,
    draw: impl Fn(&[u32], &mut [f32]) + Sync,
) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.gpu() {
        if gpu.is_on_paper() {
            return Tensor::empty(device, shape);
        }
        let host = Device::cpu(device.host().clone());
        return fill(&host, shape, seed, name, draw)?.copy_to(device);
    }
    let stream = Key::new(seed, name, BEFORE_ALL_STEPS).sample(0);
    let mut tensor = Tensor::empty(device, shape)?;
    let chunks = tensor.f32s_mut()?.chunks_mut(CHUNK).enumerate();
    for_each(device, chunks, |(index, chunk)| {
        let mut bits = vec![0; chunk.len().next_multiple_of(2)];
        stream.fill((index * CHUNK) as u64, &mut bits);
        draw(&bits, chunk);
    });
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits_for_any_threads, bits, device, f64s};

    #[test]
    fn normal_values_have_the_moments_of_the_normal_distribution() {
        let values = f64s(&init_normal(&device(), [300, 334], 0.02, 42, "w").unwrap());
        let moment = |power: i32| {
            let sum: f64 = values.iter().map(|v| (v / 0.02).powi(power)).sum();
            sum / values.len() as f64
        };
        // Standard errors for 100 200 values: 0.0032, 0.0045, 0.012, 0.031.
        for (power, wanted, tolerance) in [
            (1, 0.0, 0.013),
            (2, 1.0, 0.02),
            (3, 0.0, 0.05),
            (4, 3.0, 0.13),
        ] {
            assert!(
                (moment(power) - wanted).abs() < tolerance,
                "moment {power}: {}",
                moment(power)
            );
        }
    }

    #[test]
    fn what_would_not_be_finite_is_refused() {
        let device = device();
        for value in [1e39, 1e38, -1.0, f64::NAN, f64::INFINITY] {
            assert!(init_normal(&device, [3], value, 1, "w").is_err());
            assert!(init_uniform(&device, [3], value, 1, "w").is_err());
        }
        let most = init_normal(&device, [100_000], 4.8e37, 1, "w").unwrap();
        assert!(f64s(&most).iter().all(|x| x.is_finite()));
    }

    #[test]
    fn uniform_values_reach_both_bounds_and_no_further() {
        let values = f64s(&init_uniform(&device(), [10_000], 0.5, 42, "w").unwrap());
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        assert!((-0.5..-0.499).contains(&least), "{least}");
        assert!(most > 0.499 && most <= 0.5, "{most}");
    }

    #[test]
    fn values_depend_on_seed_and_name_and_not_on_threads_or_shape() {
        let normal = |shape: &[usize], seed, name: &str| {
            bits(&init_normal(&device(), shape, 1.0, seed, name).unwrap())
        };
        let base = normal(&[3, 5], 1, "a");
        assert_eq!(base, normal(&[15], 1, "a"));
        assert_eq!(base[..7], normal(&[7], 1, "a"));
        assert_ne!(base, normal(&[15], 2, "a"));
        assert_ne!(base, normal(&[15], 1, "b"));
        assert_same_bits_for_any_threads(|device| {
            init_normal(device, [3, 40_001], 1.0, 1, "a").unwrap()
        });
    }

    #[test]
    fn a_spread_that_is_no_number_is_refused() {
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(matches!(
                init_normal(&device(), [2], bad, 0, "w"),
                Err(Error::Argument { .. })
            ));
            assert!(matches!(
                init_uniform(&device(), [2], bad, 0, "w"),
                Err(Error::Argument { .. })
            ));
        }
    }
}
