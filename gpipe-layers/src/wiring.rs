//! The wiring of a graph of layers, and the two ways through it, for tensors and for what stands for them.

use smallvec::SmallVec;

/// A tensor of a [`Graph`](crate::layers::Graph): one of its inputs, or an output of one of its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// 0 for the inputs, i + 1 for layer i.
    pub(crate) source: usize,
    pub(crate) place: usize,
}

impl Value {
    /// Another output of the same layer, counted from 0.
    #[must_use]
    pub fn output(self, place: usize) -> Self {
        Self { place, ..self }
    }
}

/// The values that each layer of a graph takes, and those that the graph returns. A layer takes values of
/// earlier ones only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wiring {
    pub inputs: usize,
    /// One list a layer.
    pub nodes: Vec<Vec<Value>>,
    pub outputs: Vec<Value>,
}

/// Tensors of one node.
pub(crate) type Parts<T> = SmallVec<[T; 2]>;

/// What the ways through a graph are taken with: tensors, their buffers in a ledger, or their shapes.
pub(crate) trait Walker {
    type Tensor;
    type Error;

    /// Another claim on the same tensor.
    fn share(&mut self, tensor: &Self::Tensor) -> Self::Tensor;

    /// Lets go of a tensor that nothing takes.
    fn discard(&mut self, tensor: Self::Tensor);

    /// The sum of two gradients, in the memory of one that nothing else holds.
    fn sum(&mut self, a: Self::Tensor, b: Self::Tensor) -> Result<Self::Tensor, Self::Error>;

    /// The gradient of a value that nothing takes.
    fn zeros(&mut self, of: Value) -> Result<Self::Tensor, Self::Error>;

    /// The error for a value that does not exist.
    fn missing(&self, value: Value) -> Self::Error;
}

impl Wiring {
    /// How often a value is taken.
    fn uses(&self, value: Value) -> usize {
        let taken = self.nodes.iter().flatten().chain(&self.outputs);
        taken.filter(|&&one| one == value).count()
    }

    /// Inputs that no layer takes and that are one output, with the place of that.
    pub fn handed_on(&self) -> Vec<(usize, usize)> {
        let outputs = self.outputs.iter().enumerate();
        let of_inputs = outputs.filter(|(_, value)| value.source == 0 && self.uses(**value) == 1);
        of_inputs.map(|(to, value)| (value.place, to)).collect()
    }

    /// Whether a node's input gradient is needed where that of the graph is not: some node made one of its inputs.
    pub fn needs_gradient(&self, node: usize, is_float: &[SmallVec<[bool; 2]>]) -> bool {
        let made = |value: &Value| value.source > 0 && is_float[value.source][value.place];
        self.nodes[node].iter().any(made)
    }

    /// Forward: `run` takes a node and its inputs and returns its outputs. A value moves to the last that takes it.
    pub fn forward<W: Walker>(
        &self,
        walker: &mut W,
        x: Parts<W::Tensor>,
        mut run: impl FnMut(&mut W, usize, Parts<W::Tensor>) -> Result<Parts<W::Tensor>, W::Error>,
    ) -> Result<Parts<W::Tensor>, W::Error> {
        let mut values = Values {
            wiring: self,
            of_sources: Vec::with_capacity(self.nodes.len() + 1),
        };
        values.add(walker, x);
        for (node, taken) in self.nodes.iter().enumerate() {
            let taken = taken.iter().map(|&value| values.take(walker, value));
            let x = taken.collect::<Result<_, _>>()?;
            let y = run(walker, node, x)?;
            values.add(walker, y);
        }
        let taken = self.outputs.iter();
        taken.map(|&value| values.take(walker, value)).collect()
    }

