//! Layers that slide over an image or a sequence.

use gpipe_tensor::Shape;

use super::Meta;
use super::count::{elements, extents, mismatch, overflow, product};
use crate::{Error, Result};

/// What happens at the border of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zeros are added: the output has ⌈extent / stride⌉.
    Same,
    /// Nothing is added: the output has ⌈(extent − filter + 1) / stride⌉.
    Valid,
}

/// `Conv2DLayerNoPadding`: 2·b·oh·ow·fh·fw·ic·oc for an input (b, h, w, ic), a filter
/// (fh, fw, ic, oc) and strides (down, right).
///
/// # Errors
/// If the shapes do not match, a stride is 0, or a filter without padding is larger than the image.
pub fn conv2d(
    input: &Shape,
    filter: [usize; 4],
    stride: [usize; 2],
    padding: Padding,
) -> Result<Meta> {
    const LAYER: &str = "conv2d";
    let [batch, height, width, channels] = extents(LAYER, input)?;
    let [filter_height, filter_width, input_channels, output_channels] = filter;
    if channels != input_channels {
        return Err(mismatch(LAYER, format!("{input_channels} channels"), input));
    }
    let output = |extent: usize, filter: usize, stride: usize| {
        let positions = match padding {
            Padding::Same => extent,
            Padding::Valid => (extent + 1).saturating_sub(filter),
        };
        if stride == 0 || filter == 0 || positions == 0 {
            return Err(Error::Config(format!(
                "{LAYER}: a filter of {filter} with stride {stride} has no place on {extent} pixels: \
                 use sizes of at least 1 and a filter no larger than the image"
            )));
        }
        Ok(positions.div_ceil(stride))
    };
    let output_height = output(height, filter_height, stride[0])?;
    let output_width = output(width, filter_width, stride[1])?;
    let shape = Shape::from([batch, output_height, output_width, output_channels]);
    let flops = product(
        LAYER,
        &[
            2,
            elements(LAYER, &shape)?,
            filter_height as u64,
            filter_width as u64,
            channels as u64,
        ],
    )?;
    Ok(Meta::same(flops, &shape))
}

/// `NormalizedDepthwiseConv2DLayer`: 5·b·t·k·oc for an input (b, t, 1, c) and a filter
/// (k, 1, inputs, multiplier) tiled `tiling` times, oc = inputs · multiplier · tiling.
///
/// # Errors
/// If the input does not have this shape or the count does not fit.
pub fn depthwise_conv(input: &Shape, filter: [usize; 4], tiling: usize) -> Result<Meta> {
    const LAYER: &str = "depthwise conv";
    let [batch, time, frequency, _] = extents(LAYER, input)?;
    if frequency != 1 {
        return Err(mismatch(LAYER, "(batch, time, 1, channels)".into(), input));
    }
    let [kernel, _, inputs, multiplier] = filter;
    let channels = inputs
        .checked_mul(multiplier)
        .and_then(|channels| channels.checked_mul(tiling))
        .ok_or_else(|| overflow(LAYER))?;
    let shape = Shape::from([batch, time, 1, channels]);
    let flops = product(LAYER, &[5, elements(LAYER, &shape)?, kernel as u64])?;
    Ok(Meta::same(flops, &shape))
}

/// `StrideLayer` and `FunnelPoolingLayer`: 1, whatever the shape. Every `stride`-th of the first
/// `first` positions (all, if `None`) along `axis` is kept; a stride of 0 keeps the first one.
///
/// # Errors
/// If the axis is not 1, 2 or 3 of the input, or `first` is 0 or beyond it.
pub fn stride_pooling(
    input: &Shape,
    axis: usize,
    stride: usize,
    first: Option<usize>,
) -> Result<Meta> {
    const LAYER: &str = "stride pooling";
    let mut dims = input.dims().to_vec();
    let Some(extent) = dims.get_mut(axis).filter(|_| (1..=3).contains(&axis)) else {
        return Err(mismatch(
            LAYER,
            format!("an axis {axis} of 1, 2 or 3"),
            input,
        ));
    };
    let first = first.unwrap_or(*extent);
    if first == 0 || first > *extent {
        return Err(Error::Config(format!(
            "{LAYER}: the first {first} of {extent} positions: use 1 to {extent}"
        )));
    }
    *extent = if stride == 0 {
        1
    } else {
        first.div_ceil(stride)
    };
    Ok(Meta::same(1, &Shape::from(dims.as_slice())))
}
