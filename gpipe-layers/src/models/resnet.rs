//! ResNet (He et al., arXiv:1512.03385) in the form v1.5, with the stride in the 3 × 3.

use gpipe_tensor::ops::Window;

use crate::layers::{
    Activation, Add, At, BatchNorm, Conv2d, Fork, Function, Layout, Linear, Pool2d, Sequential,
};
use crate::{Init, Layer};

/// Channels of the first group of blocks, inside.
const WIDTH: usize = 64;

/// Blocks of each of the four groups, and whether a block is a bottleneck.
///
/// `None` for another depth than 18, 34, 50, 101 or 152.
pub(super) fn blocks(depth: usize) -> Option<([usize; 4], bool)> {
    match depth {
        18 => Some(([2, 2, 2, 2], false)),
        34 => Some(([3, 4, 6, 3], false)),
        50 => Some(([3, 4, 6, 3], true)),
        101 => Some(([3, 4, 23, 3], true)),
        152 => Some(([3, 8, 36, 3], true)),
        _ => None,
    }
}

/// Channels of a block's output for one inside.
const fn expansion(bottleneck: bool) -> usize {
    if bottleneck { 4 } else { 1 }
}

/// Channels that enter the last layer.
pub(super) const fn features(bottleneck: bool) -> usize {
    8 * WIDTH * expansion(bottleneck)
}

/// The layers of a ResNet, from (batch, height, width, `colours`) to (batch, `classes`), as a flat list that can be
/// cut within blocks: the skip passes by.
///
/// Names of the parameters and initial values are those of torchvision.
pub(super) fn resnet(
    groups: [usize; 4],
    bottleneck: bool,
    colours: usize,
    classes: usize,
) -> Vec<Box<dyn Layer>> {
    let stem = Convolution {
        name: "conv1".into(),
        norm: "bn1".into(),
        inputs: colours,
        outputs: WIDTH,
        window: Window::square(7, 2, 3),
    };
    let mut layers = stem
        .add(Sequential::new())
        .then(relu("relu"))
        .then(Pool2d::max("maxpool", Window::square(3, 2, 1)));
    let mut channels = WIDTH;
    for (group, blocks) in groups.into_iter().enumerate() {
        let width = WIDTH << group;
        for block in 0..blocks {
            let stride = if group > 0 && block == 0 { 2 } else { 1 };
            let name = format!("layer{}.{block}", group + 1);
            let outputs = width * expansion(bottleneck);
            layers = match bottleneck {
                true => bottleneck_block(layers, &name, [channels, width, outputs], stride),
                false => basic_block(layers, &name, [channels, outputs], stride),
            };
            channels = outputs;
        }
    }
    layers
        .then(Pool2d::whole_average("avgpool"))
        .then(Linear::new("fc", channels, classes, Layout::OutIn))
        .into_layers()
}

fn bottleneck_block(
    layers: Sequential,
    name: &str,
    [inputs, width, outputs]: [usize; 3],
    stride: usize,
) -> Sequential {
    let conv =
        |i: usize, inputs, outputs, window| Convolution::within(name, i, inputs, outputs, window);
    let layers = shortcut(layers, name, inputs, outputs, stride);
    let layers = conv(1, inputs, width, Window::square(1, 1, 0)).add(layers);
    let layers = layers.then(relu(format!("{name}.relu1")));
    let layers = conv(2, width, width, Window::square(3, stride, 1)).add(layers);
    let layers = layers.then(relu(format!("{name}.relu2")));
    let layers = conv(3, width, outputs, Window::square(1, 1, 0)).add(layers);
    ended(layers, name)
}

fn basic_block(
    layers: Sequential,
    name: &str,
    [inputs, outputs]: [usize; 2],
    stride: usize,
) -> Sequential {
    let layers = shortcut(layers, name, inputs, outputs, stride);
    let first = Convolution::within(name, 1, inputs, outputs, Window::square(3, stride, 1));
    let layers = first.add(layers).then(relu(format!("{name}.relu1")));
    let second = Convolution::within(name, 2, outputs, outputs, Window::square(3, 1, 1));
    ended(second.add(layers), name)
}

/// Begins a block: the skip, through a convolution of 1 × 1 where its shape changes.
fn shortcut(
    layers: Sequential,
    name: &str,
    inputs: usize,
    outputs: usize,
    stride: usize,
) -> Sequential {
    let layers = layers.then(Fork::new(format!("{name}.fork")));
    if inputs == outputs && stride == 1 {
        return layers;
    }
    let downsample = Convolution {
        name: format!("{name}.downsample.0"),
        norm: format!("{name}.downsample.1"),
        inputs,
        outputs,
        window: Window::square(1, stride, 0),
    };
    let (conv, norm) = downsample.layers();
    layers.then(At::new([1], conv)).then(At::new([1], norm))
}

/// Ends a block.
fn ended(layers: Sequential, name: &str) -> Sequential {
    layers
        .then(Add::new(format!("{name}.add")))
        .then(relu(format!("{name}.relu")))
}

fn relu(name: impl Into<String>) -> Activation {
    Activation::new(name, Function::Relu)
}

/// A convolution without bias, and its normalization.
struct Convolution {
    name: String,
    norm: String,
    inputs: usize,
    outputs: usize,
    window: Window,
}

impl Convolution {
    /// The `i`-th of a block.
    fn within(block: &str, i: usize, inputs: usize, outputs: usize, window: Window) -> Self {
        Self {
            name: format!("{block}.conv{i}"),
            norm: format!("{block}.bn{i}"),
            inputs,
            outputs,
            window,
        }
    }

    fn add(self, layers: Sequential) -> Sequential {
        let (conv, norm) = self.layers();
        layers.then(conv).then(norm)
    }

    fn layers(self) -> (Conv2d, BatchNorm) {
        let [height, width] = self.window.kernel;
        // He et al., arXiv:1502.01852, by the number of outputs (`kaiming_normal_` with `fan_out`).
        let deviation = (2.0 / (height * width * self.outputs) as f32).sqrt();
        let conv = Conv2d::new(self.name, self.inputs, self.outputs, self.window);
        (
            conv.without_bias().init(Init::Normal(deviation)),
            BatchNorm::new(self.norm, self.outputs),
        )
    }
}
