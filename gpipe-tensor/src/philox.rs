//! Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror and Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3", SC 2011): any number of a stream at any time.

use crate::simd::vectorised;

const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Counters that are worked on side by side: a vector register's worth.
const LANES: usize = 16;

/// Numbers of one block: four words of each of its counters.
pub const BLOCK: usize = 4 * LANES;

/// Four random words for a counter under a key.
pub fn philox4x32_10(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    rounds(key, counter.map(|word| [u64::from(word)])).map(|[word]| word as u32)
}

/// The ten rounds on `N` counters at once; `counters[w][i]` is word `w` of counter `i`.
///
/// Only the low half of every element counts. The high halves fill with what the multiplications
/// leave there, and nothing has to clear them: the vector unit multiplies low halves anyway.
#[inline(always)]
fn rounds<const N: usize>(mut key: [u32; 2], mut counters: [[u64; N]; 4]) -> [[u64; N]; 4] {
    const LOW: u64 = u32::MAX as u64;
    for _ in 0..ROUNDS {
        let [a, b, c, d] = &mut counters;
        for i in 0..N {
            let first = MULTIPLIERS[0] * (a[i] & LOW);
            let second = MULTIPLIERS[1] * (c[i] & LOW);
            a[i] = second >> 32 ^ b[i] ^ u64::from(key[0]);
            b[i] = second;
            c[i] = first >> 32 ^ d[i] ^ u64::from(key[1]);
            d[i] = first;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counters
}

/// The randomness of one named thing (a dropout layer, a parameter) in one step.
///
/// The key of the generator is what Philox itself makes of the seed (as its key) and of the
/// FNV-1a hash of the name and the step (as its counter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key([u32; 2]);

impl Key {
    /// The key of `name` in step `step` of the run with this seed.
    pub fn new(seed: u64, name: &str, step: u64) -> Self {
        let [hash, step] = [fnv_1a(name), step].map(halves);
        let words = philox4x32_10(halves(seed), [hash[0], hash[1], step[0], step[1]]);
        Self([words[0], words[1]])
    }

    /// The generator's key.
    #[cfg(any(test, feature = "cuda"))]
    pub(crate) fn words(self) -> [u32; 2] {
        self.0
    }

    /// The stream of numbers of one sample of the data.
    pub fn sample(self, sample: u64) -> Stream {
        Stream {
            key: self.0,
            sample,
        }
    }
}

/// The numbers of one sample under one [`Key`]: a function of the element's index.
///
/// Element `e` is word `e % 64 / 16` of counter `e / 64 · 16 + e % 16`, so that sixteen counters
/// side by side give 64 neighbouring elements without a shuffle.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
    sample: u64,
}

impl Stream {
    /// 32 random bits for an element.
    pub fn bits(self, element: u64) -> u32 {
        let (block, within) = (element / BLOCK as u64, element as usize % BLOCK);
        let counter = halves(block * LANES as u64 + (within % LANES) as u64);
        let sample = halves(self.sample);
        philox4x32_10(self.key, [counter[0], counter[1], sample[0], sample[1]])[within / LANES]
    }

    /// A float in 0..1, of 24 random bits, for an element.
    pub fn uniform(self, element: u64) -> f32 {
        (self.bits(element) >> 8) as f32 / (1u32 << 24) as f32
    }

    /// The bits of the elements `64 · block ..`: what a loop under run-time dispatch calls.
    #[inline(always)]
    pub(crate) fn block(self, block: u64) -> [u32; BLOCK] {
        let first = halves(block * LANES as u64).map(u64::from);
        let sample = halves(self.sample).map(u64::from);
        let mut counters = [first[0], first[1], sample[0], sample[1]].map(|word| [word; LANES]);
        // The counters differ in their low bits only: the first is a multiple of LANES.
        for (lane, low) in counters[0].iter_mut().enumerate() {
            *low |= lane as u64;
        }
        let words = rounds(self.key, counters);
        let mut bits = [0; BLOCK];
        for (bits, words) in bits.chunks_exact_mut(LANES).zip(&words) {
            for (bits, word) in bits.iter_mut().zip(words) {
                *bits = *word as u32;
            }
        }
        bits
    }

    /// Writes the bits of the elements `first ..` to `bits`.
    pub fn fill(self, first: u64, bits: &mut [u32]) {
        vectorised!({
            let mut block = first / BLOCK as u64;
            let ahead = (BLOCK - first as usize % BLOCK) % BLOCK;
            let (head, body) = bits.split_at_mut(ahead.min(bits.len()));
            if !head.is_empty() {
                let start = BLOCK - ahead;
                head.copy_from_slice(&self.block(block)[start..start + head.len()]);
                block += 1;
            }
            for (i, chunk) in body.chunks_mut(BLOCK).enumerate() {
                let numbers = self.block(block + i as u64);
                chunk.copy_from_slice(&numbers[..chunk.len()]);
            }
        });
    }
}

/// The low and the high half.
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// The 64-bit FNV-1a hash (Fowler, Noll and Vo): short, and the same on every machine.
fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the file `kat_vectors` of the authors' library Random123.
    #[test]
    fn published_vectors() {
        let ones = u32::MAX;
        assert_eq!(
            philox4x32_10([0; 2], [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32_10([ones; 2], [ones; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn bulk_and_single_numbers_agree_for_any_start_and_length() {
        let stream = Key::new(7, "transformer.drop", 3).sample(u64::MAX - 1);
        let far = u64::from(u32::MAX) * 4 - 70;
        for first in [0, 1, 15, 16, 63, 64, 1000, far] {
            for length in [0, 1, 5, 63, 64, 65, 200] {
                let mut bits = vec![0; length];
                stream.fill(first, &mut bits);
                for (i, &got) in bits.iter().enumerate() {
                    assert_eq!(got, stream.bits(first + i as u64), "{first} + {i}");
                }
            }
        }
    }

    #[test]
    fn seed_name_step_sample_and_element_all_matter() {
        let base = Key::new(1, "a", 2).sample(3).bits(4);
        let others = [
            Key::new(2, "a", 2).sample(3).bits(4),
            Key::new(1, "b", 2).sample(3).bits(4),
            Key::new(1, "a", 3).sample(3).bits(4),
            Key::new(1, "a", 2).sample(4).bits(4),
            Key::new(1, "a", 2).sample(3).bits(5),
        ];
        assert!(others.iter().all(|&other| other != base));
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv_1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn uniform_numbers_fill_the_unit_interval_evenly() {
        let stream = Key::new(0, "uniform", 0).sample(0);
        let mut counts = [0u32; 16];
        for element in 0..16_000 {
            let value = stream.uniform(element);
            assert!((0.0..1.0).contains(&value));
            counts[(value * 16.0) as usize] += 1;
        }
        // 1000 expected, standard deviation 31.
        assert!(counts.iter().all(|count| (850..1150).contains(count)));
    }
}
