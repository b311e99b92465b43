//! Tensors of a flow followed by their places through layers: those that the layers touch, and those that they hand on.

use std::ops::Range;

use gpipe_layers::Layer;

/// How a layer treats the places of the flow.
#[derive(Clone, Debug)]
pub(crate) struct LayerPlaces {
    /// [`Layer::arity`].
    pub arity: usize,
    /// [`Layer::handed_on`].
    pub handed_on: Vec<(usize, usize)>,
}

impl LayerPlaces {
    /// Those of a layer.
    pub fn of(layer: &dyn Layer) -> Self {
        Self {
            arity: layer.arity(),
            handed_on: layer.handed_on(),
        }
    }

    /// A layer that touches one tensor.
    pub fn one() -> Self {
        Self {
            arity: 1,
            handed_on: Vec::new(),
        }
    }
}

/// The tensors of the flow that enters a run of layers.
#[derive(Debug)]
pub(crate) struct Reach {
    /// For each tensor of the flow so far, the place of the input that it is; `None` if a layer made it.
    flow: Vec<Option<usize>>,
    /// For each input, whether some layer touches it.
    touched: Vec<bool>,
}

impl Reach {
    /// A flow of this many tensors before the first layer.
    pub fn new(inputs: usize) -> Self {
        Self {
            flow: (0..inputs).map(Some).collect(),
            touched: vec![false; inputs],
        }
    }

    /// Passes a layer that returns this many tensors.
    pub fn pass(&mut self, layer: &LayerPlaces, outputs: usize) {
        let taken = layer.arity.min(self.flow.len());
        let mut flow: Vec<Option<usize>> = vec![None; outputs];
        for (place, input) in self.flow.drain(..taken).enumerate() {
            let to = layer.handed_on.iter().find(|(from, _)| *from == place);
            match (to.and_then(|&(_, to)| flow.get_mut(to)), input) {
                (Some(output), input) => *output = input,
                (None, Some(input)) => self.touched[input] = true,
                (None, None) => {}
            }
        }
        flow.append(&mut self.flow);
        self.flow = flow;
    }

    /// For each tensor of the flow so far, the place of the input that it is; `None` if a layer made it.
    pub fn origins(&self) -> &[Option<usize>] {
        &self.flow
    }

    /// For each input, whether some layer so far touches it.
    pub fn touched(&self) -> &[bool] {
        &self.touched
    }
}

/// The way of a tensor over the boundaries of stages, from the stage that gives it to the next that touches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The stage that made it, touched it last or is the first, which receives the input.
    pub giver: usize,
    /// The next stage that touches it; the number of stages for the loss.
    pub taker: usize,
    /// Its place in the flow over each boundary on its way: in the one that leaves the giver, and so on to the
    /// one that enters the taker.
    pub places: Vec<usize>,
}

/// All passages of a model that is cut into `cut`, by taker and place. Layer i treats places as `layers[i]` and
/// returns `outputs[i]` tensors; `inputs` tensors enter the first.
pub(crate) fn passages(
    layers: &[LayerPlaces],
    outputs: &[usize],
    inputs: usize,
    cut: &[Range<usize>],
) -> Vec<Passage> {
    let mut passages = Vec::new();
    // The giver of each tensor of the flow and its places since then.
    let mut given: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut tensors = inputs;
    for (stage, part) in cut.iter().enumerate() {
        let mut reach = Reach::new(tensors);
        for layer in part.clone() {
            reach.pass(&layers[layer], outputs[layer]);
        }
        let taken = given.iter().enumerate();
        let taken = taken.filter(|&(place, _)| reach.touched[place]);
        passages.extend(taken.map(|(_, from)| passage(from, stage)));
        let leaving = reach.flow.iter().enumerate();
        given = leaving
            .map(|(place, input)| {
                let from = input.and_then(|input| given.get(input).cloned());
                let (giver, mut places) = from.unwrap_or((stage, Vec::new()));
                places.push(place);
                (giver, places)
            })
            .collect();
        tensors = given.len();
    }
    passages.extend(given.iter().map(|from| passage(from, cut.len())));
    passages
}

fn passage((giver, places): &(usize, Vec<usize>), taker: usize) -> Passage {
    Passage {
        giver: *giver,
        taker,
        places: places.clone(),
    }
}

#[cfg(test)]
mod tests {
    use gpipe_layers::layers::{Add, At, Fork, Identity, Permute};

    use super::*;

    fn cut(layers: &[(Box<dyn Layer>, usize)], cut: &[Range<usize>]) -> Vec<[usize; 4]> {
        let places: Vec<_> = layers
            .iter()
            .map(|(layer, _)| LayerPlaces::of(layer.as_ref()))
            .collect();
        let outputs: Vec<_> = layers.iter().map(|&(_, outputs)| outputs).collect();
        let passages = passages(&places, &outputs, 1, cut).into_iter();
        let numbers =
            passages.map(|p| [p.giver, p.places[0], p.taker, p.places[p.places.len() - 1]]);
        numbers.collect()
    }

    #[test]
    fn a_tensor_is_followed_from_giver_to_taker() {
        let layers: Vec<(Box<dyn Layer>, usize)> = vec![
            (Box::new(Fork::new("fork")), 2),
            (Box::new(At::new([1], Add::new("own"))), 2),
            // The skip goes to place 1, and the others' tensor to 0.
            (Box::new(Permute::new("permute", [1, 0])), 2),
            (Box::new(Fork::new("again")), 2),
            (Box::new(Add::new("add")), 1),
            (Box::new(Add::new("last")), 1),
            (Box::new(Identity::new("end")), 1),
        ];
        let each: Vec<Range<usize>> = (0..7).map(|i| i..i + 1).collect();
        assert_eq!(
            cut(&layers, &each),
            [
                // The second tensor, then the first of the fork in the middle.
                [0, 1, 1, 1],
                [1, 1, 3, 0],
                [3, 0, 4, 0],
                [3, 1, 4, 1],
                [4, 0, 5, 0],
                // The skip passes stages 1 to 4.
                [0, 0, 5, 1],
                // An identity hands on to the loss.
                [5, 0, 7, 0],
            ]
        );
        assert_eq!(
            cut(&layers, &[0..3, 3..4, 4..7]),
            [
                [0, 0, 1, 0],
                [1, 0, 2, 0],
                [1, 1, 2, 1],
                [0, 1, 2, 2],
                [2, 0, 3, 0]
            ]
        );
    }
}
