//! Sinusoidal positions (Vaswani et al., arXiv:1706.03762, section 3.5) in the layout of Lingvo: the sines of
//! all frequencies, then the cosines.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use super::rope::RopeScaling;
use super::rope::angles::Angles;
use super::scratch::Scratch;
use crate::parallel::{for_each, rows_per_chunk};
use crate::{Error, Result, Tensor};

/// The largest wavelength is this many times the smallest.
const WAVELENGTHS: f64 = 1e4;

/// y · `scale` + [sin(p·r) ∥ cos(p·r)] in place, with `y` (B, T, d) and rᵢ = 10000^(−i/(d/2 − 1)).
///
/// p is the number of a position within its segment, from `first`: a segment is a run of equal numbers in a row of
/// `segments` (B, T).
///
/// # Errors
/// [`Error::Shape`] unless the extents are those above with an even d; [`Error::Argument`] for positions of 2⁴⁸ turns and
/// more; [`Error::Shared`] if something else holds
/// `y`; errors of allocation.
pub fn scale_and_add_positions(
    y: &mut Tensor,
    segments: &Tensor,
    first: u64,
    scale: f32,
) -> Result<()> {
    const OP: &str = "scale_and_add_positions";
    let (rows, width) = match (y.shape().dims(), segments.shape().dims()) {
        (&[batch, len, width], &[of_segments, positions])
            if [batch, len] == [of_segments, positions] && width % 2 == 0 =>
        {
            (len, width)
        }
        _ => {
            let expected = "(B, T, d) with an even d, and segments (B, T)";
            let got = format!("{} and {}", y.shape(), segments.shape());
            return Err(Error::shape(OP, expected, got));
        }
    };
    if y.elements() == 0 {
        return Ok(());
    }
    let half = width / 2;
    let angles = Angles::new(ratio(half), RopeScaling::Unscaled);
    if !angles.reach(width, first as f64 + rows as f64) {
        let message = format!("positions from {first} on: use angles below 2^48 turns");
        return Err(Error::Argument { op: OP, message });
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = y.gpu().cloned() {
        return cuda::add(
            &gpu,
            y,
            segments,
            [rows, width],
            (first, angles.ratio),
            scale,
        );
    }
    let places = positions(segments.u32s()?, rows);
    let device = y.device().clone();
    let largest = places.iter().copied().max().unwrap_or(0) as usize;
    let mut table = Scratch::take(&device, (largest + 1) * width)?;
    let lines = table.chunks_mut(width).enumerate();
    for_each(&device, lines, |(position, line)| {
        angles.fill(first + position as u64, line);
    });
    let table = &table[..];
    let rows = rows_per_chunk(width);
    let chunks = y.f32s_mut()?.chunks_mut(rows * width);
    for_each(&device, chunks.zip(places.chunks(rows)), |(y, places)| {
        for (y, &place) in y.chunks_exact_mut(width).zip(places) {
            let (cosines, sines) = table[place as usize * width..][..width].split_at(half);
            for (y, turned) in y.iter_mut().zip(sines.iter().chain(cosines)) {
                *y = y.mul_add(scale, *turned);
            }
        }
    });
    Ok(())
}

/// The ratio of a frequency and of the one before it, of `half` frequencies.
pub(crate) fn ratio(half: usize) -> f64 {
    match half {
        1 => 1.0,
        _ => WAVELENGTHS.powf(-1.0 / (half - 1) as f64),
    }
}

/// The number of each position within its segment.
fn positions(segments: &[u32], len: usize) -> Vec<u32> {
    let mut all = Vec::with_capacity(segments.len());
    for row in segments.chunks(len) {
        let mut place = 0;
        for (i, segment) in row.iter().enumerate() {
            place = match i > 0 && row[i - 1] == *segment {
                true => place + 1,
                false => 0,
            };
            all.push(place);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_same_bits_for_any_threads, device, f64s, random};

    fn segments(device: &crate::Device) -> Tensor {
        let segments = vec![1, 1, 1, 2, 2, 0, 0, 1, 2, 3, 3, 3, 3, 3];
        Tensor::from_u32(device, [2, 7], segments).unwrap()
    }

    #[test]
    fn every_segment_counts_from_zero() {
        let places = [0, 1, 2, 0, 1, 0, 1, 0, 0, 0, 1, 2, 3, 4];
        for (width, first) in [(2, 0), (8, 5), (130, 0), (130, 70)] {
            let mut y = random(&device(), [2, 7, width], 1);
            let mut wanted = f64s(&y);
            let half = width / 2;
            for (y, place) in wanted.chunks_mut(width).zip(places) {
                for i in 0..half {
                    let rate = match half {
                        1 => 1.0,
                        _ => 1e4_f64.powf(-(i as f64) / (half - 1) as f64),
                    };
                    let angle = (first + place) as f64 * rate;
                    y[i] = 3.0 * y[i] + angle.sin();
                    y[half + i] = 3.0 * y[half + i] + angle.cos();
                }
            }
            scale_and_add_positions(&mut y, &segments(&device()), first, 3.0).unwrap();
            assert_close(&y, &wanted, 3e-7);
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let mut y = random(device, [2, 7, 4096], 1);
            scale_and_add_positions(&mut y, &segments(device), 0, 0.7).unwrap();
            y
        });
    }

    #[test]
    fn positions_beyond_the_range_of_angles_are_refused() {
        for (first, is_taken) in [(1 << 50, true), (1 << 51, false), (u64::MAX, false)] {
            let mut y = random(&device(), [2, 7, 4], 1);
            let outcome = scale_and_add_positions(&mut y, &segments(&device()), first, 1.0);
            assert_eq!(outcome.is_ok(), is_taken, "{first}");
        }
    }

    #[test]
    fn other_extents_are_refused() {
        for dims in [[2, 7, 3], [2, 6, 4]] {
            let mut y = random(&device(), dims, 1);
            assert!(scale_and_add_positions(&mut y, &segments(&device()), 0, 1.0).is_err());
        }
    }
}
