//! Tokens are those that Python makes of the same texts with the same file, also of long texts that are
//! cut into pieces; what is said one token after the other is what Python says of all; hostile files
//! are one line.

use serde_json::{Value, json};

use super::*;
use crate::dataset::Dataset;
use crate::options::SampleOptions;
use crate::stream_decoder::StreamDecoder;
use crate::vocabulary::Vocabulary;

const FILE: &[u8] = include_bytes!("../../tests/fixtures/tokenizer.json");
const RECORDED: &str = include_str!("../../tests/fixtures/tokens.json");

fn tokenizer() -> Tokenizer {
    Tokenizer::parse(FILE).unwrap()
}

fn recorded<T: serde::de::DeserializeOwned>(what: &str) -> T {
    let mut all: Value = serde_json::from_str(RECORDED).unwrap();
    serde_json::from_value(all[what].take()).unwrap()
}

#[test]
fn tokens_are_those_of_python() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.size(), 500);
    let texts: Vec<(String, Vec<u32>)> = recorded("encoded");
    assert!(texts.len() >= 15);
    for (text, tokens) in texts {
        assert_eq!(
            tokenizer.encode(&text, 1, None).unwrap(),
            tokens,
            "{text:?}"
        );
    }
}

#[test]
fn what_is_said_token_by_token_is_what_python_says_at_once() {
    let vocabulary = Vocabulary::of(tokenizer());
    let texts: Vec<(Vec<u32>, String)> = recorded("decoded");
    assert!(texts.len() >= 40);
    for (tokens, text) in texts {
        let mut decoder = StreamDecoder::new(&vocabulary);
        let mut said: String = tokens.iter().map(|&token| decoder.push(token)).collect();
        said += &decoder.finish();
        assert_eq!(said, text, "{tokens:?}");
    }
    // Characters of four bytes, each a token of its own, and a token that there is not.
    let tokens = tokenizer().encode("👍🏽€", 1, None).unwrap();
    let mut decoder = StreamDecoder::new(&vocabulary);
    let parts: Vec<String> = tokens.iter().map(|&token| decoder.push(token)).collect();
    assert_eq!(parts.concat(), "👍🏽€");
    assert!(parts.iter().any(String::is_empty) && !parts.concat().contains('\u{FFFD}'));
    assert_eq!(decoder.push(1_000_000), "");
}

#[test]
fn a_long_text_in_pieces_is_the_text_as_a_whole() {
    let texts: Vec<(String, Vec<u32>)> = recorded("encoded");
    let mut text = String::new();
    while text.len() < 1 << 18 {
        for (place, (part, _)) in texts.iter().enumerate() {
            text += part;
            text += ["", " ", "word word", "x y \n z", "'s b", "e \u{301}1 2 a"]
                [(text.len() + place) % 6];
        }
    }
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": use_regex});
    let rules = |list: [Value; 2]| json!({"type": "Sequence", "pretokenizers": list});
    let digits = json!({"type": "Digits", "individual_digits": false});
    let mut tokenizers = vec![tokenizer()];
    for rules in pieces::WORDS
        .map(|words| rules([split(words), bytes(false)]))
        .into_iter()
        .chain([rules([digits, bytes(true)])])
    {
        let made = with(|file| {
            file["normalizer"] = json!({"type": "NFC"});
            file["pre_tokenizer"] = rules;
        });
        tokenizers.push(made.unwrap());
    }
    for tokenizer in tokenizers {
        assert!(tokenizer.cuts && pieces::cut(&text).len() >= 3);
        let whole = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
        for threads in [1, 3] {
            assert!(tokenizer.encode(&text, threads, None).unwrap() == whole.get_ids());
        }
    }
    assert_eq!(pieces::cut(""), [""]);
    // Nowhere to cut.
    assert_eq!(pieces::cut(&"a".repeat(1 << 20)).len(), 1);
}

/// A file in which a part was replaced.
fn with(change: impl FnOnce(&mut Value)) -> Result<Tokenizer, String> {
    let mut file: Value = serde_json::from_slice(FILE).unwrap();
    change(&mut file);
    Tokenizer::parse(&serde_json::to_vec(&file).unwrap())
}

#[test]
fn only_what_looks_at_words_alone_is_cut() {
    let cuts = |change: fn(&mut Value)| with(change).unwrap().cuts;
    assert!(cuts(
        |file| file["pre_tokenizer"]["add_prefix_space"] = json!(true)
    ));
    assert!(!cuts(
        |file| file["pre_tokenizer"]["use_regex"] = json!(false)
    ));
    assert!(!cuts(|file| file["pre_tokenizer"] = Value::Null));
    assert!(!cuts(
        |file| file["normalizer"] = json!({"type": "Prepend", "prepend": "x"})
    ));
    assert!(!cuts(|file| {
        let split = json!({"type": "Split", "pattern": {"Regex": r"\w+ \w+"}, "behavior": "Isolated", "invert": false});
        file["pre_tokenizer"] =
            json!({"type": "Sequence", "pretokenizers": [split, file["pre_tokenizer"]]});
    }));
    assert!(!cuts(|file| file["added_tokens"][0]["rstrip"] = json!(true)));
    assert!(!cuts(
        |file| file["added_tokens"][0]["content"] = json!("a b")
    ));
}

