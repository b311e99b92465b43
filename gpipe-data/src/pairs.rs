//! Pairs of a source and a target line, packed into rows: the samples of an encoder-decoder.

use std::ops::Range;

use gpipe_tensor::{Device, Tensor, Tensors, ops};
use sha2::{Digest, Sha256};

use crate::error::{Error, PairFault, Result, SourceFault, looked_for};
use crate::images::Draw;
use crate::options::SampleOptions;
use crate::source::{self, Room};
use crate::tokens::room;
use crate::vocabulary::Vocabulary;

/// The line that ends a source, ends a target, and stands before the first token of a target.
const END: &[u8] = b"\n";

/// The segment of positions that hold nothing.
const PADDING: u32 = 0;

/// Sequences of tokens in one vector.
#[derive(Default)]
struct Sequences {
    tokens: Vec<u32>,
    /// Where each one ends.
    ends: Vec<usize>,
}

impl Sequences {
    fn push(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        self.ends.push(self.tokens.len());
    }

    fn get(&self, index: usize) -> &[u32] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start..self.ends[index]]
    }

    /// Tokens of these sequences.
    fn total(&self, sequences: Range<usize>) -> usize {
        let before = |index: usize| index.checked_sub(1).map_or(0, |before| self.ends[before]);
        before(sequences.end) - before(sequences.start)
    }
}

/// The first of the longest lines among those that are longer than a row.
#[derive(Default)]
struct TooLong {
    line: usize,
    is_target: bool,
    tokens: usize,
    /// Pairs of which a line is too long, and the last of them.
    pairs: usize,
    last: usize,
}

impl TooLong {
    /// Adds a line; lines are given in their order.
    fn note(&mut self, line: usize, is_target: bool, tokens: usize) {
        self.pairs += usize::from(self.last != line);
        self.last = line;
        if tokens > self.tokens {
            (self.line, self.is_target, self.tokens) = (line, is_target, tokens);
        }
    }

    fn fault(self, seq_len: usize) -> PairFault {
        PairFault::TooLong {
            line: self.line,
            is_target: self.is_target,
            tokens: self.tokens,
            pairs: self.pairs,
            seq_len,
        }
    }
}

/// Pairs in rows: every row has as many of the next pairs as fit it.
pub(crate) struct Pairs {
    /// Each ends with the end token.
    sources: Sequences,
    targets: Sequences,
    /// The pairs of each row.
    rows: Vec<Range<usize>>,
    /// Positions of a row, of sources and targets alike.
    length: usize,
    end: u32,
}

impl Pairs {
    /// The lines of `options.source`, each with the line of `target` of the same number. Adds to `warnings` what a user
    /// should know of them.
    pub(crate) fn open(
        options: &SampleOptions,
        target: &str,
        vocabulary: &Vocabulary,
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        if options.seq_len == 0 {
            let key = "data.seq_len";
            return Err(Error::Zero { key });
        }
        let fault = |fault| Error::Pairs {
            target: target.to_owned(),
            fault,
        };
        let sources =
            source::read_within("data.source", &options.source, options.memory, warnings)?;
        let beside = |memory: u64| memory.saturating_sub(sources.len() as u64);
        let memory = options.memory.map(beside);
        let targets = source::read_within("data.target", target, memory, warnings);
        let targets = targets.map_err(|error| of_target(target, error))?;
        let mut room = Room::beside(sources.len() + targets.len(), options.memory);
        let (source_lines, target_lines) = (lines(&sources), lines(&targets));
        let count = source_lines.len();
        if count != target_lines.len() {
            return Err(fault(PairFault::OtherLength {
                sources: count,
                targets: target_lines.len(),
            }));
        }
        let encode = |text: &[u8], origin: &str, room: &Room| {
            let tokens = vocabulary.encode_within(text.to_vec(), 1, origin, room.left())?;
            Ok::<_, Error>(tokens.into_numbers())
        };
        let origin = format!("`data.source = {}`", options.source);
        let &[end] = encode(END, &origin, &room)?.as_slice() else {
            return Err(fault(PairFault::NoEnd));
        };
        let mut pairs = Self {
            sources: Sequences::default(),
            targets: Sequences::default(),
            rows: Vec::new(),
            length: options.seq_len,
            end,
        };
        // Of all lines that are too long, so that one row is long enough for the whole text.
        let mut longest: Option<TooLong> = None;
        for (i, (source, target_line)) in source_lines.into_iter().zip(target_lines).enumerate() {
            let line = i + 1;
            for (text, is_target) in [(source, false), (target_line, true)] {
                if text.is_empty() {
                    return Err(fault(PairFault::Empty { line, is_target }));
                }
                let (key, name) = match is_target {
                    true => ("target", target),
                    false => ("source", options.source.as_str()),
                };
                let origin = format!("`data.{key} = {name}`: line {line}");
                let mut tokens = encode(text, &origin, &room)?;
                tokens.push(end);
                if let Some(&token) = tokens
                    .iter()
                    .find(|&&token| token as usize >= options.vocab)
                {
                    return Err(fault(PairFault::UnknownToken {
                        token,
                        line,
                        is_target,
                        vocab: options.vocab,
                        needed: vocabulary.size(),
                    }));
                }
                if tokens.len() > options.seq_len {
                    let longest = longest.get_or_insert_default();
                    longest.note(line, is_target, tokens.len());
                }
                if longest.is_some() {
                    continue;
                }
                let taken = room.take(text.len() + END.len(), size_of_val(&tokens[..]));
                taken.map_err(|of| fault(PairFault::TooLarge(of)))?;
                match is_target {
                    true => pairs.targets.push(&tokens),
                    false => pairs.sources.push(&tokens),
                }
            }
        }
        if let Some(longest) = longest {
            return Err(fault(longest.fault(options.seq_len)));
        }
        if count == 0 {
            return Err(fault(PairFault::NoPairs));
        }
        pairs.pack(count);
        Ok(pairs)
    }

