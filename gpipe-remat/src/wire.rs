//! Values of a pipeline's stages as messages between ranks: tensors through host memory, to the bit.

use std::fmt;
use std::sync::Arc;

use gpipe_sched::{Codec, LossStage, Pipeline, Reader, Writer};
use gpipe_tensor::{DType, Device, Shape, Tensor, Tensors};

use crate::LayerStage;
use crate::words::{Word, append, elements};

/// A type of values that can be sent.
pub trait Wire: Sized {
    /// Appends the value; tensors through `flows`.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    fn put(self, out: &mut Writer, flows: &Flows) -> Result<(), String>;

    /// Reads a value.
    ///
    /// # Errors
    /// If there is none, or no room for it.
    fn get(from: &mut Reader, flows: &Flows) -> Result<Self, String>;
}

/// The codec of a pipeline's flows, or none for a pipeline on one rank, whose values are not sent.
pub type Flows = Option<Arc<dyn Codec<Tensors>>>;

/// Flows through host memory: they are copied from their device, and arrive on another one.
pub(crate) struct HostFlows {
    /// The device of what arrives, which counts it.
    pub transit: Device,
}

impl Codec<Tensors> for HostFlows {
    fn pack(&self, flow: Tensors, out: &mut Writer) -> Result<(), String> {
        out.number(flow.len());
        flow.iter().try_for_each(|tensor| pack(tensor, out))
    }

    fn unpack(&self, from: &mut Reader) -> Result<Tensors, String> {
        let tensors = 0..from.number()?;
        tensors.map(|_| unpack(from, &self.transit)).collect()
    }
}

const TYPES: [DType; 3] = [DType::F32, DType::U32, DType::BF16];

/// Appends a tensor.
pub(crate) fn pack(tensor: &Tensor, out: &mut Writer) -> Result<(), String> {
    let fault = |error: gpipe_tensor::Error| error.to_string();
    put_form(tensor.dtype(), tensor.shape(), out)?;
    out.body(match tensor.dtype() {
        DType::U32 => of_words(tensor.u32s().map_err(fault)?)?,
        DType::BF16 => of_words(&tensor.bf16_bits().map_err(fault)?)?,
        _ => match tensor.f32s() {
            Ok(values) => of_words(values)?,
            Err(_) => of_words(&tensor.to_f32s().map_err(fault)?)?,
        },
    });
    Ok(())
}

/// Reads a tensor onto a device, which counts it.
pub(crate) fn unpack(from: &mut Reader, device: &Device) -> Result<Tensor, String> {
    let (dtype, shape) = get_form(from)?;
    let body = from.body()?;
    let tensor = match dtype {
        DType::U32 => Tensor::from_u32(device, shape, elements(&body)?.into_owned()),
        DType::BF16 => Tensor::from_bf16(device, shape, elements(&body)?.into_owned()),
        _ => Tensor::from_f32(device, shape, elements(&body)?),
    };
    tensor.map_err(|error| error.to_string())
}

/// Appends the type and the extents of a tensor.
pub(crate) fn put_form(dtype: DType, shape: &Shape, out: &mut Writer) -> Result<(), String> {
    let place = TYPES.iter().position(|&known| known == dtype);
    let place = place
        .ok_or_else(|| format!("{dtype} tensors do not pass between ranks: use f32 or bf16"))?;
    out.number(place);
    let extents = shape.dims();
    out.number(extents.len());
    extents.iter().for_each(|&extent| out.number(extent));
    Ok(())
}

/// Reads the type and the extents of a tensor.
pub(crate) fn get_form(from: &mut Reader) -> Result<(DType, Shape), String> {
    let place = from.number()?;
    let dtype = TYPES.get(place).copied();
    let dtype = dtype.ok_or_else(|| format!("a tensor of no known type: {place}"))?;
    let extents = 0..from.number()?;
    let extents = extents.map(|_| from.number());
    let extents = extents.collect::<Result<Vec<usize>, String>>()?;
    Ok((dtype, Shape::from(extents.as_slice())))
}

fn of_words<T: Word>(values: &[T]) -> Result<Vec<u8>, String> {
    let (mut out, bytes) = (Vec::new(), size_of_val(values));
    out.try_reserve_exact(bytes)
        .map_err(|_| format!("no memory for a message of {bytes} bytes"))?;
    append(&mut out, values);
    Ok(out)
}

/// The codec of values of any type that can be sent.
pub struct WireCodec(Flows);

impl fmt::Debug for WireCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireCodec").finish_non_exhaustive()
    }
}

impl WireCodec {
    /// For the values of the stages of a pipeline.
    pub fn of<T: LossStage<Tensors> + 'static>(pipeline: &Pipeline<LayerStage, T>) -> Self {
        Self(pipeline.codec())
    }
}

impl<T: Wire> Codec<T> for WireCodec {
    fn pack(&self, value: T, out: &mut Writer) -> Result<(), String> {
        value.put(out, &self.0)
    }

