//! The layout of convolutions: (outputs, height, width, inputs) in memory, (outputs, inputs, height, width) in
//! files, as PyTorch's. Only their weights have four extents.

use gpipe_tensor::safetensors::Stored;
use gpipe_tensor::{Shape, Tensor};

/// The shape that a parameter has in a file.
pub fn shape_in_file(shape: &Shape) -> Shape {
    match shape.dims() {
        &[outputs, height, width, inputs] => [outputs, inputs, height, width].into(),
        _ => shape.clone(),
    }
}

/// The shape of a parameter that has this one in a file.
pub fn shape_in_memory(shape: &Shape) -> Shape {
    match shape.dims() {
        &[outputs, inputs, height, width] => [outputs, height, width, inputs].into(),
        _ => shape.clone(),
    }
}

/// A parameter as a file has it.
pub fn to_file(tensor: Stored) -> Stored {
    match tensor.shape().dims() {
        &[outputs, height, width, inputs] => {
            let shape = [outputs, inputs, height, width];
            let change = move |tensor| exchanged(&tensor, shape, height * width, inputs);
            tensor.map(shape.into(), change)
        }
        _ => tensor,
    }
}

/// A parameter from how a file has it.
///
/// # Errors
/// If there is no room for a copy.
pub fn from_file_layout(tensor: Tensor) -> gpipe_tensor::Result<Tensor> {
    match tensor.shape().dims() {
        &[outputs, inputs, height, width] => {
            let shape = [outputs, height, width, inputs];
            exchanged(&tensor, shape, inputs, height * width)
        }
        _ => Ok(tensor),
    }
}

/// The tensor in this shape, with the two inner parts of its elements, of `rows` by `columns`, exchanged.
fn exchanged(
    tensor: &Tensor,
    shape: [usize; 4],
    rows: usize,
    columns: usize,
) -> gpipe_tensor::Result<Tensor> {
    let values = tensor.to_f32s()?;
    let mut other = Vec::with_capacity(values.len());
    for part in values.chunks_exact((rows * columns).max(1)) {
        for column in 0..columns {
            other.extend(part.iter().skip(column).step_by(columns));
        }
    }
    Tensor::from_f32(tensor.device(), shape, other)
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{DeviceId, Host};

    use super::*;

    #[test]
    fn convolutions_have_pytorchs_layout_in_files() {
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        // Element (o, h, w, i) is o h w i as digits.
        let digits =
            |o: usize, h: usize, w: usize, i: usize| (1000 * o + 100 * h + 10 * w + i) as f32;
        let mut values = Vec::new();
        for (o, h, w, i) in (0..2 * 3 * 2 * 4).map(|n| (n / 24, n / 8 % 3, n / 4 % 2, n % 4)) {
            values.push(digits(o, h, w, i));
        }
        let tensor = Tensor::from_f32(&device, [2, 3, 2, 4], values.clone()).unwrap();
        let stored = to_file(tensor.clone().into()).get().unwrap();
        assert_eq!(stored.shape(), &shape_in_file(tensor.shape()));
        assert_eq!(stored.shape().dims(), [2, 4, 3, 2]);
        assert_eq!(&shape_in_memory(stored.shape()), tensor.shape());
        // (1, 3, 2, 1) in the file.
        assert_eq!(
            stored.f32s().unwrap()[24 + 3 * 6 + 2 * 2 + 1],
            digits(1, 2, 1, 3)
        );
        let back = from_file_layout(stored).unwrap();
        assert_eq!(back.f32s().unwrap(), values);
        assert_eq!(back.shape().dims(), [2, 3, 2, 4]);
        let matrix = Tensor::from_f32(&device, [2, 3], vec![0.0; 6]).unwrap();
        assert_eq!(to_file(matrix.into()).shape().dims(), [2, 3]);
    }
}