    /// What [`open`](Self::open) would warn of in the text of the targets, by the beginnings of files.
    pub(crate) fn survey_target(target: &str) -> Result<Vec<String>> {
        source::survey("data.target", target).map_err(|error| of_target(target, error))
    }

    /// Fills the rows, pair by pair in their order.
    fn pack(&mut self, count: usize) {
        let mut start = 0;
        for next in 1..=count {
            let fits = |sequences: &Sequences| {
                next < count && sequences.total(start..next + 1) <= self.length
            };
            if !(fits(&self.sources) && fits(&self.targets)) {
                self.rows.push(start..next);
                start = next;
            }
        }
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Number of pairs in the first `rows` rows.
    pub(crate) fn pairs(&self, rows: u64) -> usize {
        let last = (rows as usize).checked_sub(1);
        last.map_or(0, |last| self.rows[last].end)
    }

    /// Number of targets of these rows.
    pub(crate) fn targets(&self, rows: impl Iterator<Item = u64>) -> u64 {
        let of = |row: u64| self.targets.total(self.rows[row as usize].clone()) as u64;
        rows.map(of).sum()
    }

    pub(crate) fn digest(&self, digest: &mut Sha256) {
        for sequences in [&self.sources, &self.targets] {
            for token in &sequences.tokens {
                digest.update(token.to_le_bytes());
            }
        }
    }

    /// Ids and segments of the sources, ids and segments of the decoder's inputs, and the targets after these,
    /// each (rows, `seq_len`). The pairs of a row have the segments 1, 2, …, and what is left has segment 0; its
    /// targets are ignored.
    pub(crate) fn tensors(&self, device: &Device, draws: &[Draw]) -> Result<(Tensors, Tensor)> {
        let mut columns = <[Vec<u32>; 5]>::default();
        for column in &mut columns {
            *column = room(draws.len(), self.length)?;
        }
        let filling = [self.end, PADDING, self.end, PADDING, ops::IGNORE];
        for (row, draw) in draws.iter().enumerate() {
            let [sources, source_segments, inputs, segments, targets] = &mut columns;
            for (pair, segment) in self.rows[draw.sample as usize].clone().zip(1..) {
                let (source, target) = (self.sources.get(pair), self.targets.get(pair));
                sources.extend(source);
                source_segments.extend(source.iter().map(|_| segment));
                inputs.push(self.end);
                inputs.extend(&target[..target.len() - 1]);
                segments.extend(target.iter().map(|_| segment));
                targets.extend(target);
            }
            for (column, filling) in columns.iter_mut().zip(filling) {
                column.resize((row + 1) * self.length, filling);
            }
        }
        let tensor = |values| Tensor::from_u32(device, [draws.len(), self.length], values);
        let mut all = columns
            .into_iter()
            .map(tensor)
            .collect::<gpipe_tensor::Result<Vec<_>>>()?;
        let targets = all.pop().ok_or(Error::Zero { key: "data.target" })?;
        Ok((all.into(), targets))
    }
}

/// The error of a text that is that of the targets.
fn of_target(target: &str, error: Error) -> Error {
    let fault = match error {
        Error::Unreadable { path, source } => PairFault::Unreadable(looked_for(&path, &source)),
        Error::Source {
            fault: of @ SourceFault::TooLarge { .. },
            ..
        } => PairFault::TooLarge(of),
        Error::Source { fault: of, .. } => PairFault::Unreadable(of.to_string()),
        other => return other,
    };
    Error::Pairs {
        target: target.to_owned(),
        fault,
    }
}

/// The lines of a text, which may begin with a byte order mark, and whose last one need not end.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let text = text.strip_suffix(END).unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    let lines = text.split(|&byte| byte == END[0]);
    lines
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gpipe_tensor::{DeviceId, Host};

    use super::*;
    use crate::batches::{evaluation_batches, training_batch};
    use crate::dataset::Dataset;
    use crate::options::HeldOut;

