//! How much the rules of a `tokenizer.json` may make of a text: each a factor, known before a text is
//! given to them.
//!
//! A rule may replace every character by a thousand, and the next one each of those. Memory that is
//! not there ends the process, so the product is bounded beforehand.

use serde_json::Value;

use super::pattern;
use super::quiet;

/// The most that normalizer and pre-tokenizer together may make of a text. The rules of XLNet, which
/// are the most that is in use, may make 4,356 times as much (a single ligature becomes 18 letters,
/// twice), and of a real text make as much as it is.
const MOST_OF_TEXT: u64 = 1 << 14;
/// The most that a decoder may make of a token.
const MOST_OF_TOKEN: u64 = 64;
/// The most bytes of a text that a rule puts in; those in use have three.
const LONGEST: usize = 1 << 10;
/// The most bytes that one character becomes by a table of SentencePiece; those in use: 33.
const LONGEST_IN_TABLE: usize = 1 << 8;

/// The rules of a file, as they stand there.
pub struct Rules<'a> {
    pub normalizer: Option<&'a Value>,
    pub pre_tokenizer: Option<&'a Value>,
    pub decoder: Option<&'a Value>,
}

impl Rules<'_> {
    /// How many times as many bytes normalizer and pre-tokenizer make of a text, at the most.
    pub fn growth(&self) -> Result<u64, String> {
        let mut room = pattern::ROOM;
        let mut factor = |rule: Option<&Value>, of: Factor| -> Result<u64, String> {
            rule.map_or(Ok(1), |rule| of(rule, &mut room))
        };
        let text = factor(self.normalizer, normalizer)?
            .saturating_mul(factor(self.pre_tokenizer, pre_tokenizer)?);
        let token = factor(self.decoder, decoder)?;
        for (what, times, most) in [
            ("normalizer and pre_tokenizer", text, MOST_OF_TEXT),
            ("decoder", token, MOST_OF_TOKEN),
        ] {
            if times > most {
                return Err(format!(
                    "its {what} may make {times} times as much of a text: {most} times is the most that \
                     is read"
                ));
            }
        }
        Ok(text)
    }
}

/// The factor of a rule; its patterns take of the room that is left for all.
type Factor = fn(&Value, &mut usize) -> Result<u64, String>;

fn normalizer(rule: &Value, room: &mut usize) -> Result<u64, String> {
    Ok(match kind(rule)? {
        "Sequence" => chain(rule, "normalizers", normalizer, room)?,
        "Strip" | "StripAccents" | "Nmt" => 1,
        // The library takes an object of this kind for any whose keys it has.
        "BertNormalizer" => {
            let known = [
                "clean_text",
                "handle_chinese_chars",
                "strip_accents",
                "lowercase",
            ];
            only(rule, &known)?;
            // Spaces around a sign, its decomposition, small letters.
            2 * 3 * 2
        }
        // Unicode Standard Annex 15 and its FAQ: the most that UTF-8 grows.
        "NFC" | "NFD" => 3,
        "NFKC" | "NFKD" => 11,
        "Lowercase" | "ByteLevel" => 2,
        "Precompiled" => longest_in_table(text(rule, "precompiled_charsmap")?)? as u64,
        "Replace" => replaced(rule, room)?,
        "Prepend" => 1 + short(rule, "prepend")?.len() as u64,
        other => return Err(unknown("normalizer", other)),
    })
}

fn pre_tokenizer(rule: &Value, room: &mut usize) -> Result<u64, String> {
    Ok(match kind(rule)? {
        "Sequence" => chain(rule, "pretokenizers", pre_tokenizer, room)?,
        "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit" | "Punctuation" | "Digits"
        | "UnicodeScripts" => 1,
        "FixedLength" if rule.get("length").is_some_and(|length| length == 0) => {
            return Err("its FixedLength has a `length` of 0: use 1 or more".to_owned());
        }
        "FixedLength" => 1,
        "CharDelimiterSplit" => {
            only(rule, &["delimiter"])?;
            1
        }
        "Split" => {
            pattern(rule, room)?;
            1
        }
        // A piece has at least one byte; each may get a space, and each byte has a character of two.
        "ByteLevel" => 4,
        // The same with a character for each space.
        "Metaspace" => 2 * short(rule, "replacement")?.len() as u64,
        other => return Err(unknown("pre_tokenizer", other)),
    })
}

