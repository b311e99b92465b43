//! The exported checks find what is wrong with a layer, and say where.

use gpipe_layers::layers::{Activation, Function};
use gpipe_layers::{
    Cost, Error, Flow, Gelu, Init, Kind, Layer, Memory, Origin, Param, PassContext, Pending,
    Result, Saved, TensorSet, check, make,
};
use gpipe_tensor::{Tensor, Tensors, ops};

use super::cases::{cx, device, random};

/// What a layer does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    InputGradient,
    WeightGradient,
    /// Overwrites the gradient of the micro-batch before.
    Overwritten,
    /// Other bits by the fused way.
    Fused,
    /// Other bits without dX.
    ParamsOnly,
    /// Describes another output.
    Output,
    /// Says nothing of what it saves.
    Saved,
    /// Says that it saves the other input.
    SavedOther,
    Peak,
    /// Says that its second output is new.
    Alias,
    /// Keeps dY pending and says nothing.
    Pending,
    /// Returns no dX.
    NoInputGradient,
}

/// From (a, b) to (gain · a, b), with the sum of a · dY as the gradient of the gain.
struct Scale {
    fault: Fault,
    gain: Param,
}

impl Scale {
    fn new(fault: Fault) -> Self {
        let gain = Param::new("scale.gain", [1], Kind::Vector, Init::values([1.5]));
        Self { fault, gain }
    }

    fn times(x: &Tensor, factor: f32) -> Result<Tensor> {
        let values = x.to_f32s().map_err(Error::within("scale"))?;
        let values: Vec<f32> = values.iter().map(|x| x * factor).collect();
        Tensor::from_f32(x.device(), x.shape().clone(), values).map_err(Error::within("scale"))
    }

    fn gain(&self) -> Result<f32> {
        let value = self.gain.value()?.to_f32s();
        Ok(value.map_err(Error::within("scale"))?[0])
    }
}

impl Layer for Scale {
    fn name(&self) -> &str {
        "scale"
    }

    fn arity(&self) -> usize {
        2
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let a = &inputs[0];
        let mut outputs = inputs.to_vec();
        if self.fault == Fault::Output {
            outputs[0].shape = [1].into();
        }
        let aliases = match self.fault {
            Fault::Alias => vec![],
            _ => vec![Origin::New, Origin::Same(1)],
        };
        let saved = match self.fault {
            Fault::Saved => TensorSet::None,
            Fault::SavedOther => TensorSet::Only(vec![1]),
            _ => TensorSet::Only(vec![0]),
        };
        let memory = Memory::new()
            .with_outputs(aliases)
            .with_gradients(vec![Origin::New, Origin::Same(1)])
            .with_saved_inputs(saved)
            .with_pending_inputs(TensorSet::Only(vec![0]))
            .with_pending_grads(match self.fault {
                Fault::Pending => TensorSet::None,
                _ => TensorSet::Only(vec![0]),
            })
            .with_forward_peak(a.bytes() + u64::from(self.fault == Fault::Peak))
            .with_input_grad_peak(a.bytes())
            .with_param_only_grad_peak(a.bytes())
            .with_weight_grad_peak(4);
        Ok(Cost::new(outputs).with_memory(memory))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let y = Self::times(&x[0], self.gain()?)?;
        Ok((
            Tensors::from_iter([y, x[1].clone()]),
            Saved::new([x[0].clone()]),
        ))
    }

    fn input_grad(&self, mut saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let [a] = saved.take_tensors("scale")?;
        let factor = match self.fault {
            Fault::InputGradient => 1.01,
            _ => 1.0,
        };
        let dx = Self::times(&dy[0], factor * self.gain()?)?;
        let pending = Pending::new([a, dy[0].clone()]);
        Ok((Tensors::from_iter([dx, dy[1].clone()]), pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let mut pending = self.input_grad(saved, dy)?.1;
        if self.fault == Fault::ParamsOnly {
            pending.tensors[0] = Self::times(&pending.tensors[0], 1.5)?;
        }
        Ok(pending)
    }

    fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
        let [a, dy] = pending.take_tensors("scale")?;
        let within = || Error::within("scale");
        let (left, right) = (a.to_f32s(), dy.to_f32s());
        let (left, right) = (left.map_err(within())?, right.map_err(within())?);
        let mut sum: f32 = left.iter().zip(right.iter()).map(|(a, dy)| a * dy).sum();
        if self.fault == Fault::WeightGradient {
            sum *= 1.01;
        }
        let sum = Tensor::from_f32(a.device(), [1], [sum]).map_err(within())?;
        let overwrite = self.fault == Fault::Overwritten;
        self.gain.add_grad("scale", |grad| match overwrite {
            true => grad.copy_from(&sum),
            false => ops::add_assign(grad, &sum),
        })
    }

    fn backward(&mut self, saved: Saved, dy: Tensors) -> Result<Tensors> {
        let (mut dx, pending) = self.input_grad(saved, dy)?;
        self.weight_grad(pending)?;
        if self.fault == Fault::Fused {
            dx[0] = Self::times(&dx[0], 1.0 + f32::EPSILON)?;
        }
        if self.fault == Fault::NoInputGradient {
            dx.clear();
        }
        Ok(dx)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.gain);
    }
}