    fn opened(sources: &str, targets: &str, options: &SampleOptions) -> Result<Dataset> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let options = SampleOptions {
            source: path("a", sources),
            target: Some(path("b", targets)),
            ..options.clone()
        };
        Dataset::open(&options, &Vocabulary::bytes())
    }

    fn options(seq_len: usize) -> SampleOptions {
        SampleOptions {
            seq_len,
            batch_size: 2,
            shuffle: false,
            ..SampleOptions::default()
        }
    }

    #[test]
    fn pairs_share_rows_until_one_is_full() {
        let targets = "\u{feff}x\nyz\nu\nvwxyz\n";
        let data = opened("ab\nc\nde\r\nf", targets, &options(6)).unwrap();
        assert_eq!(data.summary(), "4 pairs in 3 rows of 6 tokens");
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let batch = training_batch(&data, &device, 2, 0).unwrap();
        let columns = |row: usize| -> Vec<Vec<u32>> {
            let tensors = batch[row].input.iter().chain([&batch[row].target.values]);
            tensors.map(|x| x.u32s().unwrap().to_vec()).collect()
        };
        let text = |text: &str| text.bytes().map(u32::from).collect::<Vec<u32>>();
        let mut targets = text("x\nyz\n");
        targets.push(ops::IGNORE);
        assert_eq!(
            columns(0),
            [
                text("ab\nc\n\n"),
                vec![1, 1, 1, 2, 2, 0],
                text("\nx\nyz\n"),
                vec![1, 1, 2, 2, 2, 0],
                targets,
            ]
        );
        // The third source does not fit the first row, nor the fourth target the second.
        assert_eq!(columns(1)[1], [1, 1, 1, 0, 0, 0]);
    }

    #[test]
    fn losses_are_divided_by_the_targets_of_the_whole_batch() {
        let options = SampleOptions {
            held_out: HeldOut::LastTenth,
            ..options(4)
        };
        let data = opened("abc\nabc\nabc\n", "x\nyz\nuvw\n", &options).unwrap();
        assert_eq!(data.summary(), "2 pairs in 2 rows of 4 tokens");
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let batch = training_batch(&data, &device, 2, 0).unwrap();
        assert!(batch.iter().all(|item| item.target.divisor == 5.0));
        let held_out = evaluation_batches(&data, &device, 9, 1, 0).unwrap();
        let held_out: Vec<_> = held_out.map(Result::unwrap).collect();
        assert_eq!(held_out[0][0].target.divisor, 4.0);
        assert_eq!(data.held_out_targets(), 4);
    }

    /// Two texts of 1,000 bytes each, and four bytes for each of their tokens.
    #[test]
    fn both_texts_and_their_tokens_must_fit_in_memory() {
        let text = "ten bytes\n".repeat(100);
        let within = |memory| {
            let options = SampleOptions {
                memory: Some(memory),
                ..options(10)
            };
            opened(&text, &text, &options)
        };
        assert!(within(10_000).is_ok());
        for (memory, needed) in [(9_999, "9.8KiB"), (2_000, "9.8KiB"), (1_999, "1000B")] {
            let error = within(memory).err().unwrap();
            let line = error.to_string();
            assert!(error.is_input_error() && !line.contains('\n'));
            assert!(
                line.starts_with("`data.target = ")
                    && line.contains(&format!("needs {needed} of memory with its tokens"))
                    && line.ends_with("give the program more memory"),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_no_pair_is_refused_in_one_line() {
        let refused = |sources, targets, seq_len| {
            let error = opened(sources, targets, &options(seq_len)).err().unwrap();
            assert!(error.is_input_error());
            let line = error.to_string();
            assert!(line.starts_with("`data.target = ") && !line.contains('\n'));
            line
        };
        for (sources, targets, words) in [
            ("a\nb\n", "c\n", "has 1 lines, but `data.source` has 2"),
            ("a\nb\n", "c\n\n", "line 2 is empty"),
            ("a\n\n", "c\nd\n", "line 2 of `data.source` is empty"),
            (
                "a\nb\n",
                "c\ndefg\n",
                "line 2 has 5 tokens with its end: use `data.seq_len = 5`",
            ),
            (
                "abcd\nb\n",
                "c\nd\n",
                "line 1 of `data.source` has 5 tokens with its end",
            ),
            ("", "", "no lines"),
        ] {
            let line = refused(sources, targets, 4);
            assert!(line.contains(words), "{line}");
        }
        // One attempt is enough, whichever of the texts has the longest line.
        let line = refused("abc\nabcdef\nab\nx\n", "vwxyz\nuvwxyz\nabcdefgh\ny\n", 4);
        let words = "line 3 has 9 tokens with its end, the most of 3 lines that are too long: use `data.seq_len = 9` instead \
                     of 4, or remove those lines from both texts";
        assert!(line.ends_with(words), "{line}");
        opened(
            "abc\nabcdef\nab\nx\n",
            "vwxyz\nuvwxyz\nabcdefgh\ny\n",
            &options(9),
        )
        .unwrap();
        let small = SampleOptions {
            vocab: 100,
            ..options(4)
        };
        let line = opened("a\n", "z\n", &small).err().unwrap().to_string();
        assert!(line.contains("token 122 in line 1 is beyond"), "{line}");
        let line = opened("z\n", "a\n", &small).err().unwrap().to_string();
        let words = "token 122 in line 1 of `data.source` is beyond";
        assert!(line.contains(words), "{line}");
    }
}
