//! A parameter: its name, value, gradient and optimizer state.

use gpipe_tensor::{DType, Device, Shape, Tensor, ops};

use crate::{Error, Init, Result};

/// How the optimizer treats a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A matrix: decayed under `decay = "matrices"`.
    Matrix,
    /// A bias or a gain.
    Vector,
    /// Not trained: running statistics. The layer gathers in the gradient what it learns of a mini-batch, and makes the
    /// next value of it when the step has succeeded
    /// ([`Layer::commit_mini_batch`](crate::Layer::commit_mini_batch)). Optimizers pass it over, norms
    /// and weight decay too. It always has single precision.
    Statistic,
}

/// One place of a parameter. A tied parameter has several places under one name; the first in
/// layer order owns it, the others follow. Every place has a value and a gradient of its own.
#[derive(Debug)]
#[non_exhaustive]
pub struct Param {
    /// The global name, such as `transformer.h.3.attn.c_attn.weight`.
    pub name: String,
    /// The extents.
    pub shape: Shape,
    /// How the optimizer treats it.
    pub kind: Kind,
    /// Its initial value.
    pub init: Init,
    /// Whether another, earlier place owns it: this one only uses it and gathers a gradient.
    pub tied: bool,
    /// Whether it is frozen: it has no gradient and no optimizer state, and is not updated.
    /// Set it before the parameter is made.
    pub frozen: bool,
    /// The type of the value, which layers compute with. Gradients and optimizer state always have single
    /// precision.
    pub dtype: DType,
    /// Whether it lives on a GPU whose products round their factors to TF32 (`gpipe_tensor::Host::with_tf32`).
    pub tf32: bool,
    /// The value; `None` until the parameter is made.
    pub value: Option<Tensor>,
    /// The single-precision master that the optimizer updates if the value has a narrower type
    /// (arXiv:1710.03740); the value is the master rounded. `None` where tied or frozen.
    pub master: Option<Tensor>,
    /// The sum of the gradients of the micro-batches so far; made with the value. `None` where
    /// frozen.
    pub grad: Option<Tensor>,
    /// Optimizer state (momentum; first and second moment). Empty where tied or frozen.
    pub state: Vec<Tensor>,
    /// The names of these tensors ([`Optimizer::state_names`](crate::Optimizer::state_names)).
    pub state_names: &'static [&'static str],
}

impl Param {
    /// A parameter that is not made yet.
    pub fn new(name: impl Into<String>, shape: impl Into<Shape>, kind: Kind, init: Init) -> Self {
        Self {
            name: name.into(),
            shape: shape.into(),
            kind,
            init,
            tied: false,
            frozen: false,
            dtype: DType::F32,
            tf32: false,
            value: None,
            master: None,
            grad: None,
            state: Vec::new(),
            state_names: &[],
        }
    }

    /// The same, as a further place of a parameter whose owner comes earlier in the model. It has
    /// the owner's name and shape, and, so that it begins with the same values, its `init`, which the assembly of a
    /// pipeline (`gpipe_remat::Assembly`) gives it.
    #[must_use]
    pub fn tied(self) -> Self {
        Self { tied: true, ..self }
    }

    /// The same, frozen: layers compute with its value, and nothing changes it. A tied parameter is
    /// frozen at its owner; a place that is frozen adds nothing to the owner's gradient.
    #[must_use]
    pub fn frozen(self) -> Self {
        Self {
            frozen: true,
            ..self
        }
    }

    /// Number of elements; saturates at `u64::MAX`.
    pub fn elements(&self) -> u64 {
        self.shape
            .elements()
            .map_or(u64::MAX, |elements| elements as u64)
    }

    /// Whether the optimizer updates a master instead of the value.
    pub(crate) fn has_master(&self) -> bool {
        self.dtype != DType::F32 && !self.tied && !self.frozen
    }

    /// Bytes of the gradient, which is of single precision: none of a frozen parameter.
    pub fn grad_bytes(&self) -> u64 {
        match self.frozen {
            true => 0,
            false => self.elements().saturating_mul(size_of::<f32>() as u64),
        }
    }

    /// Allocates the value, a function of the seed, the name and `init`, its master if it has one, and a
    /// gradient of zeros unless it is frozen.
    ///
    /// # Errors
    /// If there is no room for them.
    pub fn make(&mut self, device: &Device, seed: u64) -> Result<()> {
        let shape = || self.shape.clone();
        let master = self.init.tensor(device, shape(), seed, &self.name);
        let master = master.map_err(Error::within(&self.name))?;
        let value = master.to_dtype(self.dtype);
        self.value = Some(value.map_err(Error::within(&self.name))?);
        self.master = self.has_master().then_some(master);
        self.grad = match self.frozen {
            true => None,
            false => {
                let zeros = Tensor::zeros(device, shape());
                Some(zeros.map_err(Error::within(&self.name))?)
            }
        };
        self.state.clear();
        self.state_names = &[];
        Ok(())
    }

    /// The value.
    ///
    /// # Errors
    /// If the parameter was not made.
    pub fn value(&self) -> Result<&Tensor> {
        self.value.as_ref().ok_or_else(|| self.not_made())
    }

    /// The most precise value: the master if it exists, else the value.
    ///
    /// # Errors
    /// If the parameter was not made.
    pub fn exact(&self) -> Result<&Tensor> {
        self.master.as_ref().map_or_else(|| self.value(), Ok)
    }

    /// The sum of the gradients so far.
    ///
    /// # Errors
    /// If the parameter was not made, or is frozen.
    pub fn grad(&self) -> Result<&Tensor> {
        self.grad.as_ref().ok_or_else(|| self.no_grad())
    }

