//! The simplified U-Net (Ronneberger et al., arXiv:1505.04597) of torchgpipe's benchmarks.

use gpipe_tensor::ops::Window;

use crate::layers::{
    Activation, Conv2d, Dropout, Fork, Function, InstanceNorm, PadConcat, Pool2d, Sequential,
    Upsample2d,
};
use crate::{Layer, Result};

/// Sizes of the images on the way down.
const DEPTH: usize = 5;

/// The layers of a U-Net with `units` convolutions on each level of each side and `channels` on the first, from
/// (batch, height, width, `colours`) to the logits of `masks` masks (batch, height, width, `masks`). A flat list,
/// which can be cut anywhere: the skips nest, and pass by.
///
/// Layers and names are those of torchgpipe's model after `flatten_sequential`.
///
/// # Errors
/// [`Error::Config`](crate::Error::Config) for a dropout outside of 0..1.
pub(super) fn unet(
    units: usize,
    channels: usize,
    colours: usize,
    masks: usize,
    dropout: f32,
) -> Result<Vec<Box<dyn Layer>>> {
    // Twice the channels of a level.
    let twice = |level: usize| channels << level;
    let mut layers = Sequential::new();
    for level in 0..DEPTH {
        let inputs = if level == 0 {
            colours
        } else {
            twice(level - 1)
        };
        let inner = [inputs, twice(level), twice(level)];
        let name = format!("encoder_{level}");
        layers = convolutions(layers, &format!("{name}_encode"), units, inner, dropout)?
            .then(Fork::new(format!("{name}_skip")))
            .then(Pool2d::max(format!("{name}_down"), Window::square(2, 2, 0)));
    }
    let inner = [twice(DEPTH - 1), twice(DEPTH), twice(DEPTH - 1)];
    layers = convolutions(layers, "bottleneck_0", units, inner, dropout)?;
    for level in (0..DEPTH).rev() {
        let outputs = twice(level) / 2;
        let name = format!("decoder_{}", DEPTH - 1 - level);
        layers = layers
            .then(Upsample2d::new(format!("{name}_up")))
            .then(PadConcat::new(format!("{name}_skip")));
        let inner = [twice(level + 1), outputs, outputs];
        layers = convolutions(layers, &format!("{name}_decode"), units, inner, dropout)?;
    }
    let segment = Conv2d::new("segment", channels / 2, masks, Window::square(1, 1, 0));
    Ok(layers.then(segment.without_bias()).into_layers())
}

/// `units` convolutions of 3 × 3, each with dropout of channels, a normalization and a leaky ReLU.
fn convolutions(
    mut layers: Sequential,
    name: &str,
    units: usize,
    [inputs, inner, outputs]: [usize; 3],
    dropout: f32,
) -> Result<Sequential> {
    for unit in 0..units {
        let of = |part: &str| format!("{name}_{unit}_{part}");
        let from = if unit == 0 { inputs } else { inner };
        let to = if unit + 1 == units { outputs } else { inner };
        let conv = Conv2d::new(of("conv"), from, to, Window::square(3, 1, 1));
        layers = layers
            .then(conv.without_bias())
            .then(Dropout::of_channels(of("dropout"), dropout)?)
            .then(InstanceNorm::new(of("norm")))
            .then(Activation::new(of("relu"), Function::LeakyRelu));
    }
    Ok(layers)
}
