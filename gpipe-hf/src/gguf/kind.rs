//! Types of elements of a GGUF file, and their values as floats.

use std::fmt;

use gpipe_tensor::safetensors::from_f16;

/// A type of elements that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F32,
    F16,
    Bf16,
    /// 32 elements in 18 bytes: a scale d in half precision, then 16 bytes of 4-bit numbers q, the low halves first; (q − 8)·d.
    Q4_0,
    /// 32 elements in 20 bytes: a scale d and a minimum m in half precision, then 16 bytes of 4-bit numbers q,
    /// the low halves first; q·d + m.
    Q4_1,
    /// 32 elements in 34 bytes: a scale d in half precision, then signed bytes q; q·d.
    Q8_0,
    /// 256 elements in 144 bytes: [`Scales`], then 128 bytes of 4-bit numbers q; of each 32 bytes the low halves first; each 32
    /// elements have a scale and a minimum of their own.
    Q4K,
    /// 256 elements in 176 bytes: those of `Q4K` with 32 bytes of fifth bits behind the scales: bit i of byte j is that of
    /// element 32·i + j.
    Q5K,
    /// 256 elements in 210 bytes: the low 4 bits of numbers q (128 bytes), the high 2 (64 bytes), a signed scale for each 16
    /// elements, and a scale of these in half precision; (q − 32)·scales.
    Q6K,
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
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        })
    }
}

impl Kind {
    /// The type of this number, or what is wrong with it.
    pub fn of(number: u32) -> Result<Self, String> {
        Ok(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => {
                let name = NAMES.get(number as usize).filter(|name| !name.is_empty());
                let name = name.map_or_else(
                    || format!("the unknown type {number}"),
                    |name| (*name).to_owned(),
                );
                return Err(format!(
                    "holds {name} elements: only F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, Q4_1 and Q4_0 can be read"
                ));
            }
        })
    }

    /// Elements of a block.
    pub fn elements(self) -> u64 {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// The values of whole blocks.
    pub fn floats(self, bytes: &[u8]) -> Vec<f32> {
        let blocks = bytes.chunks_exact(self.bytes() as usize);
        let mut floats = Vec::with_capacity(blocks.len() * self.elements() as usize);
        for block in blocks {
            match self {
                Self::F32 => {
                    floats.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
                }
                Self::F16 => floats.push(half(block, 0)),
                Self::Bf16 => {
                    floats.push(f32::from_le_bytes([0, 0, block[0], block[1]]));
                }
                Self::Q4_0 => {
                    let scale = half(block, 0);
                    let of = |q: u8| (f32::from(q) - 8.0) * scale;
                    floats.extend(block[2..].iter().map(|byte| of(byte & 15)));
                    floats.extend(block[2..].iter().map(|byte| of(byte >> 4)));
                }
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
                Self::Q4K => Scales(block).floats(None, &block[16..], &mut floats),
                Self::Q5K => Scales(block).floats(Some(&block[16..48]), &block[48..], &mut floats),
                Self::Q6K => q6k(block, &mut floats),
            }
        }
        floats
    }
}

/// A number in half precision.
fn half(bytes: &[u8], at: usize) -> f32 {
    from_f16(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// A block that begins with a scale of scales and one of minima in half precision, and 12 bytes of 8 scales and 8 minima of 6
/// bits each: 4 scales and 4 minima in the low bits of 8 bytes, the others in 4 bytes and the high bits of those.
struct Scales<'a>(&'a [u8]);

impl Scales<'_> {
    /// The scale and the minimum of 32 elements.
    fn of(&self, group: usize) -> (f32, f32) {
        let packed = &self.0[4..16];
        let (scale, least) = match group.checked_sub(4) {
            None => (packed[group] & 63, packed[group + 4] & 63),
            Some(high) => {
                let low = packed[group + 4];
                (
                    low & 15 | packed[high] >> 6 << 4,
                    low >> 4 | packed[group] >> 6 << 4,
                )
            }
        };
        (
            f32::from(scale) * half(self.0, 0),
            f32::from(least) * half(self.0, 2),
        )
    }

    /// q·scale − minimum, with the fifth bits of the q if they have any.
    fn floats(&self, fifth: Option<&[u8]>, low: &[u8], floats: &mut Vec<f32>) {
        for group in 0..8 {
            let (scale, least) = self.of(group);
            for (i, byte) in low[group / 2 * 32..][..32].iter().enumerate() {
                let q = if group % 2 == 0 { byte & 15 } else { byte >> 4 };
                let bit = fifth.map_or(0, |fifth| fifth[i] >> group & 1);
                floats.push(f32::from(q | bit << 4) * scale - least);
            }
        }
    }
}

/// The values of a block of [`Kind::Q6K`].
fn q6k(block: &[u8], floats: &mut Vec<f32>) {
    let (low, rest) = block.split_at(128);
    let (high, scales) = rest.split_at(64);
    let whole = half(scales, 16);
    for i in 0..256 {
        // Each half of a block has four runs of 32 elements: two in the low halves of 64 bytes, two in the high ones.
        let (part, run, place) = (i / 128, i / 32 % 4, i % 32);
        let byte = low[64 * part + 32 * (run % 2) + place];
        let q = if run < 2 { byte & 15 } else { byte >> 4 };
        let q = q | (high[32 * part + place] >> (2 * run) & 3) << 4;
        let scale = f32::from(scales[i / 16].cast_signed());
        floats.push(whole * scale * (f32::from(q) - 32.0));
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

    /// The sums of (i + 1)·element i that `dequantize` of the Python package `gguf` 0.19 gives for these bytes.
    #[test]
    fn blocks_are_those_of_ggml() {
        for (kind, halves, sum) in [
            (Kind::Q4_0, &[0][..], -383.5),
            (Kind::Q4_1, &[0, 2], 2198.0),
            (Kind::Q8_0, &[0], -356.0),
            (Kind::Q4K, &[0, 2], 3_314_920.0),
            (Kind::Q5K, &[0, 2], 7_492_359.0),
            (Kind::Q6K, &[208], -822_034.5),
        ] {
            let bytes = (0..kind.bytes()).map(|i| ((i * i * 7 + i * 31 + 11) % 251) as u8);
            let mut block: Vec<u8> = bytes.collect();
            for &at in halves {
                // 1 for a scale of minima, 0.5 for others.
                block[at..at + 2].copy_from_slice(&[0x00, if at == 2 { 0x3C } else { 0x38 }]);
            }
            let values = kind.floats(&block);
            assert_eq!(values.len() as u64, kind.elements());
            let weighted = values
                .iter()
                .zip(1..)
                .map(|(&value, i)| f64::from(value) * f64::from(i));
            assert_eq!(weighted.sum::<f64>(), sum, "{kind}");
        }
        assert_eq!(Kind::Bf16.floats(&[0x12, 0xC1]), [-9.125]);
    }

    #[test]
    fn other_types_are_named() {
        assert!(Kind::of(10).unwrap_err().contains("Q2_K"));
        assert!(Kind::of(4).unwrap_err().contains("unknown type 4"));
        assert!(Kind::of(u32::MAX).unwrap_err().contains("unknown type"));
    }
}
