//! Initial values of parameters.

use std::fmt;
use std::sync::Arc;

use gpipe_tensor::{Device, Shape, Tensor, init_normal, init_uniform};

/// Initial value of a parameter. Values are a function of (seed, name, element), never of the cut.
#[derive(Clone)]
#[non_exhaustive]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Normal with mean zero and this standard deviation.
    Normal(f32),
    /// Uniform between minus this and this.
    Uniform(f32),
    /// These values, one for each element in row-major order ([`Init::values`]).
    Values(Arc<[f32]>),
    /// The value of each element from its index in row-major order ([`Init::from_fn`]).
    Function(Arc<ElementFn>),
}

/// A function from an element's index to its value.
pub type ElementFn = dyn Fn(usize) -> f32 + Send + Sync;

impl Init {
    /// These values, one for each element in row-major order. [`Param::make`](crate::Param::make)
    /// fails if their number is not that of elements.
    pub fn values(values: impl Into<Arc<[f32]>>) -> Self {
        Self::Values(values.into())
    }

    /// The value of each element from its index in row-major order. A tied place begins like its
    /// owner if it is given the same function.
    pub fn from_fn(value: impl Fn(usize) -> f32 + Send + Sync + 'static) -> Self {
        Self::Function(Arc::new(value))
    }

    /// The initial value of the parameter of this name.
    pub(crate) fn tensor(
        &self,
        device: &Device,
        shape: Shape,
        seed: u64,
        name: &str,
    ) -> gpipe_tensor::Result<Tensor> {
        match self {
            Self::Zeros => Tensor::zeros(device, shape),
            Self::Ones => {
                let mut tensor = Tensor::empty(device, shape)?;
                tensor.fill(1.0)?;
                Ok(tensor)
            }
            &Self::Normal(std) => init_normal(device, shape, std.into(), seed, name),
            &Self::Uniform(bound) => init_uniform(device, shape, bound.into(), seed, name),
            Self::Values(values) => Tensor::from_f32(device, shape, values),
            Self::Function(value) => {
                let elements = shape.elements()?;
                let mut values = Vec::new();
                let reserved = values.try_reserve_exact(elements);
                reserved.map_err(|_| gpipe_tensor::Error::OutOfMemory {
                    bytes: elements.saturating_mul(size_of::<f32>()),
                })?;
                values.extend((0..elements).map(|i| value(i)));
                Tensor::from_f32(device, shape, values)
            }
        }
    }
}

impl fmt::Debug for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => f.write_str("Zeros"),
            Self::Ones => f.write_str("Ones"),
            Self::Normal(std) => f.debug_tuple("Normal").field(std).finish(),
            Self::Uniform(bound) => f.debug_tuple("Uniform").field(bound).finish(),
            Self::Values(values) => write!(f, "Values({} values)", values.len()),
            Self::Function(_) => f.write_str("Function(..)"),
        }
    }
}

/// Two functions are equal only if they are the same function.
impl PartialEq for Init {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Zeros, Self::Zeros) | (Self::Ones, Self::Ones) => true,
            (Self::Normal(a), Self::Normal(b)) | (Self::Uniform(a), Self::Uniform(b)) => a == b,
            (Self::Values(a), Self::Values(b)) => a == b,
            (Self::Function(a), Self::Function(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{DeviceId, Host};

    use super::*;

    #[test]
    fn values_and_functions_fill_the_elements_in_order() {
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let of = |init: &Init| init.tensor(&device, [2, 2].into(), 0, "w");
        let values = Init::values([1.0, 2.0, 3.0, 4.0]);
        assert_eq!(of(&values).unwrap().f32s().unwrap(), [1.0, 2.0, 3.0, 4.0]);
        let function = Init::from_fn(|i| i as f32 / 2.0);
        assert_eq!(of(&function).unwrap().f32s().unwrap(), [0.0, 0.5, 1.0, 1.5]);
        assert!(of(&Init::values([1.0])).is_err());

        assert_eq!(function, function.clone());
        assert_ne!(function, Init::from_fn(|i| i as f32 / 2.0));
        assert_ne!(values, Init::values([1.0]));
        assert_eq!(
            format!("{values:?} {function:?}"),
            "Values(4 values) Function(..)"
        );
    }

    #[test]
    fn more_elements_than_memory_are_an_error() {
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let init = Init::from_fn(|_| 1.0);
        let error = init.tensor(&device, [1 << 60].into(), 0, "w").unwrap_err();
        assert!(error.to_string().starts_with("out of memory"), "{error}");
    }
}
