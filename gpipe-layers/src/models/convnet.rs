//! A small convolutional classifier.

use gpipe_tensor::ops::Window;

use crate::layers::{Activation, Conv2d, Dropout, Function, Layout, Linear, Pool2d, Sequential};
use crate::{Layer, Result};

/// Convolutions `conv_0`, `conv_1`, … of 3 × 3 with ReLU, a maximum over 2 × 2 pixels between them, the mean
/// over what is left of the image, and a linear layer. From (batch, height, width, channels) to
/// (batch, classes).
///
/// # Errors
/// [`Error::Config`](crate::Error::Config) for a dropout outside of 0..1.
pub(super) fn convnet(
    colours: usize,
    channels: &[usize],
    classes: usize,
    dropout: f32,
) -> Result<Vec<Box<dyn Layer>>> {
    let mut layers = Sequential::new();
    let mut inputs = colours;
    for (i, &outputs) in channels.iter().enumerate() {
        if i > 0 {
            layers = layers.then(Pool2d::max(
                format!("pool_{}", i - 1),
                Window::square(2, 2, 0),
            ));
        }
        layers = layers
            .then(Conv2d::new(
                format!("conv_{i}"),
                inputs,
                outputs,
                Window::square(3, 1, 1),
            ))
            .then(Activation::new(format!("activation_{i}"), Function::Relu));
        inputs = outputs;
    }
    layers = layers.then(Pool2d::whole_average("mean"));
    let dropped = Dropout::new("dropout", dropout)?;
    if dropout > 0.0 {
        layers = layers.then(dropped);
    }
    let linear = Linear::new("linear", inputs, classes, Layout::OutIn);
    Ok(layers.then(linear).into_layers())
}
