//! Types of elements of a GGUF file, and their values as floats.

use std::fmt;

use gpipe_tensor::safetensors::from_f16;

/// A type of elements that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F32,
    F16,
    /// 32 elements in 20 bytes: a scale d and a minimum m in half precision, then 16 bytes of 4-bit numbers q,
    /// the low halves first; q·d + m.
    Q4_1,
    /// 32 elements in 34 bytes: a scale d in half precision, then signed bytes q; q·d.
    Q8_0,
}

/// The names of the format's types, by number; those without a name were taken out of it.
const NAMES: [&str; 31] = [
    "F32", "F16", "Q4_0", "Q4_1", "", "", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K",
    "Q5_K", "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S",
    "IQ4_XS", "I8", "I16", "I32", "I64", "F64", "IQ1_M", "BF16",
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Q4_1 => "Q4_1",
            Self::Q8_0 => "Q8_0",
        })
    }
}

impl Kind {
    /// The type of this number, or what is wrong with it.
    pub fn of(number: u32) -> Result<Self, String> {
        Ok(match number {
            0 => Self::F32,
            1 => Self::F16,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            _ => {
                let name = NAMES.get(number as usize).filter(|name| !name.is_empty());
                let name = name.map_or_else(
                    || format!("the unknown type {number}"),
                    |name| (*name).to_owned(),
                );
                return Err(format!(
                    "holds {name} elements: only F32, F16, Q8_0 and Q4_1 can be read"
                ));
            }
        })
    }

    /// Elements of a block.
    pub fn elements(self) -> u64 {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Q4_1 | Self::Q8_0 => 32,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    /// The values of whole blocks.
    pub fn floats(self, bytes: &[u8]) -> Vec<f32> {
        let half =
            |bytes: &[u8], at: usize| from_f16(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let blocks = bytes.chunks_exact(self.bytes() as usize);
        let mut floats = Vec::with_capacity(blocks.len() * self.elements() as usize);
        for block in blocks {
            match self {
                Self::F32 => {
                    floats.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
                }
                Self::F16 => floats.push(half(block, 0)),
                Self::Q4_1 => {
                    let (scale, least) = (half(block, 0), half(block, 2));
                    let of = |q: u8| f32::from(q) * scale + least;
                    floats.extend(block[4..].iter().map(|byte| of(byte & 15)));
                    floats.extend(block[4..].iter().map(|byte| of(byte >> 4)));
                }
                Self::Q8_0 => {
                    let scale = half(block, 0);
                    let of = |q: &u8| f32::from(q.cast_signed()) * scale;
                    floats.extend(block[2..].iter().map(of));
                }
            }
        }
        floats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_floats() {
        assert_eq!(Kind::F32.floats(&1.5f32.to_le_bytes()), [1.5]);
        // 0.5 and −2 in half precision.
        assert_eq!(Kind::F16.floats(&[0x00, 0x38, 0x00, 0xC0]), [0.5, -2.0]);
        let mut block = vec![0x00, 0x38, 0x00, 0xC0];
        block.extend((0..16).map(|i| i | (15 - i) << 4));
        let values = Kind::Q4_1.floats(&block);
        assert_eq!(values.len(), 32);
        assert_eq!(
            (values[0], values[3], values[16], values[31]),
            (-2.0, -0.5, 5.5, -2.0)
        );
        let mut block = vec![0x00, 0x38];
        block.extend((0..32).map(|i: i8| (i - 16).cast_unsigned()));
        let values = Kind::Q8_0.floats(&block);
        assert_eq!((values[0], values[31], values.len()), (-8.0, 7.5, 32));
    }

    #[test]
    fn other_types_are_named() {
        assert!(Kind::of(14).unwrap_err().contains("Q6_K"));
        assert!(Kind::of(4).unwrap_err().contains("unknown type 4"));
        assert!(Kind::of(u32::MAX).unwrap_err().contains("unknown type"));
    }
}