    /// The sum of the gradients so far, for adding to it. For a parameter that may be frozen, use
    /// [`add_grad`](Self::add_grad).
    ///
    /// # Errors
    /// If the parameter was not made, or is frozen.
    pub fn grad_mut(&mut self) -> Result<&mut Tensor> {
        let error = self.grad.is_none().then(|| self.no_grad());
        self.grad
            .as_mut()
            .ok_or_else(|| error.unwrap_or_else(|| not_made(&self.name)))
    }

    /// Calls `add` with the sum of the gradients so far; does nothing for a frozen parameter.
    ///
    /// # Errors
    /// If the parameter was not made; and that of `add`, with the name of `layer`.
    pub fn add_grad(
        &mut self,
        layer: &str,
        add: impl FnOnce(&mut Tensor) -> gpipe_tensor::Result<()>,
    ) -> Result<()> {
        match self.frozen {
            true => Ok(()),
            false => add(self.grad_mut()?).map_err(Error::within(layer)),
        }
    }

    /// Sets the gradient to zero; does nothing for a frozen parameter.
    ///
    /// # Errors
    /// If the parameter was not made, or something else still holds the gradient.
    pub fn zero_grad(&mut self) -> Result<()> {
        self.zeroed(|grad| grad.fill(0.0))
    }

    /// [`zero_grad`](Self::zero_grad) together with others, when `zeros` are written.
    ///
    /// # Errors
    /// As `zero_grad`.
    pub fn zero_grad_by(&mut self, zeros: &mut ops::Zeros) -> Result<()> {
        self.zeroed(|grad| zeros.add(grad))
    }

    fn zeroed(&mut self, zero: impl FnOnce(&mut Tensor) -> gpipe_tensor::Result<()>) -> Result<()> {
        if self.frozen {
            return Ok(());
        }
        zero(self.grad_mut()?).map_err(Error::within(&self.name))
    }

    /// Copies a value over this one and its master: from an owner to a tied place, or from a checkpoint.
    ///
    /// # Errors
    /// If the parameter was not made, the shape differs, or something else still holds the value.
    pub fn set_value(&mut self, new: &Tensor) -> Result<()> {
        let Some(value) = &mut self.value else {
            return Err(self.not_made());
        };
        if value.shape() != new.shape() {
            return Err(Error::Input {
                layer: self.name.clone(),
                expected: format!("a value of shape {}", value.shape()),
                got: new.shape().to_string(),
            });
        }
        let (value, master) = ([value], self.master.as_mut());
        value
            .into_iter()
            .chain(master)
            .try_for_each(|tensor| tensor.copy_from(new))
            .map_err(Error::within(&self.name))
    }

    fn no_grad(&self) -> Error {
        match self.frozen {
            true => Error::State {
                layer: self.name.clone(),
                message: "the parameter is frozen: it has no gradient".into(),
            },
            false => self.not_made(),
        }
    }

    fn not_made(&self) -> Error {
        not_made(&self.name)
    }
}

fn not_made(name: &str) -> Error {
    Error::State {
        layer: name.to_owned(),
        message: "the parameter was not made: call `make` first".into(),
    }
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{DeviceId, Host};

    use super::*;

    fn device() -> Device {
        Host::new(1).unwrap().device(DeviceId::Cpu).unwrap()
    }

    #[test]
    fn places_of_a_tied_parameter_begin_alike_in_buffers_of_their_own() {
        let device = device();
        let new = || Param::new("wte.weight", [5, 3], Kind::Matrix, Init::Normal(0.02));
        let (mut owner, mut place) = (new(), new().tied());
        owner.make(&device, 7).unwrap();
        place.make(&device, 7).unwrap();
        let values = |param: &Param| param.value().unwrap().f32s().unwrap().to_vec();
        assert_eq!(values(&owner), values(&place));
        assert_eq!(device.live_bytes(), 2 * 2 * 15 * 4);
        place
            .set_value(&Tensor::zeros(&device, [5, 3]).unwrap())
            .unwrap();
        assert_ne!(values(&owner), values(&place));
    }

    #[test]
    fn what_was_not_made_says_so() {
        let mut param = Param::new("w", [2], Kind::Vector, Init::Ones);
        let zeros = Tensor::zeros(&device(), [2]).unwrap();
        for error in [
            param.value().map(|_| ()).unwrap_err(),
            param.grad().map(|_| ()).unwrap_err(),
            param.zero_grad().unwrap_err(),
            param.set_value(&zeros).unwrap_err(),
        ] {
            assert_eq!(
                error.to_string(),
                "w: the parameter was not made: call `make` first"
            );
        }
    }

    #[test]
    fn a_value_of_another_shape_is_refused() {
        let device = device();
        let mut param = Param::new("w", [2, 3], Kind::Matrix, Init::Zeros);
        param.make(&device, 0).unwrap();
        let error = param.set_value(&Tensor::zeros(&device, [3, 2]).unwrap());
        assert_eq!(
            error.unwrap_err().to_string(),
            "w: expected a value of shape [2, 3], got [3, 2]"
        );
    }

    #[test]
    fn a_narrower_value_has_a_master_and_needs_a_device_that_stores_it() {
        let mut param = Param::new("w", [3, 5], Kind::Matrix, Init::Normal(0.02));
        param.dtype = DType::BF16;
        assert!(param.has_master());
        let error = param.make(&device(), 0).unwrap_err().to_string();
        assert_eq!(error, "w: tensor: cpu holds no bf16 elements: use f32");
        assert!(!param.tied().has_master());
        assert!(!Param::new("w", [1], Kind::Matrix, Init::Zeros).has_master());
    }
}
