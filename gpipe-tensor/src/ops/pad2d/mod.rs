//! Images cut off and padded with zeros.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use super::window::Images;
use crate::parallel::{for_each, rows_per_chunk};
use crate::{Error, Result, Tensor};

const OP: &str = "pad2d";

/// Refuses an offset, a size of images, or a size of the result that [`pad2d`] does not take.
///
/// # Errors
/// [`Error::Argument`] for sizes or offsets of 2³¹ or more.
pub fn check_pad2d(offset: [isize; 2], from: [usize; 2], size: [usize; 2]) -> Result<()> {
    let mut sizes = from.into_iter().chain(size);
    let fits = sizes.all(|size| i32::try_from(size).is_ok())
        && offset.iter().all(|&offset| i32::try_from(offset).is_ok());
    match fits {
        true => Ok(()),
        false => Err(Error::Argument {
            op: OP,
            message: format!("an offset of {offset:?} and a size of {size:?}: use smaller numbers"),
        }),
    }
}

/// Images (samples, height, width, channels) of another size, in which pixel (i, j) is pixel (i, j) + `offset` of
/// x, and 0 where x has none. The gradient with respect to x is the same with `-offset` and the size of x.
///
/// Zeros below and to the right are a larger size at offset [0, 0]; a shift by one pixel up and to the left is
/// the same size at offset [1, 1].
///
/// # Errors
/// [`Error::Shape`] unless x holds images; those of [`check_pad2d`]; errors of allocation.
pub fn pad2d(x: &Tensor, offset: [isize; 2], size: [usize; 2]) -> Result<Tensor> {
    let images = Images::of(OP, x.shape())?;
    check_pad2d(offset, images.size, size)?;
    let mut y = x.empty_like(images.with(size, images.channels))?;
    if y.elements() == 0 {
        return Ok(y);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        cuda::pad(gpu, x, images, offset, size, &mut y)?;
        return Ok(y);
    }
    let channels = images.channels;
    let [lines, width] = size;
    let [height, columns] = images.size;
    let source = |at: usize, offset: isize, extent: usize| {
        let at = at as isize + offset;
        usize::try_from(at).ok().filter(|&at| at < extent)
    };
    let first = (-offset[1]).clamp(0, width as isize) as usize;
    let end = (columns as isize - offset[1]).clamp(first as isize, width as isize) as usize;
    let (device, x) = (x.device(), x.f32s()?);
    let block = rows_per_chunk(width * channels);
    let blocks = y.f32s_mut()?.chunks_mut(block * width * channels);
    for_each(device, blocks.enumerate(), |(index, block_lines)| {
        for (line, y) in block_lines.chunks_mut(width * channels).enumerate() {
            let line = index * block + line;
            y.fill(0.0);
            if let Some(row) = source(line % lines, offset[0], height)
                && first < end
            {
                let from = (line / lines * height + row) * columns;
                let from = (from as isize + first as isize + offset[1]) as usize * channels;
                let count = (end - first) * channels;
                y[first * channels..][..count].copy_from_slice(&x[from..][..count]);
            }
        }
    });
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits_for_any_threads, device, random};

    #[test]
    fn every_pixel_is_that_at_the_offset_or_zero() {
        let device = device();
        for (shape, offset, size) in [
            ([2, 3, 4, 5], [0, 0], [4, 5]),
            ([2, 3, 4, 5], [1, 1], [3, 4]),
            ([1, 3, 4, 1], [-2, -1], [6, 6]),
            ([1, 3, 4, 2], [1, -3], [1, 9]),
            ([1, 3, 4, 2], [7, 0], [2, 2]),
            ([1, 3, 4, 2], [0, -9], [2, 2]),
            ([1, 3, 4, 2], [0, 5], [2, 2]),
            ([3, 0, 4, 2], [0, 0], [2, 2]),
            ([3, 4, 4, 2], [0, 0], [0, 2]),
            ([1, 90, 70, 9], [-1, 1], [95, 69]),
        ] {
            let x = random(&device, shape, 1);
            let y = pad2d(&x, offset, size).unwrap();
            let [samples, height, width, channels] = shape;
            assert_eq!(y.shape().dims(), [samples, size[0], size[1], channels]);
            let (x, y) = (x.f32s().unwrap(), y.f32s().unwrap());
            for (i, y) in y.iter().enumerate() {
                let (pixel, channel) = (i / channels, i % channels);
                let row = (pixel / size[1] % size[0]) as isize + offset[0];
                let column = (pixel % size[1]) as isize + offset[1];
                let inside =
                    (0..height as isize).contains(&row) && (0..width as isize).contains(&column);
                let wanted = match inside {
                    true => {
                        let line = pixel / size[1] / size[0] * height + row as usize;
                        x[(line * width + column as usize) * channels + channel]
                    }
                    false => 0.0,
                };
                assert_eq!(*y, wanted, "{shape:?} {offset:?} {size:?}");
            }
        }
    }

    #[test]
    fn the_gradient_is_the_same_with_the_opposite_offset() {
        let device = device();
        let x = random(&device, [2, 3, 4, 5], 1);
        let y = pad2d(&x, [1, -2], [4, 3]).unwrap();
        let dy = random(&device, y.shape().clone(), 2);
        let dx = pad2d(&dy, [-1, 2], [3, 4]).unwrap();
        let dot = |a: &Tensor, b: &Tensor| -> f64 {
            let pairs = a.f32s().unwrap().iter().zip(b.f32s().unwrap());
            pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        assert!((dot(&y, &dy) - dot(&x, &dx)).abs() < 1e-9);
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            pad2d(&random(device, [3, 50, 40, 20], 1), [-1, 1], [60, 41]).unwrap()
        });
    }

    #[test]
    fn what_holds_no_images_is_refused() {
        let device = device();
        assert!(pad2d(&random(&device, [3, 4], 1), [0, 0], [1, 1]).is_err());
        let x = random(&device, [1, 2, 2, 1], 1);
        assert!(pad2d(&x, [isize::MIN, 0], [1, 1]).is_err());
        assert!(pad2d(&x, [0, 0], [usize::MAX, 1]).is_err());
    }
}