fn decoder(rule: &Value, room: &mut usize) -> Result<u64, String> {
    Ok(match kind(rule)? {
        "Sequence" => chain(rule, "decoders", decoder, room)?,
        "Fuse" | "Strip" | "Metaspace" => 1,
        // Bytes that are no text become U+FFFD, of three bytes.
        "ByteFallback" | "ByteLevel" => 3,
        // A space between all characters.
        "BPEDecoder" | "WordPiece" | "CTC" => 3,
        "Replace" => replaced(rule, room)?,
        other => return Err(unknown("decoder", other)),
    })
}

/// The product of the factors of a list of rules.
fn chain(rule: &Value, key: &str, of: Factor, room: &mut usize) -> Result<u64, String> {
    let rules = rule.get(key).and_then(Value::as_array);
    let rules = rules.ok_or_else(|| missing("Sequence", key))?;
    rules.iter().try_fold(1_u64, |product, rule| {
        Ok(product.saturating_mul(of(rule, room)?))
    })
}

/// What `Replace` makes of a text.
fn replaced(rule: &Value, room: &mut usize) -> Result<u64, String> {
    let content = short(rule, "content")?.len() as u64;
    Ok(match pattern(rule, room)? as u64 {
        // Between all characters.
        0 => content + 1,
        shortest => content.div_ceil(shortest).max(1),
    })
}

/// The fewest bytes that the pattern of a rule finds.
fn pattern(rule: &Value, room: &mut usize) -> Result<usize, String> {
    let kind = kind(rule)?;
    let pattern = rule
        .get("pattern")
        .ok_or_else(|| missing(kind, "pattern"))?;
    match pattern.get("Regex") {
        Some(_) => {
            let text = text(pattern, "Regex")?;
            pattern::shortest_match(text, room).map_err(|fault| format!("its {kind} {fault}"))
        }
        None => Ok(short(pattern, "String")?.len()),
    }
}

/// The most bytes that the table of a `Precompiled` puts in the place of a character: a trie behind
/// its length in bytes, then texts that end with a zero byte each.
fn longest_in_table(table: &str) -> Result<usize, String> {
    let fault = |fault: &str| Err(format!("its Precompiled {fault}"));
    let Some(bytes) = base64(table) else {
        return fault("is no base64");
    };
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return fault("has no table");
    };
    let Some(texts) = rest.get(u32::from_le_bytes(*length) as usize..) else {
        return fault("is cut off");
    };
    let longest = texts.split(|&byte| byte == 0).map(<[u8]>::len).max();
    match longest.unwrap_or(0) {
        longest if longest > LONGEST_IN_TABLE => fault(&format!(
            "makes {longest} bytes of a character: {LONGEST_IN_TABLE} are the most that is read"
        )),
        longest => Ok(longest.max(1)),
    }
}

/// The bytes behind the signs of RFC 4648.
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut held, mut bits) = (0_u32, 0);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for sign in text.trim_end_matches('=').bytes() {
        let value = match sign {
            b'A'..=b'Z' => sign - b'A',
            b'a'..=b'z' => sign - b'a' + 26,
            b'0'..=b'9' => sign - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    Some(bytes)
}

fn kind(rule: &Value) -> Result<&str, String> {
    rule.get("type")
        .and_then(Value::as_str)
        .ok_or_else(|| missing("a rule", "type"))
}

fn text<'a>(rule: &'a Value, key: &str) -> Result<&'a str, String> {
    let text = rule.get(key).and_then(Value::as_str);
    text.ok_or_else(|| missing(kind(rule).unwrap_or("pattern"), key))
}

