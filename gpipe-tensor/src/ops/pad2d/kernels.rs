//! The CUDA kernel of padding: entry point, parameters and grid.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::ops::window::Images;

entries! {
    pad2d<T>(
        x: In, y: Out, samples: U64, height: U64, width: U64, channels: U64,
        lines: U64, columns: U64, down: U64, right: U64,
    );
}

/// Images of `size` whose pixels are those of x at an offset.
pub(crate) fn pad(
    stored: DType,
    x: Pointer,
    y: Pointer,
    images: Images,
    offset: [isize; 2],
    size: [usize; 2],
) -> Launch {
    let [height, width, lines, columns] =
        [images.size[0], images.size[1], size[0], size[1]].map(|extent| extent as u64);
    let [down, right] = offset.map(|offset| offset as u64);
    let (samples, channels) = (images.samples as u64, images.channels as u64);
    pad2d::call(
        stored, x, y, samples, height, width, channels, lines, columns, down, right,
    )
    .over_elements(images.samples * size[0] * size[1] * images.channels)
}