    /// Backward, from the last node to the first: `step` takes a node and the gradients of its outputs and returns
    /// those of its inputs, or none. `is_float` says for each source which of its tensors have a gradient.
    /// The result has those of the inputs if `needs_dx`, and nothing otherwise.
    ///
    /// Gradients of a value that is taken several times are added from its last use to its first.
    pub fn backward<W: Walker>(
        &self,
        walker: &mut W,
        is_float: &[SmallVec<[bool; 2]>],
        dy: Parts<W::Tensor>,
        needs_dx: bool,
        mut step: impl FnMut(&mut W, usize, Parts<W::Tensor>) -> Result<Parts<W::Tensor>, W::Error>,
    ) -> Result<Parts<W::Tensor>, W::Error> {
        let mut gradients = Gradients {
            of_sources: is_float
                .iter()
                .map(|floats| floats.iter().map(|_| None).collect())
                .collect(),
            is_float,
            needs_dx,
        };
        gradients.add(walker, &self.outputs, dy)?;
        for (node, taken) in self.nodes.iter().enumerate().rev() {
            let dy = gradients.take(walker, node + 1)?;
            let dx = step(walker, node, dy)?;
            gradients.add(walker, taken, dx)?;
        }
        match needs_dx {
            true => gradients.take(walker, 0),
            false => {
                let held = gradients.of_sources.swap_remove(0);
                held.into_iter().flatten().for_each(|dx| walker.discard(dx));
                Ok(Parts::new())
            }
        }
    }
}

/// The values so far, with the number of times that each is still taken.
struct Values<'a, T> {
    wiring: &'a Wiring,
    of_sources: Vec<Vec<(Option<T>, usize)>>,
}

impl<T> Values<'_, T> {
    fn add<W: Walker<Tensor = T>>(&mut self, walker: &mut W, tensors: Parts<T>) {
        let source = self.of_sources.len();
        let counted = tensors.into_iter().enumerate().map(|(place, tensor)| {
            let uses = self.wiring.uses(Value { source, place });
            if uses == 0 {
                walker.discard(tensor);
                return (None, 0);
            }
            (Some(tensor), uses)
        });
        let counted = counted.collect();
        self.of_sources.push(counted);
    }

    fn take<W: Walker<Tensor = T>>(&mut self, walker: &mut W, value: Value) -> Result<T, W::Error> {
        let slot = self.of_sources.get_mut(value.source);
        let slot = slot.and_then(|source| source.get_mut(value.place));
        let (tensor, uses) = slot.ok_or_else(|| walker.missing(value))?;
        *uses = uses.saturating_sub(1);
        let taken = match uses {
            0 => tensor.take(),
            _ => tensor.as_ref().map(|tensor| walker.share(tensor)),
        };
        taken.ok_or_else(|| walker.missing(value))
    }
}

/// The sums of the gradients so far.
struct Gradients<'a, T> {
    is_float: &'a [SmallVec<[bool; 2]>],
    of_sources: Vec<Parts<Option<T>>>,
    needs_dx: bool,
}

impl<T> Gradients<'_, T> {
    /// Adds the gradients of those of `values` that have one.
    fn add<W: Walker<Tensor = T>>(
        &mut self,
        walker: &mut W,
        values: &[Value],
        gradients: Parts<T>,
    ) -> Result<(), W::Error> {
        let floats = values.iter().filter(|value| {
            let source = self.is_float.get(value.source);
            source.and_then(|source| source.get(value.place)) == Some(&true)
        });
        for (value, gradient) in floats.zip(gradients) {
            let slot = &mut self.of_sources[value.source][value.place];
            // Held like any argument of a call, but not added to.
            if value.source == 0 && !self.needs_dx && slot.is_some() {
                walker.discard(gradient);
                continue;
            }
            *slot = Some(match slot.take() {
                None => gradient,
                Some(sum) => walker.sum(gradient, sum)?,
            });
        }
        Ok(())
    }

    /// The gradients of the tensors of floats of a source.
    fn take<W: Walker<Tensor = T>>(
        &mut self,
        walker: &mut W,
        source: usize,
    ) -> Result<Parts<T>, W::Error> {
        let slots = self.of_sources[source].iter_mut().enumerate();
        let floats = slots.filter(|&(place, _)| self.is_float[source][place]);
        floats
            .map(|(place, slot)| match slot.take() {
                Some(sum) => Ok(sum),
                None => walker.zeros(Value { source, place }),
            })
            .collect()
    }
}
