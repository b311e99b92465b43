//! The bytes of a file, of which tensors are given piece by piece.

use super::Stored;
use crate::{DType, Error};

/// Elements in a piece: 1 MiB.
const PIECE: usize = 1 << 18;

/// The bytes of a file: some that are in memory, then the elements of tensors, which need no second copy there; those
/// that are not in memory are fetched one at a time.
#[derive(Clone, Debug, Default)]
pub struct FileContents {
    head: Vec<u8>,
    names: Vec<String>,
    tensors: Vec<Stored>,
}

impl From<Vec<u8>> for FileContents {
    fn from(head: Vec<u8>) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }
}

impl FileContents {
    /// These bytes, and behind them the elements of named tensors on the processor, in little-endian order.
    pub(super) fn new(head: Vec<u8>, tensors: Vec<(String, Stored)>) -> Self {
        let (names, tensors) = tensors.into_iter().unzip();
        Self {
            head,
            names,
            tensors,
        }
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.head.len() as u64 + self.tensor_bytes()
    }

    /// The number of bytes of the tensors alone.
    pub fn tensor_bytes(&self) -> u64 {
        let of_tensors = self.tensors.iter().map(Stored::bytes);
        of_tensors.sum::<usize>() as u64
    }

    /// The names of the tensors, in the order of their elements.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Gives all bytes in order, some at a time.
    ///
    /// # Errors
    /// The first of `take`, or what `unavailable` makes of that of a tensor that is not there.
    pub fn give<E>(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
        unavailable: impl Fn(Error) -> E,
    ) -> Result<(), E> {
        take(&self.head)?;
        let mut piece: Vec<u32> = Vec::with_capacity(PIECE);
        let mut words = |words: &mut dyn Iterator<Item = u32>| {
            piece.clear();
            piece.extend(words.map(u32::to_le));
            take(bytemuck::cast_slice(&piece))
        };
        for stored in &self.tensors {
            let tensor = stored.get().map_err(&unavailable)?;
            match tensor.dtype() {
                DType::U32 => {
                    let all = tensor.u32s().map_err(&unavailable)?;
                    for some in all.chunks(PIECE) {
                        words(&mut some.iter().copied())?;
                    }
                }
                _ => {
                    let single = tensor.to_dtype(DType::F32).map_err(&unavailable)?;
                    let all = single.f32s().map_err(&unavailable)?;
                    for some in all.chunks(PIECE) {
                        words(&mut some.iter().map(|value| value.to_bits()))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// All bytes at once.
    ///
    /// # Errors
    /// That of a tensor that is not there.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut all = Vec::with_capacity(usize::try_from(self.bytes()).unwrap_or_default());
        let take = |piece: &[u8]| {
            all.extend_from_slice(piece);
            Ok(())
        };
        self.give(take, |error| error)?;
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::testing::{device, random};

    fn named<const N: usize>(tensors: [Stored; N]) -> Vec<(String, Stored)> {
        let named = tensors.into_iter().enumerate();
        named.map(|(i, tensor)| (i.to_string(), tensor)).collect()
    }

    #[test]
    fn the_bytes_of_a_file_come_in_pieces() {
        let device = device();
        let long = random(&device, [PIECE / 100, 201], 1);
        let ids = Tensor::from_u32(&device, [3], vec![1, 2, u32::MAX]).unwrap();
        let file = FileContents::new(vec![7; 5], named([long.clone().into(), ids.into()]));
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let take = |piece: &[u8]| {
            pieces.push(piece.to_vec());
            Ok(())
        };
        file.give(take, |error| error).unwrap();
        let lengths: Vec<usize> = pieces.iter().map(Vec::len).collect();
        let rest = 4 * (long.elements() - 2 * PIECE);
        assert_eq!(lengths, [5, 4 * PIECE, 4 * PIECE, rest, 12]);
        let mut wanted = vec![7; 5];
        let floats = long.f32s().unwrap().iter();
        wanted.extend(floats.flat_map(|value| value.to_le_bytes()));
        wanted.extend([1, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(pieces.concat(), wanted);
        assert_eq!(
            (file.to_vec().unwrap(), file.bytes()),
            (wanted.clone(), wanted.len() as u64)
        );
        let mut left = 2;
        let take = |_: &[u8]| {
            left -= 1;
            if left == 0 { Err("full") } else { Ok(()) }
        };
        assert_eq!(file.give(take, |_| "not there"), Err("full"));
    }

    #[test]
    fn a_tensor_is_fetched_when_it_is_needed_and_must_be_what_was_announced() {
        let device = device();
        let long = random(&device, [3, 4], 2);
        let of_shape = |shape: [usize; 2]| {
            let long = long.clone();
            Stored::later(DType::F32, shape.into(), move || Ok(long.clone()))
        };
        let whole = FileContents::new(Vec::new(), named([long.clone().into()]));
        let later = FileContents::new(Vec::new(), named([of_shape([3, 4])]));
        assert_eq!(later.to_vec().unwrap(), whole.to_vec().unwrap());
        let transposed = of_shape([3, 4]).map([4, 3].into(), |tensor| tensor.reshape([4, 3]));
        assert_eq!(transposed.get().unwrap().shape().dims(), [4, 3]);
        let other = FileContents::new(Vec::new(), named([of_shape([4, 3])]));
        let error = other.to_vec().unwrap_err().to_string();
        assert!(
            error.contains("[3, 4]") && error.contains("[4, 3]"),
            "{error}"
        );
    }
}
