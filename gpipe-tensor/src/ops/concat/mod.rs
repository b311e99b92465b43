//! Tensors side by side along their innermost extent, and parts of that.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
pub(crate) mod plan;

use std::ops::Range;

use plan::Columns;

use crate::parallel::{for_each, rows_per_chunk};
use crate::{Error, Result, Tensor};

/// Tensors of equal outer extents side by side: the innermost extent is the sum of theirs (the channels of
/// images). The gradient of each is [`columns`] of dY.
///
/// # Errors
/// [`Error::Argument`] for no tensors, [`Error::Shape`] for scalars and other outer extents, [`Error::DType`] for other
/// types; errors of allocation.
pub fn concat(parts: &[&Tensor]) -> Result<Tensor> {
    const OP: &str = "concat";
    let [first, ..] = parts else {
        return Err(Error::Argument {
            op: OP,
            message: "no tensors: give one or more".into(),
        });
    };
    let mut width = 0_usize;
    for part in parts {
        let (shape, of_first) = (part.shape(), first.shape());
        if shape.rank() == 0 || shape.with_last(of_first.last()) != *of_first {
            let expected = match of_first.rank() {
                0 => "one extent or more".to_owned(),
                _ => format!("{of_first} but for the innermost extent"),
            };
            return Err(Error::shape(OP, expected, shape));
        }
        let grown = width.checked_add(part.shape().last());
        width = grown.ok_or_else(|| Error::Size {
            op: OP,
            shape: part.shape().clone(),
        })?;
    }
    let mut y = first.empty_like(first.shape().with_last(width))?;
    let mut at = 0;
    for part in parts {
        let count = part.shape().last();
        let columns = Columns {
            rows: part.elements() / count.max(1),
            count,
            from: [count, 0],
            to: [width, at],
        };
        copy(OP, part, &mut y, columns)?;
        at += count;
    }
    Ok(y)
}

/// The elements of x in these places of its innermost extent; a scalar counts as a vector of one.
///
/// # Errors
/// [`Error::Argument`] for a range beyond the extent; errors of allocation.
pub fn columns(x: &Tensor, range: Range<usize>) -> Result<Tensor> {
    const OP: &str = "columns";
    let width = x.shape().last();
    if range.start > range.end || range.end > width {
        return Err(Error::Argument {
            op: OP,
            message: format!("{range:?} of {width}: use a range within the innermost extent"),
        });
    }
    let count = range.len();
    let mut y = x.empty_like(x.shape().with_last(count))?;
    let columns = Columns {
        rows: x.elements() / width.max(1),
        count,
        from: [width, range.start],
        to: [count, 0],
    };
    copy(OP, x, &mut y, columns)?;
    Ok(y)
}

/// Copies columns of x into y.
fn copy(op: &'static str, x: &Tensor, y: &mut Tensor, columns: Columns) -> Result<()> {
    if columns.rows == 0 || columns.count == 0 {
        return Ok(());
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::copy(op, gpu, x, y, columns);
    }
    let _ = op;
    let Columns {
        count,
        from: [width, start],
        to: [y_width, y_start],
        ..
    } = columns;
    let (device, x) = (x.device(), x.f32s()?);
    let block = rows_per_chunk(count);
    let blocks = y.f32s_mut()?.chunks_mut(block * y_width);
    for_each(device, blocks.zip(x.chunks(block * width)), |(y, x)| {
        for (y, x) in y.chunks_mut(y_width).zip(x.chunks(width)) {
            y[y_start..][..count].copy_from_slice(&x[start..][..count]);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::testing::{assert_same_bits_for_any_threads, bits, device, random};

    #[test]
    fn columns_of_a_concatenation_are_its_parts() {
        let device = device();
        for (outer, widths) in [
            ([2, 3, 4], &[5, 1, 7][..]),
            ([1, 1, 1], &[3]),
            ([2, 0, 4], &[3, 2]),
            ([2, 2, 2], &[0, 3, 0]),
            ([40, 30, 20], &[9, 64]),
        ] {
            let part = |(seed, &width): (usize, &usize)| {
                let shape = outer.iter().copied().chain([width]).collect::<Vec<_>>();
                random(&device, shape.as_slice(), seed as u64)
            };
            let parts: Vec<Tensor> = widths.iter().enumerate().map(part).collect();
            let y = concat(&parts.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(y.shape().last(), widths.iter().sum::<usize>());
            let mut at = 0;
            for part in &parts {
                let width = part.shape().last();
                let back = columns(&y, at..at + width).unwrap();
                assert_eq!(back.shape(), part.shape());
                assert_eq!(bits(&back), bits(part));
                at += width;
            }
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let parts = [
                random(device, [70, 50, 33], 1),
                random(device, [70, 50, 8], 2),
            ];
            let y = concat(&[&parts[0], &parts[1]]).unwrap();
            columns(&y, 20..40).unwrap()
        });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let device = device();
        let x = random(&device, [2, 3], 1);
        assert!(concat(&[]).is_err());
        assert!(concat(&[&x, &random(&device, [3, 3], 1)]).is_err());
        assert!(concat(&[&x, &random(&device, [1, 2, 3], 1)]).is_err());
        assert!(columns(&x, 1..4).is_err());
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = columns(&x, 2..1);
        assert!(reversed.is_err());
    }

    /// A scalar was taken behind a vector, though not before it, and its gradient was no scalar.
    #[test]
    fn scalars_have_no_extent_to_lie_along() {
        let device = device();
        let (scalar, vector) = (
            Tensor::from_f32(&device, Shape::default(), vec![7.0]).unwrap(),
            random(&device, [3], 1),
        );
        for (parts, words) in [
            (&[&scalar][..], "concat: one extent or more, got []"),
            (&[&scalar, &scalar], "concat: one extent or more, got []"),
            (&[&scalar, &vector], "concat: one extent or more, got []"),
            (
                &[&vector, &scalar],
                "concat: [3] but for the innermost extent, got []",
            ),
        ] {
            assert_eq!(concat(parts).unwrap_err().to_string(), words);
        }
        // Columns of a scalar are those of a vector of one.
        for range in [0..0, 0..1, 1..1] {
            let part = columns(&scalar, range.clone()).unwrap();
            assert_eq!(part.shape().dims(), [range.len()]);
            assert_eq!(part.f32s().unwrap(), &[7.0][range]);
        }
        assert!(columns(&scalar, 0..2).is_err());
    }

    #[test]
    fn widths_that_overflow_are_refused() {
        let x = Tensor::zeros(&device(), [0, usize::MAX]).unwrap();
        let error = concat(&[&x, &x]).unwrap_err();
        assert!(matches!(error, Error::Size { .. }), "{error}");
    }
}
