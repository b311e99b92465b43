//! Elements of tensors as the bytes of messages: little-endian, copied as a whole where the processor is.

use std::borrow::Cow;

use bytemuck::{Pod, bytes_of, cast_slice, pod_read_unaligned, try_cast_slice};

/// An element.
pub(crate) trait Word: Pod {
    /// Swaps its bytes where the processor is not little-endian.
    fn little_endian(self) -> Self;
}

impl Word for f32 {
    fn little_endian(self) -> Self {
        Self::from_bits(self.to_bits().to_le())
    }
}

impl Word for u32 {
    fn little_endian(self) -> Self {
        self.to_le()
    }
}

impl Word for u16 {
    fn little_endian(self) -> Self {
        self.to_le()
    }
}

/// Appends elements.
pub(crate) fn append<T: Word>(out: &mut Vec<u8>, values: &[T]) {
    match cfg!(target_endian = "little") {
        true => out.extend_from_slice(cast_slice(values)),
        false => {
            for value in values {
                out.extend_from_slice(bytes_of(&value.little_endian()));
            }
        }
    }
}

/// The elements of these bytes, where they are if they lie on the boundaries of elements.
pub(crate) fn elements<T: Word>(bytes: &[u8]) -> Result<Cow<'_, [T]>, String> {
    if cfg!(target_endian = "little")
        && let Ok(values) = try_cast_slice(bytes)
    {
        return Ok(Cow::Borrowed(values));
    }
    let words = bytes.chunks_exact(size_of::<T>());
    match words.remainder() {
        [] => Ok(words
            .map(|word| pod_read_unaligned::<T>(word).little_endian())
            .collect()),
        _ => Err("the bytes of a tensor are no whole elements".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_from_any_address() {
        let values = [1.5_f32, f32::NAN, -0.0, f32::MIN_POSITIVE];
        let halves = [0x3f80_u16, 0xffff, 0x8000, 1];
        let mut bytes = vec![7];
        append(&mut bytes, &values);
        append(&mut bytes, &[0x0403_0201_u32]);
        append(&mut bytes, &halves);
        assert_eq!(bytes[17..23], [1, 2, 3, 4, 0x80, 0x3f]);
        for start in 0..4 {
            let moved = |range: std::ops::Range<usize>| {
                let mut moved = vec![0; start];
                moved.extend(&bytes[range]);
                moved
            };
            let (floats, others) = (moved(1..17), moved(21..29));
            let back = elements::<f32>(&floats[start..]).unwrap();
            assert!(
                back.iter()
                    .map(|v| v.to_bits())
                    .eq(values.map(f32::to_bits))
            );
            assert_eq!(*elements::<u16>(&others[start..]).unwrap(), halves);
        }
        assert!(elements::<f32>(&bytes[1..6]).is_err());
        assert!(elements::<u16>(&bytes[1..6]).is_err());
    }
}
