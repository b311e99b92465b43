//! The list of all operations' CUDA kernels.

use crate::cuda::entry::Entry;

/// The operations' kernels for CUDA.
pub(crate) const KERNELS: &[&[&Entry]] = &[
    super::adamw::kernels::KERNELS,
    super::add::kernels::KERNELS,
    super::attention::kernels::KERNELS,
    super::attention::tensor_cores::KERNELS,
    super::binary_cross_entropy::kernels::KERNELS,
    super::channel_norm::kernels::KERNELS,
    super::concat::kernels::KERNELS,
    super::conv2d::kernels::KERNELS,
    super::cross_entropy::kernels::KERNELS,
    super::dropout::kernels::KERNELS,
    super::embedding::kernels::KERNELS,
    super::gelu::kernels::KERNELS,
    super::glu::kernels::KERNELS,
    super::key_value_cache::kernels::KERNELS,
    super::layer_norm::kernels::KERNELS,
    super::pad2d::kernels::KERNELS,
    super::pool2d::kernels::KERNELS,
    super::relu::kernels::KERNELS,
    super::rms_norm::kernels::KERNELS,
    super::rope::kernels::KERNELS,
    super::rmsprop::kernels::KERNELS,
    super::scale::kernels::KERNELS,
    super::segment_attention::kernels::KERNELS,
    super::sgd::kernels::KERNELS,
    super::sinusoid::kernels::KERNELS,
    super::softmax::kernels::KERNELS,
    super::squared_error::kernels::KERNELS,
    super::sum::kernels::KERNELS,
];