/// What the three checks say: gradients, bytes, split.
fn checked(fault: Fault) -> [std::result::Result<(), String>; 3] {
    let device = device();
    let mut layer = Scale::new(fault);
    make(&mut layer, &device, 1).unwrap();
    let tensor = |shape: [usize; 2], name: &str| random(&device, &shape.into(), name);
    let x = Tensors::from_iter([tensor([2, 3], "a"), tensor([2, 5], "b")]);
    let layer = &mut layer;
    [
        check::gradients(layer, &cx(2), &x),
        check::bytes(layer, &cx(2), &x),
        check::split(layer, &cx(2), &x),
    ]
    .map(|result| result.map_err(|error| error.to_string()))
}

#[test]
fn a_layer_of_several_tensors_that_does_what_it_says_passes() {
    assert_eq!(checked(Fault::None), [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn every_fault_is_found_by_its_check() {
    let wrong = [
        (
            Fault::InputGradient,
            0,
            "scale: gradient of input 0, element",
        ),
        (
            Fault::WeightGradient,
            0,
            "scale: gradient of scale.gain, element 0",
        ),
        (
            Fault::Overwritten,
            0,
            "scale: gradient of scale.gain over two micro-batches",
        ),
        (Fault::Output, 0, "scale: forward returned [f32 [2, 3]"),
        (Fault::NoInputGradient, 0, "scale: backward returned []"),
        (Fault::Output, 1, "scale: forward"),
        (Fault::Saved, 1, "scale: forward"),
        (Fault::SavedOther, 1, "scale: forward"),
        (Fault::Peak, 1, "scale: forward"),
        (Fault::Alias, 1, "scale: forward"),
        (Fault::Pending, 1, "scale: input_grad"),
        (Fault::Fused, 2, "scale: gradient of input 0, element 0"),
        (
            Fault::ParamsOnly,
            2,
            "scale: gradient of scale.gain, element 0",
        ),
    ];
    for (fault, check, start) in wrong {
        let message = checked(fault)[check].clone().unwrap_err();
        assert!(message.starts_with(start), "{fault:?}: {message}");
    }
}

/// An activation that forgets the residual connection around it.
struct Alone(Activation);

impl Layer for Alone {
    fn name(&self) -> &str {
        "alone"
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        self.0.cost(inputs)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        self.0.forward(cx, x)
    }

    fn forward_onto(
        &self,
        cx: &PassContext,
        x: Tensors,
        _onto: &Tensor,
    ) -> Result<(Tensors, Saved)> {
        self.0.forward(cx, x)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        self.0.input_grad(saved, dy)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        self.0.weight_grad(pending)
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

#[test]
fn a_residual_connection_that_is_left_out_is_found() {
    let mut layer = Alone(Activation::new("alone", Function::Gelu(Gelu::Tanh)));
    let x = Tensors::from_iter([random(&device(), &[2, 3].into(), "x")]);
    let error = check::gradients(&mut layer, &cx(2), &x).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("alone: output and around it, by forward_onto, element 0"),
        "{error}"
    );
}

#[test]
fn an_element_that_is_not_finite_is_a_fault_and_no_tolerance() {
    let device = device();
    let mut layer = Scale::new(Fault::None);
    make(&mut layer, &device, 1).unwrap();
    let tensor = |shape: [usize; 2], name: &str| random(&device, &shape.into(), name);
    let x = Tensors::from_iter([tensor([2, 3], "a"), tensor([2, 5], "b")]);
    for strange in [f64::INFINITY, f64::NAN] {
        let reference = |params: &[Vec<f64>], x: &[Vec<f64>]| {
            let mut y: Vec<f64> = x[0].iter().map(|x| x * params[0][0]).collect();
            y[4] = strange;
            vec![y, x[1].clone()]
        };
        let error = check::gradients_of(&mut layer, &cx(2), &x, &reference).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("scale: output 0, element 4: expected "),
            "{error}"
        );
    }
}

#[test]
fn errors_of_a_layer_keep_their_cause() {
    #[derive(Debug, thiserror::Error)]
    #[error("no such table")]
    struct NoTable;
    let error = Error::foreign("lookup")(NoTable);
    assert_eq!(error.to_string(), "lookup: no such table");
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.downcast_ref::<NoTable>().is_some());
}
