//! The choice of attention's kernels: tensor cores where they take the operands, else the plain kernels.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer};
use crate::launch_trace::Arithmetic;

use super::kernels::{self, Gradient, Sizes};
use super::tensor_cores::{self, TensorCores};

/// The results of all heads, and the logarithms of their rows' sums; none for heads of more elements
/// than a block's shared memory holds.
pub(crate) fn forward(
    stored: DType,
    cores: TensorCores,
    qkv: Pointer,
    out: Pointer,
    lse: Pointer,
    sizes: Sizes,
) -> Option<Launch> {
    let tensor_cores = tensor_cores::forward(stored, cores, qkv, out, lse, sizes);
    let on_tensor_cores = tensor_cores.is_some();
    let launch = tensor_cores.or_else(|| kernels::forward(stored, qkv, out, lse, sizes))?;
    let by_warpgroups = tensor_cores::by_warpgroups(launch.form.entry.name);
    // Scores, and what they take of the values.
    Some(launch.with_arithmetic(Arithmetic::Attention {
        on_tensor_cores,
        by_warpgroups,
        factors: stored,
        is_gradient: false,
        flops: 2.0 * product(sizes),
    }))
}

/// The gradient in three launches: the rows' means, the queries, keys and values.
pub(crate) fn backward(
    stored: DType,
    cores: TensorCores,
    at: Gradient,
    sizes: Sizes,
) -> Option<[Launch; 3]> {
    let tensor_cores = tensor_cores::backward(stored, cores, at, sizes);
    let on_tensor_cores = tensor_cores.is_some();
    let [queries, keys] = tensor_cores.or_else(|| kernels::backward(stored, at, sizes))?;
    // Both compute the scores again and their gradient; the first then that of the queries, the second those of
    // keys and values.
    let with = |launch: Launch, products: f64| {
        let by_warpgroups = tensor_cores::by_warpgroups(launch.form.entry.name);
        launch.with_arithmetic(Arithmetic::Attention {
            on_tensor_cores,
            by_warpgroups,
            factors: stored,
            is_gradient: true,
            flops: products * product(sizes),
        })
    };
    Some([
        kernels::means(stored, at, sizes),
        with(queries, 3.0),
        with(keys, 4.0),
    ])
}

/// FLOPs of one product over all pairs of positions of which one sees the other, of all heads.
fn product(sizes: Sizes) -> f64 {
    let window = sizes.window.min(sizes.len);
    let pairs = window * (window + 1) / 2 + (sizes.len - window) * window;
    2.0 * pairs as f64 * (sizes.samples * sizes.heads * sizes.size) as f64
}
