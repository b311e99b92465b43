//! The CUDA kernels of pools: entry points, parameters and grids.

use super::plan::Plan;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    max_pool<T>(
        x: In, y: Out, samples: U64, height: U64, width: U64, channels: U64, out_height: U64, out_width: U64,
        kernel_height: U64, kernel_width: U64, stride_height: U64, stride_width: U64, pad_height: U64,
        pad_width: U64,
    );
    max_pool_grad<T>(
        x: In, dy: In, dx: Out, samples: U64, height: U64, width: U64, channels: U64, out_height: U64,
        out_width: U64, kernel_height: U64, kernel_width: U64, stride_height: U64, stride_width: U64,
        pad_height: U64, pad_width: U64,
    );
    avg_pool<T>(
        x: In, y: Out, samples: U64, height: U64, width: U64, channels: U64, out_height: U64, out_width: U64,
        kernel_height: U64, kernel_width: U64, stride_height: U64, stride_width: U64, pad_height: U64,
        pad_width: U64,
    );
    avg_pool_grad<T>(
        dy: In, dx: Out, samples: U64, height: U64, width: U64, channels: U64, out_height: U64, out_width: U64,
        kernel_height: U64, kernel_width: U64, stride_height: U64, stride_width: U64, pad_height: U64,
        pad_width: U64,
    );
}

/// A call of one of the kernels, which share their sizes.
macro_rules! with_sizes {
    ($kernel:ident, $stored:ident, [$($pointer:ident),*], $plan:ident) => {{
        let Plan {
            window,
            input,
            output,
        } = $plan;
        let size = |n: usize| n as u64;
        // The kernels count in 32 bits, and a padded image has fewer than 2³¹ pixels in a direction.
        let stride = |axis: usize| size(window.stride[axis].min(i32::MAX as usize));
        $kernel::call(
            $stored,
            $($pointer,)*
            size(input.samples),
            size(input.size[0]),
            size(input.size[1]),
            size(input.channels),
            size(output[0]),
            size(output[1]),
            size(window.kernel[0]),
            size(window.kernel[1]),
            stride(0),
            stride(1),
            size(window.padding[0]),
            size(window.padding[1]),
        )
    }};
}

/// Elements of the input, and of the result.
fn elements(plan: &Plan) -> [usize; 2] {
    let samples = plan.input.samples;
    [samples * plan.image(), samples * plan.result_image()]
}

pub(crate) fn max(stored: DType, x: Pointer, y: Pointer, plan: &Plan) -> Launch {
    with_sizes!(max_pool, stored, [x, y], plan).over_elements(elements(plan)[1])
}

pub(crate) fn max_grad(stored: DType, x: Pointer, dy: Pointer, dx: Pointer, plan: &Plan) -> Launch {
    with_sizes!(max_pool_grad, stored, [x, dy, dx], plan).over_elements(elements(plan)[0])
}

pub(crate) fn average(stored: DType, x: Pointer, y: Pointer, plan: &Plan) -> Launch {
    with_sizes!(avg_pool, stored, [x, y], plan).over_elements(elements(plan)[1])
}

pub(crate) fn average_grad(stored: DType, dy: Pointer, dx: Pointer, plan: &Plan) -> Launch {
    with_sizes!(avg_pool_grad, stored, [dy, dx], plan).over_elements(elements(plan)[0])
}
