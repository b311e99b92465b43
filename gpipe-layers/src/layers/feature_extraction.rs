//! A list of layers that carries tensors past itself and returns activations beside its output.

use super::permute::Permute;
use super::skip::Fork;
use crate::{Error, Flow, Layer, Result};

/// A list of layers that hands further tensors on untouched and returns the outputs of some of its layers beside
/// its own, as Lingvo's `FeatureExtractionLayer` does.
///
/// It takes the tensors of its first layer and behind them [`carried`](Self::carry) ones (Lingvo's
/// `num_act_inputs`). It returns the output of its last layer, the carried tensors, and the first output of each
/// [`fetched`](Self::fetch) layer (`act_fetch_layers`), in this order. It becomes a flat list, which a
/// partitioner cuts anywhere. Carrying and fetching copy nothing.
///
/// ```
/// use gpipe_layers::layers::{Activation, FeatureExtraction, Function, Layout, Linear};
/// use gpipe_layers::{Flow, Layer};
///
/// let list = FeatureExtraction::new("features")
///     .then(Linear::new("fc1", 4, 8, Layout::OutIn))
///     .then(Activation::new("relu", Function::Relu))
///     .then(Linear::new("fc2", 8, 2, Layout::OutIn))
///     .fetch("relu");
/// assert_eq!(list.act_outputs(), 1);
/// // The output of fc2, and that of relu beside it.
/// let layers = list.into_layers(&[Flow::f32([3, 4])])?;
/// let names: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
/// assert_eq!(names, ["fc1", "relu", "relu.fetch", "fc2"]);
/// # Ok::<(), gpipe_layers::Error>(())
/// ```
#[derive(Debug)]
pub struct FeatureExtraction {
    name: String,
    layers: Vec<Box<dyn Layer>>,
    carried: usize,
    fetches: Vec<String>,
}

impl FeatureExtraction {
    /// An empty list of this name that carries and fetches nothing.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            layers: Vec::new(),
            carried: 0,
            fetches: Vec::new(),
        }
    }

    /// The list and one layer more.
    #[must_use]
    pub fn then(mut self, layer: impl Layer + 'static) -> Self {
        self.layers.push(Box::new(layer));
        self
    }

    /// The same with this number of tensors behind those of the first layer, which pass all layers by.
    #[must_use]
    pub fn carry(self, carried: usize) -> Self {
        Self { carried, ..self }
    }

    /// The same with the output of the first layer of this name returned too; of several outputs the first.
    #[must_use]
    pub fn fetch(mut self, layer: impl Into<String>) -> Self {
        self.fetches.push(layer.into());
        self
    }

    /// The number of tensors behind the output: carried and fetched ones (Lingvo's `num_act_outputs`).
    pub fn act_outputs(&self) -> usize {
        self.carried + self.fetches.len()
    }

    /// The flat list of layers, for these inputs: as many tensors as the first layer takes, and the carried ones.
    ///
    /// # Errors
    /// If a layer cannot take the output of the one before it, there are fewer inputs than carried tensors, or
    /// a fetched layer does not exist or is named twice.
    pub fn into_layers(self, inputs: &[Flow]) -> Result<Vec<Box<dyn Layer>>> {
        let fail = |message: String| Err(Error::Config(format!("{}: {message}", self.name)));
        let Some(own) = inputs.len().checked_sub(self.carried) else {
            let (inputs, carried) = (inputs.len(), self.carried);
            return fail(format!(
                "{inputs} inputs but {carried} to carry: carry as many or fewer"
            ));
        };
        let mut flow = inputs[..own].to_vec();
        let mut list: Vec<Box<dyn Layer>> = Vec::new();
        // Places in `fetches`; the last one fetched lies next to the flow, where it moves the fewest tensors.
        let mut fetched: Vec<usize> = Vec::new();
        for layer in self.layers {
            let taken = layer.arity().min(flow.len());
            let mut outputs = layer.cost(&flow[..taken])?.outputs;
            outputs.extend(flow.drain(taken..));
            flow = outputs;
            let name = layer.name().to_owned();
            list.push(layer);
            let mut fetch = (0..self.fetches.len()).filter(|&i| self.fetches[i] == name);
            let Some(fetch) = fetch.next().filter(|i| !fetched.contains(i)) else {
                continue;
            };
            fetched.insert(0, fetch);
            list.push(Box::new(Fork::new(format!("{name}.fetch"))));
            if flow.len() > 1 {
                let order = [0].into_iter().chain(2..=flow.len()).chain([1]);
                list.push(Box::new(Permute::new(format!("{name}.aside"), order)));
            }
        }
        if let Some(missing) = (0..self.fetches.len()).find(|i| !fetched.contains(i)) {
            let missing = &self.fetches[missing];
            return fail(format!(
                "no layer `{missing}` to fetch: fetch each of its layers at most once"
            ));
        }
        let behind = flow.len() + fetched.len();
        let place = |fetch: usize| {
            let at = fetched.iter().position(|&one| one == fetch);
            flow.len() + at.unwrap_or_default()
        };
        let order: Vec<usize> = (0..flow.len())
            .chain(behind..behind + self.carried)
            .chain((0..fetched.len()).map(place))
            .collect();
        if !order.is_sorted() {
            let name = format!("{}.outputs", self.name);
            list.push(Box::new(Permute::new(name, order)));
        }
        Ok(list)
    }
}
