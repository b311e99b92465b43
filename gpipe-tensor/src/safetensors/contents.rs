//! The bytes of a file, of which tensors are given piece by piece.

use crate::{DType, Tensor};

/// Elements in a piece: 1 MiB.
const PIECE: usize = 1 << 18;

/// The bytes of a file: some that are in memory, then the elements of tensors, which need no second copy there.
#[derive(Clone, Debug, Default)]
pub struct FileContents {
    head: Vec<u8>,
    tensors: Vec<Tensor>,
}

impl From<Vec<u8>> for FileContents {
    fn from(head: Vec<u8>) -> Self {
        Self {
            head,
            tensors: Vec::new(),
        }
    }
}

impl FileContents {
    /// These bytes, and behind them the elements of tensors on the processor, in little-endian order.
    pub(super) fn new(head: Vec<u8>, tensors: Vec<Tensor>) -> Self {
        Self { head, tensors }
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        let of_tensors: usize = self.tensors.iter().map(Tensor::bytes).sum();
        (self.head.len() + of_tensors) as u64
    }

    /// Gives all bytes in order, some at a time.
    ///
    /// # Errors
    /// The first of `take`.
    pub fn give<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        take(&self.head)?;
        let mut piece: Vec<u32> = Vec::with_capacity(PIECE);
        let mut words = |words: &mut dyn Iterator<Item = u32>| {
            piece.clear();
            piece.extend(words.map(u32::to_le));
            take(bytemuck::cast_slice(&piece))
        };
        for tensor in &self.tensors {
            match tensor.dtype() {
                DType::U32 => {
                    let all = tensor.u32s().unwrap_or_default();
                    for some in all.chunks(PIECE) {
                        words(&mut some.iter().copied())?;
                    }
                }
                _ => {
                    let all = tensor.f32s().unwrap_or_default();
                    for some in all.chunks(PIECE) {
                        words(&mut some.iter().map(|value| value.to_bits()))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// All bytes at once.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(usize::try_from(self.bytes()).unwrap_or_default());
        let taken: Result<(), std::convert::Infallible> = self.give(|piece| {
            all.extend_from_slice(piece);
            Ok(())
        });
        match taken {
            Ok(()) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{device, random};

    #[test]
    fn the_bytes_of_a_file_come_in_pieces() {
        let device = device();
        let long = random(&device, [PIECE / 100, 201], 1);
        let ids = Tensor::from_u32(&device, [3], vec![1, 2, u32::MAX]).unwrap();
        let file = FileContents::new(vec![7; 5], vec![long.clone(), ids]);
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let taken: Result<(), ()> = file.give(|piece| {
            pieces.push(piece.to_vec());
            Ok(())
        });
        taken.unwrap();
        let lengths: Vec<usize> = pieces.iter().map(Vec::len).collect();
        let rest = 4 * (long.elements() - 2 * PIECE);
        assert_eq!(lengths, [5, 4 * PIECE, 4 * PIECE, rest, 12]);
        let mut wanted = vec![7; 5];
        let floats = long.f32s().unwrap().iter();
        wanted.extend(floats.flat_map(|value| value.to_le_bytes()));
        wanted.extend([1, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(pieces.concat(), wanted);
        assert_eq!(
            (file.to_vec(), file.bytes()),
            (wanted.clone(), wanted.len() as u64)
        );
        let mut left = 2;
        let stopped = file.give(|_| {
            left -= 1;
            if left == 0 { Err("full") } else { Ok(()) }
        });
        assert_eq!(stopped, Err("full"));
    }
}
