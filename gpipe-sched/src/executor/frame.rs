//! The frame of a message: its number and a checksum, at the end of its head.

use crate::executor::transport::Parcel;

/// Appends the number of a message and its checksum.
pub(crate) fn seal(parcel: &mut Parcel, number: u64) {
    parcel.head.extend(number.to_le_bytes());
    let sum = checksum(parcel);
    parcel.head.extend(sum.to_le_bytes());
}

/// Takes both off and returns the number, if the checksum is right.
pub(crate) fn unseal(parcel: &mut Parcel) -> Result<u64, String> {
    let sum = cut_number(&mut parcel.head)?;
    if sum != checksum(parcel) {
        return Err("a message from it is damaged: the run cannot go on".to_owned());
    }
    cut_number(&mut parcel.head)
}

/// Takes a number off the end.
fn cut_number(head: &mut Vec<u8>) -> Result<u64, String> {
    let cut = head.split_last_chunk();
    let (rest, number) = cut.ok_or_else(|| "a message from it is too short".to_owned())?;
    let (rest, number) = (rest.len(), u64::from_le_bytes(*number));
    head.truncate(rest);
    Ok(number)
}

/// A checksum of a parcel, and of how it is divided: four sums in turn, so that memory is the limit.
fn checksum(parcel: &Parcel) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(PRIME);
    let word = |bytes: &[u8]| {
        let padded = bytes.iter().rev();
        padded.fold(0, |bits, &byte| bits << 8 | u64::from(byte))
    };
    let mut sums = [1_u64, 2, 3, 4];
    let parts = [&parcel.head].into_iter().chain(&parcel.bodies);
    for part in parts {
        sums[0] = step(sums[0], part.len() as u64);
        let (blocks, rest) = part.as_chunks::<32>();
        for block in blocks {
            for (sum, bytes) in sums.iter_mut().zip(block.as_chunks::<8>().0) {
                *sum = step(*sum, u64::from_le_bytes(*bytes));
            }
        }
        for bytes in rest.chunks(8) {
            sums[1] = step(sums[1], word(bytes));
        }
    }
    sums.into_iter().fold(0, step)
}
