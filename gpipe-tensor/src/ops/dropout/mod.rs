//! Dropout (Srivastava et al., JMLR 15, 2014), scaled in training.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
mod settings;

pub(crate) use cpu::Mask;
pub use settings::Dropout;

use super::chunks::own;
use super::scratch::Scratch;
use crate::parallel::{CHUNK, for_each, rows_per_chunk};
use crate::{Error, Result, Tensor};

/// Each element is 0 with probability `rate`, else x/(1 − rate); in place if nothing else holds `x`.
///
/// The factor of element e of sample s is a function of (key, s, e): the same when it is computed
/// again, in another micro-batch or on another stage. dL/dx is dL/dy times the same factors, so the
/// function is its own gradient.
///
/// # Errors
/// [`Error::Argument`] for a rate outside of 0..1; [`Error::Shape`] unless there is one row (along
/// the outermost extent) for each sample; errors of allocation.
pub fn dropout(x: Tensor, dropout: &Dropout) -> Result<Tensor> {
    let samples = x.shape().rows();
    let Some(mask) = dropout.mask("dropout", samples)? else {
        return Ok(x);
    };
    let mut x = own(x)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu().cloned() {
        cuda::dropout(&gpu, &mut x, mask, dropout)?;
        return Ok(x);
    }
    let width = (x.elements() / samples.max(1)).max(1);
    let device = x.device().clone();
    let chunks = x.f32s_mut()?.chunks_mut(width).zip(dropout.samples.clone());
    let chunks = chunks.flat_map(|(x, sample)| {
        let stream = dropout.key.sample(sample);
        let parts = x.chunks_mut(CHUNK).enumerate();
        parts.map(move |(part, x)| (stream, (part * CHUNK) as u64, x))
    });
    for_each(&device, chunks, |(stream, first, x)| {
        cpu::dropout(mask, stream, first, x)
    });
    Ok(x)
}

