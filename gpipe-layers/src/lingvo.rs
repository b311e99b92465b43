//! The cost formulas of Lingvo's `FPropMeta`, as functions of shapes.
//!
//! They are kept as they are, for comparison with what the published GPipe would cut; gpipe's own
//! [`Cost`](crate::Cost) is the default. They count a multiply-add as 2, only the forward pass, and
//! constants where their authors had no better: a Transformer layer is charged for its T² term
//! alone, a softmax 100 whatever its vocabulary, and an embedding (a gather) for a whole matrix
//! product. So the split of a Transformer is led by its cheapest layer.
//!
//! Lingvo has no formula for pooling of images, nor for attention with relative positions or a
//! local window, so there is none here. Where it would stop in an assertion or a failed look-up
//! there is an error; so is a count beyond 64 bits.

mod activation;
mod attention;
mod count;
mod dense;
mod elements;
mod images;
mod nested;

use gpipe_tensor::Shape;

use crate::Result;

pub use activation::Activation;
pub use attention::{
    Order, multi_headed_attention, transformer_embedding, transformer_layer, transformer_softmax,
};
pub use dense::{Projection, bias, feed_forward, gating_network, linear, lsh_memory, projection};
pub use elements::{
    activation, batch_norm, dropout, group_norm, layer_norm, memory_add, padding, per_dim_scale,
    residual_add, stochastic_residual,
};
pub use images::{Padding, conv2d, depthwise_conv, stride_pooling};
pub use nested::{first_n, free, parallel, parallel_repeat, repeat, sequential};

/// What `FPropMeta` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// FLOPs of one forward pass.
    pub flops: u64,
    /// The shapes that are handed on.
    pub outputs: Vec<Shape>,
}

impl Meta {
    fn same(flops: u64, shape: &Shape) -> Self {
        Self {
            flops,
            outputs: vec![shape.clone()],
        }
    }
}

/// A formula with everything but the shapes filled in, for the layers that hold others.
pub type Formula<'a> = dyn Fn(&[Shape]) -> Result<Meta> + 'a;
