//! Good inputs made bad: one to four changes of their bytes, numbers, words and order.

use super::targets::numbers;

/// A generator of numbers (Marsaglia's xorshift): the same inputs for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// From 0 to below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n.max(1)
    }

    pub fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

/// The most bytes that an input may grow to.
const LONGEST: usize = 1 << 13;

/// Another input, made of one of the corpus or two. Every other one is made of the first `good`, which
/// are understood: most that join the corpus are not, and the paths behind the first error would be
/// seldom walked.
pub fn mutate(random: &mut Random, corpus: &[Vec<u8>], good: usize, words: &[&str]) -> Vec<u8> {
    let of = [corpus.len(), good][random.below(2)];
    let mut input = corpus[random.below(of)].clone();
    for _ in 0..=random.below(4) {
        change(random, &mut input, corpus, words);
    }
    input.truncate(LONGEST);
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
    let at = random.below(input.len() + 1);
    match random.below(10) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.below(256) as u8;
            }
        }
        2 => input.truncate(at),
        3 => {
            let range = token(input, at);
            input.drain(range);
        }
        4 => {
            let range = token(input, at);
            let word = random.of(words).as_bytes().to_vec();
            input.splice(range, word);
        }
        5 => {
            let range = token(input, at);
            let number = random.of(numbers()).as_bytes().to_vec();
            input.splice(range, number);
        }
        6 => {
            let word = random.of(words).as_bytes();
            let times = [1, 1, 1, 2, 3, 100][random.below(6)];
            input.splice(at..at, word.repeat(times));
        }
        7 => {
            // The same again, elsewhere.
            let copy = input[token(input, at)].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, copy);
        }
        8 => {
            // The end of another.
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            // A length field.
            let length = [
                0,
                1,
                u64::MAX,
                1 << 63,
                1 << 32,
                random.below(1 << 16) as u64,
            ];
            let bytes = length[random.below(length.len())].to_le_bytes();
            let start = if random.below(2) == 0 { 0 } else { at };
            let end = input.len().min(start + bytes.len());
            input.splice(start..end, bytes);
        }
    }
}

/// The word, number or sign at a place.
fn token(input: &[u8], at: usize) -> std::ops::Range<usize> {
    let Some(&byte) = input.get(at) else {
        return at..at;
    };
    let kind = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !kind(byte) {
        return at..at + 1;
    }
    let start = input[..at]
        .iter()
        .rposition(|&byte| !kind(byte))
        .map_or(0, |before| before + 1);
    let end = input[at..]
        .iter()
        .position(|&byte| !kind(byte))
        .map_or(input.len(), |n| at + n);
    start..end
}

#[test]
fn tokens_are_words_numbers_and_signs() {
    let at = |place| token(b"ab_1 = [22]", place);
    assert_eq!(
        [at(2), at(4), at(8), at(9), at(11)],
        [0..4, 4..5, 8..10, 8..10, 11..11]
    );
}

#[test]
fn the_same_seed_gives_the_same_inputs_and_another_gives_others() {
    let corpus = [b"[run]\nsteps = 3\n".to_vec()];
    let inputs = |seed| -> Vec<Vec<u8>> {
        let mut random = Random::new(seed);
        (0..100)
            .map(|_| mutate(&mut random, &corpus, 1, &["=", "x"]))
            .collect()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
    let different = inputs(1)
        .iter()
        .filter(|input| **input != corpus[0])
        .count();
    assert!(different > 80, "{different} of 100 differ");
}
