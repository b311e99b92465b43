//! What is demanded of a `tokenizer.json` before a library builds what it describes.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// How deep lists and objects may lie in each other. The library follows them by recursion.
const DEEPEST: usize = 32;
/// The most objects that describe how text is cut, changed and put together again. Each may be a
/// pattern that takes 20 MB; those of GPT-2 are three, and the longest that are in use a dozen.
const MOST_RULES: usize = 32;

/// The most text in pieces that have scores (Unigram), of which the library makes a tree with a hundred
/// bytes for each byte. A quarter of a million pieces have less than half.
const MOST_TEXT: usize = 4 << 20;

/// Refuses what would take the program down: nesting without end, and a table of pieces that would make
/// the library cut a character in two.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("byte {} is no UTF-8 text", error.valid_up_to()))?;
    if depth(bytes) > DEEPEST {
        return Err(format!("is nested more than {DEEPEST} deep"));
    }
    let Document { rules, model } = serde_json::from_str(text).map_err(|error| {
        let words: String = error.to_string().chars().take(200).collect();
        format!("cannot be read: {words}")
    })?;
    if rules > MOST_RULES {
        return Err(format!(
            "has {rules} rules: {MOST_RULES} are the most that is read"
        ));
    }
    if model.text > MOST_TEXT {
        return Err(format!(
            "has pieces with {} bytes of text: {MOST_TEXT} are the most that is read",
            model.text
        ));
    }
    if model.merges && model.prefix {
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
    /// Objects in its rules.
    rules: usize,
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
                let (mut rules, mut model) = (0, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "normalizer" | "pre_tokenizer" | "decoder" => {
                            rules += map.next_value::<Weight>()?.objects;
                        }
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
                Ok(Document { rules, model })
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// What is to be known of the tables.
#[derive(Default)]
struct Model {
    /// Whether tokens are made of two by a list of pairs.
    merges: bool,
    /// Whether a prefix is to be cut off from the right halves of those. The library cuts at that many
    /// bytes, be that within a character or not.
    prefix: bool,
    /// Bytes of text in a vocabulary that is a list.
    text: usize,
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
                        "continuing_subword_prefix" => {
                            let value = map.next_value::<Option<String>>()?;
                            model.prefix |= value.is_some_and(|value| !value.is_empty());
                        }
                        "vocab" => model.text += map.next_value::<Weight>()?.text,
                        _ => {
                            model.merges |= key == "merges";
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
    /// Bytes of text, but for keys.
    text: usize,
}

impl Weight {
    fn add(&mut self, more: Self) {
        self.objects += more.objects;
        self.text += more.text;
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
                Ok(Weight::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<Weight, E> {
                Ok(Weight::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<Weight, E> {
                Ok(Weight::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<Weight, E> {
                Ok(Weight::default())
            }

            fn visit_str<E>(self, text: &str) -> Result<Weight, E> {
                Ok(Weight {
                    objects: 0,
                    text: text.len(),
                })
            }

            fn visit_unit<E>(self) -> Result<Weight, E> {
                Ok(Weight::default())
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
                    text: 0,
                };
                while let Some((IgnoredAny, more)) = map.next_entry()? {
                    sum.add(more);
                }
                Ok(sum)
            }
        }
        deserializer.deserialize_any(Any)
    }
}
