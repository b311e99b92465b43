//! The elements of a stored tensor: which types are read, and how half precision becomes single.

use safetensors::tensor::Dtype;

use crate::dtype::of_bf16;
use crate::{Device, Error, Result, Shape, Tensor};

/// The types that can be read.
pub(super) const READABLE: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::U32];

/// The tensor of these bytes, whose number the caller has checked against the shape.
pub(super) fn read(
    name: &str,
    dtype: Dtype,
    shape: &Shape,
    bytes: &[u8],
    device: &Device,
) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if device.gpu().is_some() {
        let host = Device::cpu(device.host().clone());
        return read(name, dtype, shape, bytes, &host)?.copy_to(device);
    }
    let floats = |values: &mut dyn Iterator<Item = f32>| {
        let mut tensor = Tensor::empty(device, shape.clone())?;
        for (element, value) in tensor.f32s_mut()?.iter_mut().zip(values) {
            *element = value;
        }
        Ok(tensor)
    };
    match dtype {
        Dtype::F32 => floats(&mut words(bytes).map(f32::from_le_bytes)),
        Dtype::BF16 => floats(&mut words(bytes).map(|b| of_bf16(u16::from_le_bytes(b)))),
        Dtype::F16 => floats(&mut words(bytes).map(|b| from_f16(u16::from_le_bytes(b)))),
        Dtype::U32 => {
            let indices = words(bytes).map(u32::from_le_bytes).collect();
            Tensor::from_u32(device, shape.clone(), indices)
        }
        other => Err(Error::Format(format!(
            "`{name}` holds {other} elements: only F32, F16, BF16 and U32 can be read"
        ))),
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks().0.iter().copied()
}

/// The number that the bits of half precision are: 1 bit of sign, 5 of exponent (offset 15), 10 of fraction.
pub fn from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10 & 0x1F);
    let fraction = u32::from(bits & 0x3FF);
    let magnitude = match exponent {
        // Below the normal numbers the fraction counts units of 2^-24.
        0 => (fraction as f32 / (1u32 << 24) as f32).to_bits(),
        0x1F => 0x7F80_0000 | fraction << 13,
        _ => (exponent + 127 - 15) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}
