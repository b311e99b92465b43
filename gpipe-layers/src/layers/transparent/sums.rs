//! The terms of the weighted sum behind the first.

use gpipe_tensor::{Tensors, ops};
use smallvec::smallvec;

use super::mean::{grown, grown_bytes, taken, weighted};
use crate::layers::flow::{Flows, checked, times, unexpected, unpack};
use crate::sum::sum;
use crate::{
    Cost, Error, Flow, Layer, Memory, Origin, Param, PassContext, Pending, Result, Saved, TensorSet,
};

/// Adds a layer's input, or the last one's output, to the weighted sum: from x, the sum and w to x, sum + wᵢ·x and w.
#[derive(Debug)]
pub struct TransparentAdd {
    name: String,
    index: usize,
}

/// The weighted sum with the output of the last layer: from x, segments, the sum and w to sum + wᵢ·x and the
/// segments.
#[derive(Debug)]
pub struct TransparentSum {
    name: String,
    index: usize,
}

impl TransparentAdd {
    /// The sum with weight `index`.
    pub fn new(name: impl Into<String>, index: usize) -> Self {
        Self {
            name: name.into(),
            index,
        }
    }
}

impl TransparentSum {
    /// The sum with weight `index`, the last.
    pub fn new(name: impl Into<String>, index: usize) -> Self {
        Self {
            name: name.into(),
            index,
        }
    }
}

/// Activations, and weights of their type of which there is one at `index`.
fn check<'a>(
    name: &str,
    inputs: &'a [Flow],
    [x, sum, w]: [usize; 3],
    index: usize,
) -> Result<(&'a Flow, &'a Flow)> {
    let expected = || {
        let expected = format!("activations, their weighted sum and more than {index} weights");
        unexpected(name, expected, Flows(inputs))
    };
    let of = |place: usize| inputs.get(place).ok_or_else(expected);
    let (x, sum, w) = (of(x)?, of(sum)?, of(w)?);
    let fits = x == sum && x.dtype.is_float() && w.dtype == x.dtype && w.shape.rank() == 2;
    if !fits || w.shape.rows() != 1 || index >= w.shape.last() {
        return Err(expected());
    }
    checked(name, &x.shape)?;
    Ok((x, w))
}

impl Layer for TransparentAdd {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        3
    }

    /// A product and a sum an element forward, and two of each back.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let (x, w) = check(&self.name, inputs, [0, 1, 2], self.index)?;
        let grown = grown_bytes(w);
        Ok(Cost {
            forward: times(&[2, x.elements()]),
            input_grad: times(&[4, x.elements()]),
            memory: Memory {
                outputs: vec![Origin::Same(0), Origin::Over(1), Origin::Same(2)],
                gradients: vec![Origin::Over(0), Origin::Same(1), Origin::New],
                saved_inputs: TensorSet::Only(vec![0, 2]),
                forward_peak: times(&[2, x.bytes()]),
                input_grad_peak: grown.max(w.bytes().saturating_add(times(&[2, x.bytes()]))),
                ..Memory::default()
            },
            traffic: times(&[11, x.bytes()]),
            outputs: inputs.to_vec(),
            ..Cost::default()
        })
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let within = || Error::within(&self.name);
        let [x, so_far, w] = taken(&self.name, x)?;
        let own = weighted(&x, &w, self.index).map_err(within())?;
        let so_far = sum(so_far, &own).map_err(within())?;
        let saved = Saved::new([x.clone(), w.clone()]);
        Ok((smallvec![x, so_far, w], saved))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let within = || Error::within(&self.name);
        let [x, w] = unpack(&self.name, saved.tensors)?;
        let [dx, dsum, dw] = taken(&self.name, dy)?;
        let own = grown(&x, &dsum, self.index, w.elements()).map_err(within())?;
        let dw = ops::add(&dw, &own).map_err(within())?;
        drop(own);
        let own = weighted(&dsum, &w, self.index).map_err(within())?;
        let dx = sum(dx, &own).map_err(within())?;
        Ok((smallvec![dx, dsum, dw], Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

impl Layer for TransparentSum {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        4
    }

    fn handed_on(&self) -> Vec<(usize, usize)> {
        vec![(1, 1)]
    }

    /// A product and a sum an element forward, and two products and a sum back.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let (x, w) = check(&self.name, inputs, [0, 2, 3], self.index)?;
        let grown = grown_bytes(w);
        Ok(Cost {
            forward: times(&[2, x.elements()]),
            input_grad: times(&[3, x.elements()]),
            memory: Memory {
                outputs: vec![Origin::Over(2), Origin::Same(1)],
                gradients: vec![Origin::New, Origin::Same(0), Origin::New],
                saved_inputs: TensorSet::Only(vec![0, 3]),
                forward_peak: times(&[2, x.bytes()]),
                input_grad_peak: grown.max(w.bytes().saturating_add(x.bytes())),
                ..Memory::default()
            },
            traffic: times(&[8, x.bytes()]),
            outputs: vec![x.clone(), inputs[1].clone()],
            ..Cost::default()
        })
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let within = || Error::within(&self.name);
        let [x, segments, so_far, w] = taken(&self.name, x)?;
        let own = weighted(&x, &w, self.index).map_err(within())?;
        let y = sum(so_far, &own).map_err(within())?;
        Ok((smallvec![y, segments], Saved::new([x, w])))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let within = || Error::within(&self.name);
        let [x, w] = unpack(&self.name, saved.tensors)?;
        let [dy] = taken(&self.name, dy)?;
        let dw = grown(&x, &dy, self.index, w.elements()).map_err(within())?;
        let dx = weighted(&dy, &w, self.index).map_err(within())?;
        Ok((smallvec![dx, dy, dw], Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
