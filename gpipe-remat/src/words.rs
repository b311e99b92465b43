//! Elements of tensors as the bytes of messages: little-endian, copied as a whole where the processor is.

use std::borrow::Cow;

use bytemuck::{Pod, cast_slice, try_cast_slice};

/// An element of four bytes.
pub(crate) trait Word: Pod {
    /// Little-endian.
    fn to_bytes(self) -> [u8; 4];
    /// From little-endian bytes.
    fn of_bytes(bytes: [u8; 4]) -> Self;
}

impl Word for f32 {
    fn to_bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn of_bytes(bytes: [u8; 4]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

impl Word for u32 {
    fn to_bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn of_bytes(bytes: [u8; 4]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

/// Appends elements.
pub(crate) fn append<T: Word>(out: &mut Vec<u8>, values: &[T]) {
    match cfg!(target_endian = "little") {
        true => out.extend_from_slice(cast_slice(values)),
        false => out.extend(values.iter().flat_map(|value| value.to_bytes())),
    }
}

/// The elements of these bytes, where they are if they lie on the boundaries of elements.
pub(crate) fn elements<T: Word>(bytes: &[u8]) -> Result<Cow<'_, [T]>, String> {
    if cfg!(target_endian = "little")
        && let Ok(values) = try_cast_slice(bytes)
    {
        return Ok(Cow::Borrowed(values));
    }
    match bytes.as_chunks::<4>() {
        (words, []) => Ok(words.iter().map(|&word| T::of_bytes(word)).collect()),
        _ => Err("the bytes of a tensor are no whole elements".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_from_any_address() {
        let values = [1.5_f32, f32::NAN, -0.0, f32::MIN_POSITIVE];
        let mut bytes = vec![7];
        append(&mut bytes, &values);
        append(&mut bytes, &[0x0403_0201_u32]);
        assert_eq!(bytes[17..], [1, 2, 3, 4]);
        for start in 0..4 {
            let mut moved = vec![0; start];
            moved.extend(&bytes[1..17]);
            let back = elements::<f32>(&moved[start..]).unwrap();
            assert!(
                back.iter()
                    .map(|v| v.to_bits())
                    .eq(values.map(f32::to_bits))
            );
        }
        assert!(elements::<f32>(&bytes[1..6]).is_err());
    }
}
