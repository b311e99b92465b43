//! Networks with skips over several layers.

use gpipe_layers::Layer;
use gpipe_layers::layers::{Add, At, Embedding, Fork, Layout, Linear, Permute};

pub const WIDTH: usize = 6;

pub type Layers = Vec<Box<dyn Layer>>;
pub type Net = fn() -> Layers;

fn linear(i: usize) -> Linear {
    Linear::new(format!("linear{i}"), WIDTH, WIDTH, Layout::OutIn)
}

/// A skip over `length` layers, which stands at place 0 or 1 of the flow.
pub fn long(length: usize, place: usize) -> Layers {
    let mut layers: Layers = vec![Box::new(linear(0)), Box::new(Fork::new("fork"))];
    layers.extend((1..=length).map(|i| Box::new(At::new([1 - place], linear(i))) as _));
    layers.push(Box::new(Add::new("add")));
    layers.push(Box::new(linear(length + 1)));
    layers
}

/// Skips within each other, as of a U-Net of this many levels.
pub fn nested(levels: usize) -> Layers {
    let mut layers: Layers = Vec::new();
    for i in 0..levels {
        layers.push(Box::new(linear(i)));
        layers.push(Box::new(Fork::new(format!("fork{i}"))));
    }
    layers.push(Box::new(linear(levels)));
    for i in 0..levels {
        layers.push(Box::new(Add::new(format!("add{i}"))));
        layers.push(Box::new(linear(levels + 1 + i)));
    }
    layers
}

/// Skips that cross: the first is taken first.
fn crossing() -> Layers {
    let at = |i: usize| -> Box<dyn Layer> { Box::new(At::new([0], linear(i))) };
    vec![
        Box::new(linear(0)),
        Box::new(Fork::new("fork0")),
        at(1),
        Box::new(Fork::new("fork1")),
        at(2),
        at(3),
        Box::new(Permute::new("permute", [0, 2, 1])),
        Box::new(Add::new("add0")),
        at(4),
        at(5),
        Box::new(Add::new("add1")),
        Box::new(linear(6)),
    ]
}

/// Indices that enter with the floats, behind them, and are taken by the last layers.
fn indices() -> Layers {
    let mut layers: Layers = (0..6)
        .map(|i| Box::new(At::new([0], linear(i))) as _)
        .collect();
    layers.push(Box::new(At::new(
        [1],
        Embedding::new("embedding", 5, WIDTH, 0.5),
    )));
    layers.push(Box::new(Add::new("add")));
    layers
}

/// A net, and whether it takes indices beside the floats.
pub fn nets() -> Vec<(&'static str, Net, bool)> {
    vec![
        ("long, place 0", || long(6, 0), false),
        ("long, place 1", || long(6, 1), false),
        ("nested", || nested(3), false),
        ("crossing", crossing, false),
        ("indices", indices, true),
    ]
}

/// One wide tensor passes two stages of a narrow net: fewer bytes are in the flows and on these stages than it has.
pub fn wide(skip: bool) -> Layers {
    const WIDE: usize = 512;
    let narrow = |i: usize| Linear::new(format!("narrow{i}"), 2, 2, Layout::OutIn);
    let mut layers: Layers = vec![Box::new(Linear::new("widen", WIDTH, WIDE, Layout::OutIn))];
    if skip {
        layers.push(Box::new(Fork::new("fork")));
    }
    layers.push(Box::new(At::new(
        [0],
        Linear::new("in", WIDE, 2, Layout::OutIn),
    )));
    layers.extend((0..2).map(|i| Box::new(At::new([0], narrow(i))) as _));
    layers.push(Box::new(At::new(
        [0],
        Linear::new("out", 2, WIDE, Layout::OutIn),
    )));
    if skip {
        layers.push(Box::new(Add::new("add")));
    }
    layers.push(Box::new(Linear::new("end", WIDE, WIDTH, Layout::OutIn)));
    layers
}
