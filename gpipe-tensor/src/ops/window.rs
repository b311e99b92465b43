//! A window that slides over the height and the width of images.

use crate::{Error, Result, Shape};

/// A window that slides over the height and the width of images (samples, height, width, channels).
///
/// Extents are given as `[height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Extents of the window.
    pub kernel: [usize; 2],
    /// Distance between neighbouring windows.
    pub stride: [usize; 2],
    /// Pixels added on either side of the image.
    pub padding: [usize; 2],
}

impl Window {
    /// A square window: the same extents, stride and padding in both directions.
    pub const fn square(kernel: usize, stride: usize, padding: usize) -> Self {
        Self {
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [padding; 2],
        }
    }

    /// Height and width of the result for an image of this height and width:
    /// ⌊(n + 2·padding − kernel) / stride⌋ + 1.
    ///
    /// # Errors
    /// [`Error::Argument`] for a kernel or a stride of 0, and for an image that is smaller than the kernel.
    pub fn output(&self, size: [usize; 2]) -> Result<[usize; 2]> {
        let extent = |axis: usize| {
            let (kernel, stride) = (self.kernel[axis], self.stride[axis]);
            let padded = self.padding[axis].checked_mul(2)?.checked_add(size[axis])?;
            let room = padded.checked_sub(kernel).filter(|_| kernel > 0)?;
            // Loops over windows have signed numbers, and on GPUs numbers of 32 bits.
            i32::try_from(padded).ok()?;
            Some(room.checked_div(stride)? + 1)
        };
        match (extent(0), extent(1)) {
            (Some(height), Some(width)) => Ok([height, width]),
            _ => Err(Error::Argument {
                op: "window",
                message: format!(
                    "a kernel of {} with stride {} and padding {} does not fit an image of {}: \
                     use a kernel and a stride of 1 or more, and a kernel no larger than the padded image",
                    by(self.kernel),
                    by(self.stride),
                    by(self.padding),
                    by(size)
                ),
            }),
        }
    }
}

/// Two extents in a message.
fn by([height, width]: [usize; 2]) -> String {
    format!("{height} x {width}")
}

/// The extents of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    pub samples: usize,
    pub size: [usize; 2],
    pub channels: usize,
}

impl Images {
    /// Those of a shape (samples, height, width, channels).
    ///
    /// # Errors
    /// [`Error::Shape`] for any other number of extents.
    pub fn of(op: &'static str, shape: &Shape) -> Result<Self> {
        match *shape.dims() {
            [samples, height, width, channels] => Ok(Self {
                samples,
                size: [height, width],
                channels,
            }),
            _ => Err(Error::shape(
                op,
                "images (samples, height, width, channels)",
                shape,
            )),
        }
    }

    /// The shape of as many images of another size and number of channels.
    pub fn with(self, [height, width]: [usize; 2], channels: usize) -> Shape {
        Shape::from([self.samples, height, width, channels])
    }

    /// Pixels of an image.
    pub fn pixels(self) -> usize {
        self.size[0] * self.size[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_the_result() {
        for (window, size, wanted) in [
            (Window::square(3, 1, 1), [8, 5], [8, 5]),
            (Window::square(7, 2, 3), [224, 224], [112, 112]),
            (Window::square(3, 2, 1), [112, 7], [56, 4]),
            (Window::square(2, 2, 0), [5, 4], [2, 2]),
            (Window::square(1, 2, 0), [5, 4], [3, 2]),
        ] {
            assert_eq!(window.output(size).unwrap(), wanted, "{window:?}");
        }
    }

    #[test]
    fn windows_that_do_not_fit_are_refused() {
        for window in [
            Window::square(0, 1, 0),
            Window::square(1, 0, 0),
            Window::square(5, 1, 0),
            Window::square(1, 1, usize::MAX),
            Window::square(1, 1, usize::MAX / 4),
        ] {
            let error = window.output([4, 4]).unwrap_err().to_string();
            assert!(error.contains("does not fit an image of 4 x 4"), "{error}");
        }
    }
}
