//! Every layer, from one table: its gradients are those of a plain double-precision reference, and
//! the bytes that its cost predicts are the bytes that it holds.

#[path = "layers/batch_norm.rs"]
mod batch_norm;
#[path = "layers/bytes.rs"]
mod bytes;
#[path = "layers/cases.rs"]
mod cases;
#[path = "layers/columns.rs"]
mod columns;
#[path = "layers/faults.rs"]
mod faults;
#[path = "layers/feature_extraction.rs"]
mod feature_extraction;
#[path = "layers/gradients.rs"]
mod gradients;
#[path = "layers/graphs.rs"]
mod graphs;
#[path = "layers/images.rs"]
mod images;
#[path = "layers/llama.rs"]
mod llama;
#[path = "layers/lora.rs"]
mod lora;
#[path = "layers/reference.rs"]
mod reference;
#[path = "layers/refusals.rs"]
mod refusals;
#[path = "layers/segments.rs"]
mod segments;
#[path = "layers/skips.rs"]
mod skips;
