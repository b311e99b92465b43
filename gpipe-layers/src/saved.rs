//! State between the passes of a layer for one micro-batch.

use std::any::{Any, type_name};

use gpipe_tensor::{DType, Shape, Tensor};
use smallvec::SmallVec;

use crate::{Error, PassContext, Result};

/// State from a layer's forward pass for the backward pass of the same micro-batch.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Saved {
    /// Tensors, in an order that the layer defines.
    pub tensors: SmallVec<[Tensor; 4]>,
    /// Saved state of layers inside this one.
    pub nested: Vec<Saved>,
    /// The keys of the randomness that was drawn, where any was.
    pub cx: Option<PassContext>,
    /// The type of the input, where one of another type was kept.
    pub given: Option<DType>,
    /// Shapes, in an order that the layer defines.
    pub shapes: Vec<Shape>,
    pub(crate) value: Opaque,
}

/// State from a layer's input gradient for the weight gradient of the same micro-batch.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Pending {
    /// Tensors, in an order that the layer defines.
    pub tensors: SmallVec<[Tensor; 4]>,
    /// Pending state of layers inside this one.
    pub nested: Vec<Pending>,
    /// Shapes, in an order that the layer defines.
    pub shapes: Vec<Shape>,
    pub(crate) value: Opaque,
}

/// One value of any type.
pub(crate) type Opaque = Option<Box<dyn Any + Send>>;

macro_rules! carries {
    ($left:ident) => {
        impl $left {
            /// These tensors and nothing else.
            pub fn new(tensors: impl IntoIterator<Item = Tensor>) -> Self {
                Self {
                    tensors: tensors.into_iter().collect(),
                    ..Self::default()
                }
            }

            /// The same with one shape more.
            #[must_use]
            pub fn with_shape(mut self, shape: Shape) -> Self {
                self.shapes.push(shape);
                self
            }

            /// The same with a value of any type, in place of the one before.
            ///
            /// It must hold no tensor that a device counts: [`Memory`](crate::Memory) describes
            /// tensors only, and the predicted bytes would be too few.
            #[must_use]
            pub fn with_value<T: Any + Send>(mut self, value: T) -> Self {
                self.value = Some(Box::new(value));
                self
            }

            /// The value, if it has this type.
            pub fn value<T: Any + Send>(&self) -> Option<&T> {
                self.value.as_ref()?.downcast_ref()
            }

            /// Takes the value out.
            ///
            /// # Errors
            /// [`Error::State`] that names `layer` if there is no value of this type.
            pub fn take_value<T: Any + Send>(&mut self, layer: &str) -> Result<T> {
                let value = self.value.take().and_then(|value| value.downcast().ok());
                value.map(|value| *value).ok_or_else(|| Error::State {
                    layer: layer.to_owned(),
                    message: format!(
                        "no saved value of type {}: hand back what this layer left behind",
                        type_name::<T>()
                    ),
                })
            }

            /// Takes the tensors out; `N` is their number.
            ///
            /// # Errors
            /// [`Error::State`] that names `layer` if there are more or fewer.
            pub fn take_tensors<const N: usize>(&mut self, layer: &str) -> Result<[Tensor; N]> {
                unpack(layer, std::mem::take(&mut self.tensors))
            }
        }
    };
}

carries!(Saved);
carries!(Pending);

/// Takes the `N` tensors that this layer saved out.
pub(crate) fn unpack<const N: usize>(
    layer: &str,
    tensors: SmallVec<[Tensor; 4]>,
) -> Result<[Tensor; N]> {
    let count = tensors.len();
    tensors
        .into_vec()
        .try_into()
        .map_err(|_| foreign(layer, N, count))
}

/// The error for the state of another layer.
pub(crate) fn foreign(layer: &str, expected: usize, count: usize) -> Error {
    Error::State {
        layer: layer.to_owned(),
        message: format!(
            "expected {expected} saved parts, got {count}: hand back what this layer left behind"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_in_its_own_type() {
        let mut saved = Saved::default()
            .with_shape([2, 3].into())
            .with_value(vec![1_u8, 2]);
        assert_eq!(saved.shapes[0].dims(), [2, 3]);
        assert_eq!(saved.value::<Vec<u8>>(), Some(&vec![1, 2]));
        assert_eq!(saved.value::<u8>(), None);
        assert_eq!(saved.take_value::<Vec<u8>>("top").unwrap(), [1, 2]);
        let error = saved.take_value::<Vec<u8>>("top").unwrap_err().to_string();
        assert!(error.starts_with("top: no saved value"), "{error}");

        let mut pending = Pending::default().with_value(7_u64);
        let error = pending.take_value::<u32>("top").unwrap_err().to_string();
        assert!(error.contains("type u32"), "{error}");
    }

    #[test]
    fn other_numbers_of_tensors_are_refused() {
        let error = Saved::new([]).take_tensors::<2>("top").unwrap_err();
        assert_eq!(
            error.to_string(),
            "top: expected 2 saved parts, got 0: hand back what this layer left behind"
        );
    }
}
