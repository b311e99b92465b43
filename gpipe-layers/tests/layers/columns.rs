//! Inputs of other columns than a layer was made for: operations that take their sizes from shapes would compute
//! something else.

use gpipe_layers::layers::{CausalAttention, Conv2d};
use gpipe_layers::{Error, Layer, PassContext, make};
use gpipe_tensor::Tensor;
use gpipe_tensor::ops::Window;

use super::cases::{device, one};

/// Whether a forward pass over zeros of this shape is refused for its input.
fn is_refused(mut layer: impl Layer, shape: &[usize]) -> bool {
    let device = device();
    make(&mut layer, &device, 0).unwrap();
    let x = Tensor::zeros(&device, shape).unwrap();
    let y = layer.forward(&PassContext::evaluation(0..1), one(x));
    matches!(y, Err(Error::Input { .. }))
}

#[test]
fn a_convolution_takes_its_own_channels_alone() {
    let layer = || Conv2d::new("conv", 4, 8, Window::square(3, 1, 1));
    assert!(!is_refused(layer(), &[1, 5, 5, 4]));
    // As many as two groups of four would take.
    assert!(is_refused(layer(), &[1, 5, 5, 8]));
}

#[test]
fn attention_takes_its_own_columns_alone() {
    let layer = || CausalAttention::new("attention", 8, 2, 0.0).unwrap();
    assert!(!is_refused(layer(), &[1, 3, 24]));
    assert!(is_refused(layer(), &[1, 3, 48]));
}
