//! Memory that kernels work on, between guards, and what is in it compared with what should be.

use super::Outcome;
use crate::DType;
use crate::cuda::entry::{Arg, Pointer};
use crate::testing::random_values;

/// Guard words of eight bytes on either side, which must not be written; read as floats they are NaN. Of an odd
/// number of words the memory begins 8 bytes behind a multiple of 16: kernels that access 16 bytes at once
/// meet every case, since rows of the sizes that need an alignment have an even number of them.
const GUARD: usize = 64;

/// Guard words before memory of this many bytes.
fn guard(bytes: usize) -> usize {
    GUARD + bytes.div_ceil(8) % 2
}

/// A bit pattern that is NaN in every float type.
const NOTHING: u64 = u64::MAX;

/// Memory of a device.
pub(super) struct Memory {
    words: Vec<u64>,
    bytes: usize,
}

impl Memory {
    /// Memory that nothing was written to.
    pub fn unwritten(bytes: usize) -> Self {
        Self {
            words: vec![NOTHING; guard(bytes) + bytes.div_ceil(8) + GUARD],
            bytes,
        }
    }

    /// Memory for `n` elements that nothing was written to.
    pub fn room(stored: DType, n: usize) -> Self {
        Self::unwritten(n * stored.bytes())
    }

    fn of(bytes: impl Iterator<Item = u8>) -> Self {
        let bytes: Vec<u8> = bytes.collect();
        let mut memory = Self::unwritten(bytes.len());
        for (i, byte) in bytes.into_iter().enumerate() {
            let (word, shift) = (guard(memory.bytes) + i / 8, i % 8 * 8);
            memory.words[word] &= !(0xFF << shift);
            memory.words[word] |= u64::from(byte) << shift;
        }
        memory
    }

    /// Numbers in their stored type.
    pub fn floats(stored: DType, values: &[f32]) -> Self {
        match stored {
            DType::BF16 => Self::of(values.iter().flat_map(|&v| to_bf16(v).to_le_bytes())),
            _ => Self::of(values.iter().flat_map(|v| v.to_le_bytes())),
        }
    }

    /// Indices.
    pub fn indices(values: &[u32]) -> Self {
        Self::of(values.iter().flat_map(|v| v.to_le_bytes()))
    }

    /// Words, addresses say.
    pub fn words(words: &[u64]) -> Self {
        Self::of(words.iter().flat_map(|word| word.to_le_bytes()))
    }

    /// Where it begins.
    pub fn at(&self) -> Pointer {
        Pointer(self.words[guard(self.bytes)..].as_ptr().addr() as u64)
    }

    /// Its bytes.
    pub fn content(&self) -> impl Iterator<Item = u8> {
        let words = self.words[guard(self.bytes)..].iter();
        words.flat_map(|word| word.to_le_bytes()).take(self.bytes)
    }

    fn chunks<const N: usize>(&self) -> Vec<[u8; N]> {
        let bytes: Vec<u8> = self.content().collect();
        bytes.as_chunks::<N>().0.to_vec()
    }

    /// The numbers in it, in single precision.
    pub fn values(&self, stored: DType) -> Vec<f32> {
        match stored {
            DType::BF16 => {
                let bits = self.chunks().into_iter().map(u16::from_le_bytes);
                bits.map(|bits| f32::from_bits(u32::from(bits) << 16))
                    .collect()
            }
            _ => self.chunks().into_iter().map(f32::from_le_bytes).collect(),
        }
    }

    /// The numbers in it, which are doubles.
    pub fn doubles(&self) -> Vec<f64> {
        self.chunks().into_iter().map(f64::from_le_bytes).collect()
    }

    /// The numbers in it, which are indices.
    pub fn u32s(&self) -> Vec<u32> {
        self.chunks().into_iter().map(u32::from_le_bytes).collect()
    }

    /// An error if something was written around it.
    pub fn check_surroundings(&self) -> Outcome {
        let (before, rest) = self.words.split_at(guard(self.bytes));
        let after = &rest[self.bytes.div_ceil(8)..];
        if before.iter().chain(after).all(|&word| word == NOTHING) {
            return Ok(());
        }
        Err("something was written outside of its memory".into())
    }
}

/// An error for a pointer that is not the start of one of the memories.
pub(super) fn check_known(arg: &Arg, memories: &[&Memory]) -> Outcome {
    match arg {
        Arg::Pointer(pointer)
            if *pointer != Pointer::NULL && !memories.iter().any(|m| m.at() == *pointer) =>
        {
            Err("a pointer to memory that the test does not name".into())
        }
        _ => Ok(()),
    }
}

/// The nearest number that has 16 bits, ties to even.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// What becomes of a number that is stored.
pub(super) fn rounded(stored: DType, value: f32) -> f32 {
    match stored {
        DType::BF16 => f32::from_bits(u32::from(to_bf16(value)) << 16),
        _ => value,
    }
}

/// `n` numbers in -1..1 that the type can hold.
pub(super) fn random(stored: DType, n: usize, seed: u64) -> Vec<f32> {
    let values = random_values(n, seed).into_iter();
    values.map(|value| rounded(stored, value)).collect()
}

/// An error unless the memory holds the numbers, rounded to its type, to the bit; what is not a
/// number has no bits that count.
pub(super) fn same(what: &str, stored: DType, got: &Memory, wanted: &[f32]) -> Outcome {
    compare(what, &got.values(stored), wanted, |got, wanted| {
        let wanted = rounded(stored, wanted);
        got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan()
    })
}

/// [`same`] in single precision. In bf16, where kernels take the device's own exponentials, a result may be the neighbour of
/// the one that is wanted, or tiny where an exponential was too small for one of the two.
pub(super) fn as_good(what: &str, stored: DType, got: &Memory, wanted: &[f32]) -> Outcome {
    if stored != DType::BF16 {
        return same(what, stored, got, wanted);
    }
    compare(what, &got.values(stored), wanted, |got, wanted| {
        let wanted = rounded(stored, wanted);
        let is_next =
            (got - wanted).abs() <= 2f32.powi(-7) * wanted.abs() + 32.0 * f32::MIN_POSITIVE;
        got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan() || is_next
    })
}

/// An error unless the memory holds the numbers but for an error of `tolerance · max(1, |wanted|)`,
/// and that of rounding to its type.
pub(super) fn near(
    what: &str,
    stored: DType,
    got: &Memory,
    wanted: &[f32],
    tolerance: f32,
) -> Outcome {
    // Half a unit of the last of 8 bits, and as much where the result lies between two numbers.
    let rounding = if stored == DType::BF16 {
        2f32.powi(-8)
    } else {
        0.0
    };
    compare(what, &got.values(stored), wanted, |got, wanted| {
        let scale = wanted.abs();
        (got - wanted).abs() <= tolerance * scale.max(1.0) + rounding * scale
    })
}

fn compare(what: &str, got: &[f32], wanted: &[f32], equal: impl Fn(f32, f32) -> bool) -> Outcome {
    if got.len() != wanted.len() {
        return Err(format!(
            "{what}: {} of {} elements",
            got.len(),
            wanted.len()
        ));
    }
    let n = got.len();
    let mut pairs = got.iter().zip(wanted).enumerate();
    match pairs.find(|(_, (got, wanted))| !equal(**got, **wanted)) {
        Some((i, (got, wanted))) => {
            Err(format!("{what}: element {i} of {n} is {got}, not {wanted}"))
        }
        None => Ok(()),
    }
}