#[test]
fn a_vocabulary_of_words_is_said_with_what_stands_between_them() {
    let file = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "?"},
        "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
        "pre_tokenizer": {"type": "Whitespace"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {"?": 0, "pipe": 1, "##s": 2, "drain": 3, ",": 4}},
    });
    let tokenizer = Tokenizer::parse(file.to_string().as_bytes()).unwrap();
    let tokens = tokenizer.encode("pipes, drain drains", 2, None).unwrap();
    // Neither filled up nor cut off.
    assert_eq!(tokens, [1, 2, 4, 3, 3, 2]);
    let vocabulary = Vocabulary::of(tokenizer);
    let mut decoder = StreamDecoder::new(&vocabulary).after(&tokens[..1]);
    let said: Vec<String> = tokens[1..]
        .iter()
        .map(|&token| decoder.push(token))
        .collect();
    assert_eq!(said, ["s", ",", " drain", " drain", "s"]);
    assert_eq!(decoder.finish(), "");
}

/// As of Llama 2: pieces of words, and bytes where there are none.
fn pieces_and_bytes() -> Vocabulary {
    let byte = |byte: u8| format!("<0x{byte:02X}>");
    let pieces = ["<unk>", "▁Hello", "▁world"].map(str::to_owned);
    let pieces = pieces.into_iter().chain((0..=255).map(byte));
    let vocab: serde_json::Map<String, Value> = pieces.zip((0..).map(Value::from)).collect();
    let file = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null, "padding": null,
        "truncation": null, "pre_tokenizer": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                  "vocab": vocab, "merges": []},
    });
    Vocabulary::parse(file.to_string().as_bytes()).unwrap()
}

/// The tokens of the bytes of a text.
fn byte_tokens(text: &str) -> Vec<u32> {
    text.bytes().map(|byte| 3 + u32::from(byte)).collect()
}

/// A model may know more tokens than its tokenizer.
#[test]
fn a_token_that_there_is_not_takes_no_space_of_its_neighbours() {
    let vocabulary = pieces_and_bytes();
    let tokens = [1, 1_000_000, 2, 1_000_001, 2];
    let said = |decoder: &mut StreamDecoder<'_>, tokens: &[u32]| -> Vec<String> {
        tokens.iter().map(|&token| decoder.push(token)).collect()
    };
    let mut decoder = StreamDecoder::new(&vocabulary);
    assert_eq!(
        said(&mut decoder, &tokens).concat(),
        vocabulary.decode(&tokens)
    );
    let mut decoder = StreamDecoder::new(&vocabulary).after(&tokens[..2]);
    assert_eq!(said(&mut decoder, &tokens[2..]), [" world", "", " world"]);
}

/// Of characters that no piece has, each byte is a token, and four are less than two of them.
#[test]
fn a_text_goes_on_after_any_byte_of_its_characters() {
    let vocabulary = pieces_and_bytes();
    let tokens = byte_tokens("中文字€");
    for known in 0..tokens.len() {
        let mut decoder = StreamDecoder::new(&vocabulary).after(&tokens[..known]);
        let mut said: String = tokens[known..]
            .iter()
            .map(|&token| decoder.push(token))
            .collect();
        said += &decoder.finish();
        let left = (tokens.len() - known).div_ceil(3);
        assert_eq!(
            said,
            "中文字€".chars().skip(4 - left).collect::<String>(),
            "{known}"
        );
    }
}

/// The library makes U+FFFD of each byte of a run that is no UTF-8 as a whole, also of characters that came out before.
#[test]
fn no_token_is_lost_beside_bytes_that_are_no_text() {
    let vocabulary = pieces_and_bytes();
    let byte = |byte: u32| 3 + byte;
    let bytes = [0x20, 0x41, 0xFF, 0xE2, 0x82, 0xAC].map(byte);
    let all = [[0, 1, 2].as_slice(), &bytes].concat();
    let count = all.len();
    for number in 0..count.pow(4) {
        let tokens: Vec<u32> = (0..4)
            .map(|place| all[number / count.pow(place) % count])
            .collect();
        let mut decoder = StreamDecoder::new(&vocabulary);
        let mut said: String = tokens.iter().map(|&token| decoder.push(token)).collect();
        said += &decoder.finish();
        let mut runs = tokens.split(|&token| token < byte(0));
        let is_taken_back = runs.any(|run| {
            let run: Vec<u8> = run.iter().map(|&token| (token - byte(0)) as u8).collect();
            std::str::from_utf8(&run).is_err_and(|error| error.valid_up_to() > 0)
        });
        let whole = vocabulary.decode(&tokens);
        match is_taken_back {
            false => assert_eq!(said, whole, "{tokens:?}"),
            true => {
                for word in ["Hello", "world", "<unk>"] {
                    let [of_said, of_whole] =
                        [&said, &whole].map(|text| text.matches(word).count());
                    assert_eq!(of_said, of_whole, "{tokens:?}: {said}");
                }
            }
        }
    }
    let mut decoder = StreamDecoder::new(&vocabulary);
    let said = [1, byte(0x41), byte(0xFF), byte(0x42), 2].map(|token| decoder.push(token));
    assert_eq!(said, ["Hello", "A", "\u{FFFD}", "\u{FFFD}", " world"]);
}

/// The byte is one of the line, so the line is named.
#[test]
fn a_line_of_pairs_that_is_no_text_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let options = SampleOptions {
        source: path("a", b"one\ntwo\n"),
        target: Some(path("b", b"one\ntw\xFFo\n")),
        vocab: 500,
        ..SampleOptions::default()
    };
    let opened = Dataset::open(&options, &Vocabulary::of(tokenizer()));
    let line = opened.err().unwrap().to_string();
    assert!(
        line.starts_with("`data.target = ") && line.contains("`: line 2: byte 2 is no UTF-8"),
        "{line}"
    );
}

mod chats;
mod families;
mod hostile;
