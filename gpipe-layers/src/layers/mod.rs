//! The layers.
//!
//! FLOPs are counted as the literature counts a model's: 2 for each multiply-add of a matrix
//! product, attention in full although its masked half is skipped, nothing for recomputation.
//! Element-wise layers charge a few FLOPs per element, documented at each.

mod activation;
mod at;
mod attention;
mod batch_norm;
mod concat;
mod conv2d;
mod discard;
mod dropout;
mod embedding;
mod feature_extraction;
mod flow;
mod gelu_linear;
mod graph;
mod graph_walk;
mod head;
mod identity;
mod instance_norm;
mod layer_norm;
mod linear;
mod lora;
mod multi_head_attention;
mod pad2d;
mod pad_concat;
mod permute;
mod pool2d;
mod replay;
mod residual;
mod rms_norm;
mod rotary;
mod rotary_qkv;
mod sequential;
mod sinusoid_embedding;
mod skip;
mod stop_gradient;
mod swiglu;
mod transparent;
mod upsample2d;

pub use activation::{Activation, Function};
pub use at::At;
pub use attention::CausalAttention;
pub use batch_norm::BatchNorm;
pub use concat::Concat;
pub use conv2d::Conv2d;
pub use discard::Discard;
pub use dropout::Dropout;
pub(crate) use dropout::check_rate;
pub use embedding::Embedding;
pub use feature_extraction::FeatureExtraction;
pub use gelu_linear::GeluLinear;
pub use graph::Graph;
pub use head::Head;
pub use identity::Identity;
pub use instance_norm::InstanceNorm;
pub use layer_norm::LayerNorm;
pub use linear::{Layout, Linear};
pub use multi_head_attention::MultiHeadAttention;
pub use pad_concat::PadConcat;
pub use pad2d::Pad2d;
pub use permute::Permute;
pub use pool2d::Pool2d;
pub use residual::Residual;
pub use rms_norm::RmsNorm;
pub use rotary::Rotary;
pub use rotary_qkv::RotaryQkv;
pub use sequential::Sequential;
pub use sinusoid_embedding::SinusoidEmbedding;
pub use skip::{Add, Fork};
pub use stop_gradient::StopGradient;
pub use swiglu::SwiGlu;
pub use transparent::{TransparentAdd, TransparentSum, TransparentWeights};
pub use upsample2d::Upsample2d;
