//! What is demanded of a `tokenizer.json` before a library builds what it describes: nothing is kept of
//! it here, and nothing is allocated that it names.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::quiet::unreadable;

/// How deep lists and objects may lie in each other. The library follows them by recursion.
const DEEPEST: usize = 32;
/// The most objects that describe how text is cut, changed and put together again. Each may be a
/// pattern that takes 20 MB; those of GPT-2 are three, and the longest that are in use a dozen.
const MOST_RULES: usize = 32;
/// The most values in those.
const MOST_VALUES: usize = 1 << 10;
/// The most tokens, and the most pairs that become one; those in use have half a million.
const MOST_TOKENS: usize = 1 << 20;
/// The most bytes of a token, or of what is put before or behind one; those in use have 256, most of
/// them spaces.
const LONGEST: usize = 1 << 12;
/// The most bytes of a piece that has a score (Unigram). At every place of a text all pieces that begin
/// there are tried; SentencePiece makes them of at most 16 characters.
const LONGEST_PIECE: usize = 1 << 8;
/// The most text in pieces that have scores (Unigram), of which the library makes a tree with a hundred
/// bytes for each byte. A quarter of a million pieces have less than half.
const MOST_TEXT: usize = 4 << 20;
/// The most characters of a word (WordPiece), which takes time by their square; BERT has 100.
const LONGEST_WORD: u64 = 1_000;
/// The most bytes of the tokens that are added, each of which the library looks for at every place.
const MOST_ADDED: usize = 1 << 20;

/// Refuses what would take the program down: nesting without end, tables beyond all that are in use,
/// and a table of pieces that would make the library cut a character in two.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("byte {} is no UTF-8 text", error.valid_up_to()))?;
    if depth(bytes) > DEEPEST {
        return Err(format!("is nested more than {DEEPEST} deep"));
    }
    let Document {
        rules,
        added,
        model,
    } = serde_json::from_str(text).map_err(unreadable)?;
    let longest = match model.list {
        true => LONGEST_PIECE,
        false => LONGEST,
    };
    for (what, is, most) in [
        ("rules", rules.objects, MOST_RULES),
        ("values in its rules", rules.values, MOST_VALUES),
        ("bytes of text in its added_tokens", added.text, MOST_ADDED),
        ("bytes in an added token", added.longest, LONGEST),
        ("values in its vocab", model.vocab.values, 2 * MOST_TOKENS),
        ("values in its merges", model.merges.values, 2 * MOST_TOKENS),
        ("bytes in a token", model.vocab.longest, longest),
        ("bytes of text in its pieces", model.vocab.text, MOST_TEXT),
        ("bytes in what goes with a token", model.affix, LONGEST),
    ] {
        if is > most {
            return Err(format!("has {is} {what}: {most} are the most that is read"));
        }
    }
    if model.word > LONGEST_WORD {
        return Err(format!(
            "has a max_input_chars_per_word of {}: {LONGEST_WORD} is the most that is read",
            model.word
        ));
    }
    if model.merges.values > 0 && model.prefix {
        return Err(
            "has merges and a continuing_subword_prefix: only byte-level tables without one can be \
             read"
                .into(),
        );
    }
    Ok(())
}

/// How deep lists and objects lie in each other.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The outline of a file.
struct Document {
    rules: Weight,
    added: Weight,
    model: Model,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object with `model`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let (mut rules, mut added, mut model) =
                    (Weight::default(), Weight::default(), None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "normalizer" | "pre_tokenizer" | "decoder" => rules.add(map.next_value()?),
                        "added_tokens" => added.add(map.next_value()?),
                        "model" if model.is_some() => {
                            return Err(A::Error::duplicate_field("model"));
                        }
                        "model" => model = Some(map.next_value::<Model>()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                let model = model.ok_or_else(|| A::Error::missing_field("model"))?;
                Ok(Document {
                    rules,
                    added,
                    model,
                })
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// What is to be known of the tables.
#[derive(Default)]
struct Model {
    /// Tokens or pieces.
    vocab: Weight,
    /// Whether those are a list, of pieces with scores.
    list: bool,
    /// Pairs of tokens that become one.
    merges: Weight,
    /// Whether a prefix is to be cut off from the right halves of those. The library cuts at that many
    /// bytes, be that within a character or not.
    prefix: bool,
    /// Bytes of the longest text that is put before or behind tokens, or in the place of one.
    affix: usize,
    /// Characters of the longest word.
    word: u64,
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Model;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object with `vocab`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Model, A::Error> {
                let mut model = Model::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "continuing_subword_prefix" | "end_of_word_suffix" | "unk_token" => {
                            let bytes = map.next_value::<Weight>()?.text;
                            model.prefix |= key == "continuing_subword_prefix" && bytes > 0;
                            model.affix = model.affix.max(bytes);
                        }
                        "max_input_chars_per_word" => {
                            let word = map.next_value::<Option<u64>>()?;
                            model.word = model.word.max(word.unwrap_or(0));
                        }
                        "vocab" => {
                            let vocab = map.next_value::<Weight>()?;
                            model.list |= vocab.objects == 0;
                            model.vocab.add(vocab);
                        }
                        "merges" => model.merges.add(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(model)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// How much there is in a value, of which nothing is kept.
#[derive(Default)]
struct Weight {
    /// Objects, itself included.
    objects: usize,
    /// Texts, numbers and the like.
    values: usize,
    /// Bytes of text, but for keys.
    text: usize,
    /// Bytes of the longest text, be it a key.
    longest: usize,
}

impl Weight {
    fn add(&mut self, more: Self) {
        self.objects += more.objects;
        self.values += more.values;
        self.text += more.text;
        self.longest = self.longest.max(more.longest);
    }

    fn value<E>() -> Result<Self, E> {
        Ok(Self {
            values: 1,
            ..Self::default()
        })
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Weight;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Weight, E> {
                Weight::value()
            }

            fn visit_i64<E>(self, _: i64) -> Result<Weight, E> {
                Weight::value()
            }

            fn visit_u64<E>(self, _: u64) -> Result<Weight, E> {
                Weight::value()
            }

            fn visit_f64<E>(self, _: f64) -> Result<Weight, E> {
                Weight::value()
            }

            fn visit_unit<E>(self) -> Result<Weight, E> {
                Weight::value()
            }

            fn visit_str<E>(self, text: &str) -> Result<Weight, E> {
                Ok(Weight {
                    objects: 0,
                    values: 1,
                    text: text.len(),
                    longest: text.len(),
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Weight, A::Error> {
                let mut sum = Weight::default();
                while let Some(more) = list.next_element()? {
                    sum.add(more);
                }
                Ok(sum)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Weight, A::Error> {
                let mut sum = Weight {
                    objects: 1,
                    ..Weight::default()
                };
                while let Some((Length(key), more)) = map.next_entry()? {
                    sum.longest = sum.longest.max(key);
                    sum.add(more);
                }
                Ok(sum)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// The bytes of a key.
struct Length(usize);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Length;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, text: &str) -> Result<Length, E> {
                Ok(Length(text.len()))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
