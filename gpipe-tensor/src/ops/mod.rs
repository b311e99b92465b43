//! Operations in forward/gradient pairs.
//!
//! Every result is a function of the operands' shapes and values, never of the number of threads.
//! A result belongs to the handle of the first operand.

pub(crate) mod adamw;
pub(crate) mod add;
pub(crate) mod attention;
pub(crate) mod binary_cross_entropy;
pub(crate) mod channel_norm;
mod check;
mod chunks;
pub(crate) mod concat;
pub(crate) mod conv2d;
pub(crate) mod cross_entropy;
mod deferred_scalar;
pub(crate) mod dropout;
pub(crate) mod embedding;
pub(crate) mod gelu;
pub(crate) mod glu;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
pub(crate) mod key_value_cache;
pub(crate) mod layer_norm;
mod matmul;
pub(crate) mod pad2d;
pub(crate) mod pool2d;
mod prefetch;
pub(crate) mod relu;
pub(crate) mod rms_norm;
pub(crate) mod rmsprop;
pub(crate) mod rope;
mod rows;
pub(crate) mod scale;
mod scratch;
pub(crate) mod segment_attention;
pub(crate) mod sgd;
pub(crate) mod sinusoid;
pub(crate) mod softmax;
pub(crate) mod squared_error;
pub(crate) mod sum;
pub(crate) mod window;

pub use adamw::{AdamW, AdamWBatch, AdamWUpdate, adamw};
pub use add::{add, add_assign};
pub use attention::{Heads, attention, attention_grad};
pub use binary_cross_entropy::{
    binary_correct, binary_cross_entropy, deferred_binary_cross_entropy,
};
pub use channel_norm::{
    ChannelNorm, channel_norm, channel_norm_grad, channel_statistics, merge_channel_statistics,
    moving_average,
};
pub use concat::{columns, concat};
pub use conv2d::{conv2d, conv2d_input_grad, conv2d_weight_grad};
pub use cross_entropy::{
    IGNORE, correct, cross_entropy, cross_entropy_loss, deferred_cross_entropy,
    smoothed_cross_entropy, smoothed_cross_entropy_loss, weighted_cross_entropy,
};
pub use deferred_scalar::DeferredScalar;
pub use dropout::{Dropout, dropout, dropout_channels};
pub use embedding::{embedding, embedding_grad};
pub use gelu::{Gelu, gelu, gelu_grad, gelu_with_grad};
pub use glu::{Gate, glu, glu_with_grad};
pub use key_value_cache::{CacheSpan, KeyValueCache};
pub use layer_norm::{layer_norm, layer_norm_grad};
pub use matmul::{
    Layout, batched_matmul, matmul, matmul_accumulate, matmul_accumulate_rows, matmul_onto,
    matmul_padded, padded,
};
pub use pad2d::{check_pad2d, pad2d};
pub use pool2d::{avg_pool2d, avg_pool2d_grad, max_pool2d, max_pool2d_grad};
pub use relu::{leaky_relu, leaky_relu_grad, relu, relu_grad};
pub use rms_norm::{Gain, rms_norm, rms_norm_grad};
pub use rmsprop::{RmsProp, RmsPropUpdate, rmsprop};
pub use rope::{Rope, RopeScaling, rope, rope_grad};
pub use scale::{Zeros, scale, scale_assign};
pub use segment_attention::{SegmentAttention, segment_attention, segment_attention_grad};
pub use sgd::{Sgd, SgdUpdate, sgd};
pub use sinusoid::scale_and_add_positions;
pub use softmax::{causal_softmax, causal_softmax_grad, softmax, softmax_grad};
pub use squared_error::{
    deferred_one_hot_squared_error, deferred_squared_error, one_hot_squared_error, squared_error,
};
pub use sum::{
    all_finite, max_abs, sum, sum_of_squares, sum_rows_accumulate, sum_rows_accumulate_in,
    sums_of_squares,
};
pub use window::Window;
