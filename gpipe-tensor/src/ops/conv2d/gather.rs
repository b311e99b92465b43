//! Rows of a matrix gathered from the pixels of images ("im2col"), so that a convolution and its
//! gradients become products of matrices.

use crate::ops::window::{Images, Window};

/// One direction of a gather: output `i` at tap `t` reads the pixel i·step + t·tap_step + offset, or 0 outside of
/// the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Outputs.
    pub outputs: usize,
    pub step: isize,
    pub taps: usize,
    pub tap_step: isize,
    pub offset: isize,
    /// Pixels that are there.
    pub pixels: usize,
}

impl Axis {
    /// The taps of a window's direction.
    pub fn forward(window: &Window, axis: usize, pixels: usize, outputs: usize) -> Self {
        Self {
            outputs,
            step: window.stride[axis] as isize,
            taps: window.kernel[axis],
            tap_step: 1,
            offset: -(window.padding[axis] as isize),
            pixels,
        }
    }

    /// The outputs `stride·i + phase` of a gradient with respect to the input: pixel h got tap k from output
    /// (h + padding − k)/stride of the forward pass wherever that is whole, that is for the taps
    /// k = first + stride·t of which `first` is the smallest. Also gives `first`.
    pub fn backward(
        window: &Window,
        axis: usize,
        phase: usize,
        sizes: [usize; 2],
    ) -> (Self, usize) {
        let [inputs, outputs] = sizes;
        let (kernel, stride) = (window.kernel[axis], window.stride[axis]);
        let padded = phase + window.padding[axis];
        let first = padded % stride;
        let axis = Self {
            outputs: inputs.saturating_sub(phase).div_ceil(stride),
            step: 1,
            taps: kernel.saturating_sub(first).div_ceil(stride),
            tap_step: -1,
            offset: (padded / stride) as isize,
            pixels: outputs,
        };
        (axis, first)
    }

    /// The pixel of the first tap of an output.
    #[inline(always)]
    fn first(&self, output: usize) -> isize {
        output as isize * self.step + self.offset
    }

    /// The pixel of a tap, if it is there.
    #[inline(always)]
    fn at(&self, output: usize, tap: usize) -> Option<usize> {
        let pixel = self.first(output) + tap as isize * self.tap_step;
        usize::try_from(pixel)
            .ok()
            .filter(|&pixel| pixel < self.pixels)
    }
}

/// A gather from images: a row for each output pixel, which holds the channels of all taps, tap after tap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gather {
    /// Height and width.
    pub axes: [Axis; 2],
    /// Channels of a pixel of the source.
    pub channels: usize,
    /// The channels that are copied: the first, and their number.
    pub taken: (usize, usize),
}

impl Gather {
    /// What a convolution reads: all taps of `taken` channels.
    pub fn forward(
        window: &Window,
        images: Images,
        outputs: [usize; 2],
        taken: (usize, usize),
    ) -> Self {
        let axis = |i| Axis::forward(window, i, images.size[i], outputs[i]);
        Self {
            axes: [axis(0), axis(1)],
            channels: images.channels,
            taken,
        }
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.axes[0].taps * self.axes[1].taps * self.taken.1
    }

    /// Output pixels of an image.
    pub fn outputs(&self) -> usize {
        self.axes[0].outputs * self.axes[1].outputs
    }

    /// Fills `rows`, whole rows of output pixels from `first` on, counted through all images.
    pub fn copy(&self, source: &[f32], first: usize, rows: &mut [f32]) {
        let [height, width] = self.axes;
        let image = height.pixels * width.pixels * self.channels;
        let row_width = self.width();
        if row_width == 0 || self.outputs() == 0 {
            return;
        }
        // Divisions take longer than the copies of a narrow row.
        let (mut sample, output) = (first / self.outputs(), first % self.outputs());
        let (mut line, mut column) = (output / width.outputs, output % width.outputs);
        let (run, pixels) = (width.taps * self.taken.1, width.pixels * self.channels);
        for row in rows.chunks_exact_mut(row_width) {
            let source = &source[sample * image..][..image];
            for tap in 0..height.taps {
                let row = &mut row[tap * run..][..run];
                match height.at(line, tap) {
                    None => row.fill(0.0),
                    Some(y) => self.copy_line(&source[y * pixels..][..pixels], column, row),
                }
            }
            column += 1;
            if column == width.outputs {
                (line, column) = (line + 1, 0);
            }
            if line == height.outputs {
                (sample, line) = (sample + 1, 0);
            }
        }
    }

    /// The taps of one line of an image.
    #[inline]
    fn copy_line(&self, line: &[f32], column: usize, row: &mut [f32]) {
        let (axis, (first, count)) = (self.axes[1], self.taken);
        if axis.tap_step == 1 && count == self.channels {
            // Neighbouring taps read neighbouring pixels: one copy of those that are there.
            let begin = axis.first(column);
            let before = begin.min(0).unsigned_abs().min(axis.taps);
            let from = begin.max(0).unsigned_abs().min(axis.pixels);
            let inside = (axis.taps - before).min(axis.pixels - from);
            row[..before * count].fill(0.0);
            let middle = before * count..(before + inside) * count;
            row[middle].copy_from_slice(&line[from * count..][..inside * count]);
            row[(before + inside) * count..].fill(0.0);
            return;
        }
        for tap in 0..axis.taps {
            let row = &mut row[tap * count..][..count];
            match axis.at(column, tap) {
                None => row.fill(0.0),
                Some(x) => row.copy_from_slice(&line[x * self.channels + first..][..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The taps that reach each pixel, by the forward axis and by the phases of the backward one.
    #[test]
    fn phases_of_the_gradient_hold_every_tap_once() {
        for kernel in 1..6 {
            for stride in 1..5 {
                for padding in 0..4 {
                    let window = Window::square(kernel, stride, padding);
                    for pixels in 1..12 {
                        let Ok([outputs, _]) = window.output([pixels; 2]) else {
                            continue;
                        };
                        let forward = Axis::forward(&window, 0, pixels, outputs);
                        let mut wanted = Vec::new();
                        for output in 0..outputs {
                            for tap in 0..kernel {
                                wanted.extend(forward.at(output, tap).map(|x| (x, tap, output)));
                            }
                        }
                        let mut got = Vec::new();
                        for phase in 0..stride.min(pixels) {
                            let (axis, first) =
                                Axis::backward(&window, 0, phase, [pixels, outputs]);
                            for i in 0..axis.outputs {
                                for t in 0..axis.taps {
                                    let tap = first + stride * t;
                                    let pixel = stride * i + phase;
                                    got.extend(axis.at(i, t).map(|output| (pixel, tap, output)));
                                }
                            }
                        }
                        wanted.sort_unstable();
                        got.sort_unstable();
                        assert_eq!(got, wanted, "{window:?} of {pixels}");
                    }
                }
            }
        }
    }
}