    fn unpack(&self, from: &mut Reader) -> Result<T, String> {
        T::get(from, &self.0)
    }
}

impl Wire for u64 {
    fn put(self, out: &mut Writer, _flows: &Flows) -> Result<(), String> {
        out.bits(self);
        Ok(())
    }

    fn get(from: &mut Reader, _flows: &Flows) -> Result<Self, String> {
        from.bits()
    }
}

impl Wire for usize {
    fn put(self, out: &mut Writer, _flows: &Flows) -> Result<(), String> {
        out.number(self);
        Ok(())
    }

    fn get(from: &mut Reader, _flows: &Flows) -> Result<Self, String> {
        from.number()
    }
}

impl Wire for u32 {
    fn put(self, out: &mut Writer, flows: &Flows) -> Result<(), String> {
        u64::from(self).put(out, flows)
    }

    fn get(from: &mut Reader, flows: &Flows) -> Result<Self, String> {
        Ok(u64::get(from, flows)? as u32)
    }
}

impl Wire for f64 {
    fn put(self, out: &mut Writer, _flows: &Flows) -> Result<(), String> {
        out.float(self);
        Ok(())
    }

    fn get(from: &mut Reader, _flows: &Flows) -> Result<Self, String> {
        from.float()
    }
}

impl Wire for bool {
    fn put(self, out: &mut Writer, flows: &Flows) -> Result<(), String> {
        u64::from(self).put(out, flows)
    }

    fn get(from: &mut Reader, flows: &Flows) -> Result<Self, String> {
        Ok(u64::get(from, flows)? != 0)
    }
}

impl Wire for String {
    fn put(self, out: &mut Writer, _flows: &Flows) -> Result<(), String> {
        out.text(&self);
        Ok(())
    }

    fn get(from: &mut Reader, _flows: &Flows) -> Result<Self, String> {
        from.text()
    }
}

impl Wire for Tensor {
    fn put(self, out: &mut Writer, flows: &Flows) -> Result<(), String> {
        let flows = flows.as_ref().ok_or("no other rank")?;
        flows.pack(Tensors::from_iter([self]), out)
    }

    fn get(from: &mut Reader, flows: &Flows) -> Result<Self, String> {
        let flows = flows.as_ref().ok_or("no other rank")?;
        let tensor = flows.unpack(from)?.into_iter().next();
        tensor.ok_or_else(|| "a flow without tensors".to_owned())
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(self, out: &mut Writer, flows: &Flows) -> Result<(), String> {
        out.number(self.len());
        self.into_iter().try_for_each(|value| value.put(out, flows))
    }

    fn get(from: &mut Reader, flows: &Flows) -> Result<Self, String> {
        let values = 0..from.number()?;
        values.map(|_| T::get(from, flows)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(self, out: &mut Writer, flows: &Flows) -> Result<(), String> {
        self.into_iter().collect::<Vec<T>>().put(out, flows)
    }

    fn get(from: &mut Reader, flows: &Flows) -> Result<Self, String> {
        Ok(Vec::get(from, flows)?.into_iter().next())
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(self, out: &mut Writer, flows: &Flows) -> Result<(), String> {
        self.0.put(out, flows)?;
        self.1.put(out, flows)
    }

    fn get(from: &mut Reader, flows: &Flows) -> Result<Self, String> {
        Ok((A::get(from, flows)?, B::get(from, flows)?))
    }
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{DeviceId, Host};

    use super::*;

    #[test]
    fn tensors_arrive_to_the_bit_in_bodies_of_their_own_bytes() {
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let halves = vec![0x3f80, 0xffff, 0x8000, 1, 0, 0x7f80];
        let floats = [1.5, f32::NAN, -0.0, f32::MIN_POSITIVE];
        let sent = [
            Tensor::from_bf16(&device, [3, 2], halves.clone()).unwrap(),
            Tensor::from_f32(&device, [4], floats).unwrap(),
            Tensor::from_u32(&device, [2, 1], vec![7, u32::MAX]).unwrap(),
        ];
        let mut out = Writer::default();
        for tensor in &sent {
            pack(tensor, &mut out).unwrap();
        }
        let parcel = out.finish();
        let lengths: Vec<usize> = parcel.bodies.iter().map(Vec::len).collect();
        assert_eq!(lengths, [12, 16, 8]);
        let transit = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let mut from = Reader::new(parcel);
        let back = sent
            .each_ref()
            .map(|_| unpack(&mut from, &transit).unwrap());
        assert_eq!(transit.live_bytes(), 36);
        for (back, sent) in back.iter().zip(&sent) {
            assert_eq!((back.dtype(), back.shape()), (sent.dtype(), sent.shape()));
        }
        assert_eq!(back[0].bf16_bits().unwrap(), halves);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(back[1].f32s().unwrap()), bits(&floats));
        assert_eq!(back[2].u32s().unwrap(), [7, u32::MAX]);
    }
}
