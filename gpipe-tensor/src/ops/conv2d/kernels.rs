//! The CUDA kernels of convolutions: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::ops::window::{Images, Window};

entries! {
    gather_windows<T>(
        x: In, rows: Out, samples: U64, height: U64, width: U64, channels: U64, first: U64, taken: U64,
        out_height: U64, out_width: U64, kernel_height: U64, kernel_width: U64, stride_height: U64,
        stride_width: U64, pad_height: U64, pad_width: U64,
    );
    add_windows<T>(
        rows: InF32, x: Out, samples: U64, height: U64, width: U64, channels: U64, first: U64, taken: U64,
        out_height: U64, out_width: U64, kernel_height: U64, kernel_width: U64, stride_height: U64,
        stride_width: U64, pad_height: U64, pad_width: U64,
    );
}

/// The windows of some channels of images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub images: Images,
    pub window: Window,
    /// Height and width of the result.
    pub output: [usize; 2],
    /// The channels: the first, and their number.
    pub taken: (usize, usize),
}

impl Windows {
    /// Rows of the gather.
    pub fn rows(&self) -> usize {
        self.images.samples * self.output[0] * self.output[1]
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.window.kernel[0] * self.window.kernel[1] * self.taken.1
    }
}

/// A call of one of the kernels, which share their parameters but the first two.
macro_rules! with_sizes {
    ($kernel:ident, $stored:ident, $from:ident, $to:ident, $windows:ident) => {{
        let Windows {
            images,
            window,
            output,
            taken,
        } = $windows;
        let size = |n: usize| n as u64;
        $kernel::call(
            $stored,
            $from,
            $to,
            size(images.samples),
            size(images.size[0]),
            size(images.size[1]),
            size(images.channels),
            size(taken.0),
            size(taken.1),
            size(output[0]),
            size(output[1]),
            size(window.kernel[0]),
            size(window.kernel[1]),
            size(window.stride[0]),
            size(window.stride[1]),
            size(window.padding[0]),
            size(window.padding[1]),
        )
    }};
}

/// Fills `rows`, a row for each window.
pub(crate) fn gather(stored: DType, x: Pointer, rows: Pointer, windows: &Windows) -> Launch {
    with_sizes!(gather_windows, stored, x, rows, windows)
        .over_elements(windows.rows() * windows.width())
}

/// Fills the channels of x with the sums over the rows of the windows that cover each pixel.
pub(crate) fn add(stored: DType, rows: Pointer, x: Pointer, windows: &Windows) -> Launch {
    let elements = windows.images.samples * windows.images.pixels() * windows.taken.1;
    with_sizes!(add_windows, stored, rows, x, windows).over_elements(elements)
}
