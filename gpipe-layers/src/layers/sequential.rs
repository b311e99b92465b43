//! Building a list of layers.

use crate::Layer;

/// A builder of a list of layers. The list is flat: a list that is added, once or repeatedly, adds its
/// members, as Lingvo flattens a `Sequential` with `repeat`. A partitioner cuts the resulting list.
///
/// ```
/// use gpipe_layers::{Layer, layers::{Identity, Sequential}};
///
/// let block = |i: usize| Sequential::new()
///     .then(Identity::new(format!("h.{i}.attn")))
///     .then(Identity::new(format!("h.{i}.mlp")));
/// let model = Sequential::new().then(Identity::new("in")).repeat(2, block).into_layers();
/// let names: Vec<&str> = model.iter().map(|layer| layer.name()).collect();
/// assert_eq!(names, ["in", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp"]);
/// ```
#[derive(Debug, Default)]
pub struct Sequential(Vec<Box<dyn Layer>>);

impl Sequential {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The list and one layer more.
    #[must_use]
    pub fn then(mut self, layer: impl Layer + 'static) -> Self {
        self.0.push(Box::new(layer));
        self
    }

    /// The list and the members of another.
    #[must_use]
    pub fn append(mut self, list: Self) -> Self {
        self.0.extend(list.0);
        self
    }

    /// The list and the members of `times` others, each made with its index. Use the index in
    /// names: parameters of the same name would be the same parameter.
    #[must_use]
    pub fn repeat(self, times: usize, list: impl Fn(usize) -> Self) -> Self {
        (0..times).fold(self, |all, i| all.append(list(i)))
    }

    /// The layers, first to last.
    pub fn into_layers(self) -> Vec<Box<dyn Layer>> {
        self.0
    }
}