/// [`dropout`] of whole channels (the innermost extent), as PyTorch's `Dropout2d`: the factor of channel c of
/// sample s is a function of (key, s, c), and all its pixels have it.
///
/// # Errors
/// As [`dropout`]; [`Error::Shape`] for a tensor of a single extent or none.
pub fn dropout_channels(x: Tensor, dropout: &Dropout) -> Result<Tensor> {
    const OP: &str = "dropout_channels";
    let samples = x.shape().rows();
    let Some(mask) = dropout.mask(OP, samples)? else {
        return Ok(x);
    };
    let &[_, .., channels] = x.shape().dims() else {
        let expected = "samples with channels (samples, …, channels)";
        return Err(Error::shape(OP, expected, x.shape()));
    };
    if x.elements() == 0 {
        return Ok(x);
    }
    let pixels = x.elements() / samples / channels;
    let mut x = own(x)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu().cloned() {
        cuda::channels(&gpu, &mut x, [samples, pixels, channels], mask, dropout)?;
        return Ok(x);
    }
    let device = x.device().clone();
    let mut factors = Scratch::take(&device, samples * channels)?;
    for (factors, sample) in factors.chunks_mut(channels).zip(dropout.samples.clone()) {
        cpu::channels(mask, dropout.key.sample(sample), factors);
    }
    let of_samples = x.f32s_mut()?.chunks_mut(pixels * channels);
    let items = of_samples.zip(factors.chunks(channels));
    let items = items.flat_map(|(x, factors)| {
        let parts = x.chunks_mut(rows_per_chunk(channels) * channels);
        parts.map(move |x| (x, factors))
    });
    for_each(&device, items, |(x, factors)| {
        cpu::multiply_rows(x, factors)
    });
    Ok(x)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::philox::Key;
    use crate::testing::{assert_same_bits_for_any_threads, bits, device, random};

    fn with(rate: f32, samples: Range<u64>) -> Dropout {
        let key = Key::new(7, "transformer.drop", 3);
        Dropout { rate, key, samples }
    }

    fn ones(shape: &[usize]) -> Tensor {
        let n = shape.iter().product();
        Tensor::from_f32(&device(), shape, vec![1.0; n]).unwrap()
    }

    #[test]
    fn each_element_is_dropped_by_its_own_number() {
        let rate = 0.3;
        for width in [1, 15, 16, 17, 33, 64, 200, CHUNK + 70] {
            let x = random(&device(), [2, width], 1);
            let y = dropout(x.clone(), &with(rate, 5..7)).unwrap();
            for (i, (x, y)) in x.f32s().unwrap().iter().zip(y.f32s().unwrap()).enumerate() {
                let stream = with(rate, 5..7).key.sample(5 + (i / width) as u64);
                let bits = stream.bits((i % width) as u64);
                let kept = f64::from(bits) >= f64::from(rate) * 2f64.powi(32);
                assert_eq!(
                    *y,
                    if kept {
                        x * (1.0 / (1.0 - rate))
                    } else {
                        x * 0.0
                    }
                );
            }
        }
    }

    #[test]
    fn the_mask_is_a_matter_of_the_sample_not_of_the_rows_around_it() {
        let x = random(&device(), [6, 5, 10], 1);
        let whole = dropout(x.clone(), &with(0.5, 10..16)).unwrap();
        let part = x.rows(2..5).unwrap();
        let part = dropout(part, &with(0.5, 12..15)).unwrap();
        assert_eq!(bits(&part), bits(&whole.rows(2..5).unwrap()));
        let other = dropout(x, &with(0.5, 11..17)).unwrap();
        assert_ne!(bits(&other), bits(&whole));
    }

    #[test]
    fn as_many_are_dropped_as_asked_and_the_mean_stays() {
        for rate in [0.001, 0.1, 0.5, 0.9] {
            let n = 1 << 20;
            let y = dropout(ones(&[1, n]), &with(rate, 0..1)).unwrap();
            let kept = y.f32s().unwrap().iter().filter(|&&y| y != 0.0).count();
            let (kept, rate) = (kept as f64 / n as f64, f64::from(rate));
            // Five standard deviations.
            assert!((kept - (1.0 - rate)).abs() < 5.0 * (rate * (1.0 - rate) / n as f64).sqrt());
            let mean = y.f32s().unwrap().iter().map(|&y| f64::from(y)).sum::<f64>() / n as f64;
            assert!((mean - kept / (1.0 - rate)).abs() < 1e-6);
        }
    }

    #[test]
    fn what_others_hold_is_copied_and_what_nobody_holds_is_overwritten() {
        let x = ones(&[1, 100]);
        let kept = x.clone();
        let y = dropout(x, &with(0.5, 0..1)).unwrap();
        assert_eq!(kept.f32s().unwrap(), [1.0; 100]);
        let place = y.f32s().unwrap().as_ptr();
        let z = dropout(y, &with(0.5, 0..1)).unwrap();
        assert_eq!(z.f32s().unwrap().as_ptr(), place);
    }

    #[test]
    fn a_rate_of_zero_changes_nothing() {
        let x = random(&device(), [2, 3], 1);
        let y = dropout(x.clone(), &with(0.0, 0..2)).unwrap();
        assert_eq!(y.f32s().unwrap().as_ptr(), x.f32s().unwrap().as_ptr());
    }

    #[test]
    fn channels_are_dropped_whole_by_their_own_number() {
        for [samples, pixels, channels] in [[2, 9, 5], [1, 1, 70], [3, 300, 64]] {
            let x = random(&device(), [samples, pixels, channels], 1);
            let first = 5;
            let last = first + samples as u64;
            let y = dropout_channels(x.clone(), &with(0.5, first..last)).unwrap();
            let ones = ones(&[samples, channels]);
            let factors = dropout(ones, &with(0.5, first..last)).unwrap();
            let factors = factors.f32s().unwrap();
            assert!(factors.contains(&0.0) && factors.contains(&2.0));
            for (i, (x, y)) in x.f32s().unwrap().iter().zip(y.f32s().unwrap()).enumerate() {
                let sample = i / channels / pixels;
                assert_eq!(*y, x * factors[sample * channels + i % channels]);
            }
        }
        assert_same_bits_for_any_threads(|device| {
            dropout_channels(random(device, [3, 501, 70], 1), &with(0.2, 8..11)).unwrap()
        });
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            dropout(random(device, [3, 50_001], 1), &with(0.2, 8..11)).unwrap()
        });
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for rate in [1.0, 2.0, -0.1, f32::NAN, f32::INFINITY] {
            let outcome = dropout(ones(&[1, 1]), &with(rate, 0..1));
            assert!(matches!(outcome, Err(Error::Argument { .. })), "{rate}");
        }
        let message = dropout(ones(&[3, 4]), &with(0.5, 7..9)).unwrap_err();
        assert_eq!(
            message.to_string(),
            "dropout: one row for each of the samples 7..9, got 3 rows"
        );
        assert!(dropout(ones(&[0, 4]), &with(0.5, Range { start: 9, end: 7 })).is_err());
    }

    #[test]
    fn channels_are_beside_samples() {
        let message = dropout_channels(ones(&[7]), &with(0.5, 0..7)).unwrap_err();
        assert_eq!(
            message.to_string(),
            "dropout_channels: samples with channels (samples, …, channels), got [7]"
        );
    }
}