/// A text that a rule puts in or looks for.
fn short<'a>(rule: &'a Value, key: &str) -> Result<&'a str, String> {
    let text = text(rule, key)?;
    match text.len() {
        0..=LONGEST => Ok(text),
        bytes => Err(format!(
            "its {} has a `{key}` of {bytes} bytes: {LONGEST} are the most that is read",
            kind(rule).unwrap_or("pattern"),
        )),
    }
}

fn only(rule: &Value, keys: &[&str]) -> Result<(), String> {
    let mut had = rule.as_object().into_iter().flat_map(|rule| rule.keys());
    match had.find(|key| *key != "type" && !keys.contains(&key.as_str())) {
        Some(key) => Err(format!(
            "its {} has a key that it does not know: {}",
            kind(rule)?,
            quiet::short(key)
        )),
        None => Ok(()),
    }
}

fn missing(kind: &str, key: &str) -> String {
    format!("cannot be read: {kind} lacks `{key}`")
}

fn unknown(what: &str, kind: &str) -> String {
    format!(
        "cannot be read: no {what} is of type {}",
        quiet::short(kind)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(normalizer: Value) -> Result<u64, String> {
        Rules {
            normalizer: Some(&normalizer),
            pre_tokenizer: None,
            decoder: None,
        }
        .growth()
    }

    fn replace(pattern: Value, content: &str) -> Value {
        json!({"type": "Replace", "pattern": pattern, "content": content})
    }

    #[test]
    fn a_factor_is_what_the_worst_text_becomes() {
        let string = |text: &str| json!({ "String": text });
        let regex = |text: &str| json!({ "Regex": text });
        assert_eq!(of(replace(string(" "), "▁")), Ok(3));
        assert_eq!(of(replace(string("``"), "\"")), Ok(1));
        assert_eq!(of(replace(string("ab"), "xyz")), Ok(2));
        assert_eq!(of(replace(string(""), "xyz")), Ok(4));
        assert_eq!(of(replace(regex(" {2,}"), "▁")), Ok(2));
        assert_eq!(of(replace(regex("a*"), "xyz")), Ok(4));
        assert_eq!(of(json!({"type": "Prepend", "prepend": "▁"})), Ok(4));
        let chain = json!({"type": "Sequence", "normalizers": [
            {"type": "NFKD"}, {"type": "Lowercase"}, replace(string(" "), "▁")]});
        assert_eq!(of(chain), Ok(66));
    }

    #[test]
    fn tables_of_sentencepiece_are_as_long_as_their_longest_text() {
        // Four bytes of trie; the texts "ab" and "c".
        assert_eq!(
            base64("BAAAAAAAAABhYgBjAA==").unwrap(),
            b"\x04\0\0\0\0\0\0\0ab\0c\0"
        );
        let table = |text: &str| of(json!({"type": "Precompiled", "precompiled_charsmap": text}));
        assert_eq!(table("BAAAAAAAAABhYgBjAA=="), Ok(2));
        // Announces 4 GiB of trie, as any text may that is none.
        for (text, word) in [
            ("/////w==", "cut off"),
            ("BA==", "no table"),
            ("?", "base64"),
        ] {
            let fault = table(text).unwrap_err();
            assert!(fault.contains(word), "{fault}");
        }
    }

    /// Of an object with this kind and other keys, the library reads what the keys say.
    #[test]
    fn a_rule_in_the_clothes_of_another_is_refused() {
        let fault = of(json!({"type": "BertNormalizer", "prepend": "x".repeat(1 << 20)}));
        assert!(fault.unwrap_err().contains("BertNormalizer has a key"));
        assert!(of(json!({"prepend": "x"})).unwrap_err().contains("type"));
        assert!(
            of(json!({"type": "Prepended"}))
                .unwrap_err()
                .contains("Prepended")
        );
    }
}
