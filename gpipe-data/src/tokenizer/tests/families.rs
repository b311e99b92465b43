//! The structures of the tokenizers that are in use are read: the rules of each family, on small tables.

use super::*;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz,.'";
const TEXT: &str = "it's a pipe, and the pipe has no end.";

/// A file of the other parts, if there are any, and tables.
fn file(parts: Value, model: Value) -> Value {
    let mut file = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": model});
    for (key, part) in parts.as_object().unwrap() {
        file[key] = part.clone();
    }
    file
}

fn replace(pattern: &str, kind: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {kind: pattern}, "content": content})
}

/// Pieces with scores: a letter each, and one that begins a word.
fn unigram() -> Value {
    let letters = LETTERS
        .chars()
        .map(|letter| json!([letter.to_string(), -3.0]));
    let pieces: Vec<Value> = [json!(["?", 0.0]), json!(["▁", -2.0]), json!(["▁p", -2.0])]
        .into_iter()
        .chain(letters)
        .collect();
    json!({"type": "Unigram", "unk_id": 0, "vocab": pieces})
}

/// A table of SentencePiece that changes nothing: a trie of 256 empty units.
fn precompiled() -> Value {
    let table = format!("AAQA{}", "AAAA".repeat(342));
    json!({"type": "Precompiled", "precompiled_charsmap": table})
}

#[test]
fn every_family_is_read() {
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": false});
    let tables: Value = serde_json::from_slice(FILE).unwrap();
    let bytes = |normalizer: Value, rules: Vec<Value>| {
        let parts = json!({"normalizer": normalizer, "decoder": tables["decoder"],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": rules}});
        file(parts, tables["model"].clone())
    };
    let words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let split = json!({"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated",
        "invert": false});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let mut with_words = byte_level.clone();
    with_words["use_regex"] = json!(true);

    let letters = LETTERS
        .chars()
        .flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    let vocab: Value = letters
        .zip(1..)
        .map(|(token, id)| (token, json!(id)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let bert = file(
        json!({"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}}),
        json!({"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab}),
    );
    let vocab: Value = ["▁".to_owned(), "▁p".to_owned()]
        .into_iter()
        .chain(LETTERS.chars().map(String::from))
        .zip(0..)
        .map(|(token, id)| (token, json!(id)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let llama = file(
        json!({"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"}, replace(" ", "String", "▁")]},
            "decoder": {"type": "Sequence", "decoders": [replace("▁", "String", " "),
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}),
        json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
            "merges": ["▁ p"]}),
    );
    let sentences =
        json!({"normalizer": precompiled(), "pre_tokenizer": metaspace, "decoder": metaspace});
    let xlnet = json!({"decoder": metaspace,
        "normalizer": {"type": "Sequence", "normalizers": [
            replace("``", "String", "\""), replace("''", "String", "\""), {"type": "NFKD"},
            {"type": "StripAccents"}, {"type": "Lowercase"}, precompiled(),
            replace(" {2,}", "Regex", " ")]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}});
    for (family, file) in [
        ("GPT-2", tables.clone()),
        (
            "Llama 3",
            bytes(Value::Null, vec![split.clone(), byte_level.clone()]),
        ),
        (
            "Qwen 2",
            bytes(json!({"type": "NFC"}), vec![split, byte_level]),
        ),
        ("SmolLM2", bytes(Value::Null, vec![digits, with_words])),
        ("BERT", bert),
        ("Llama 2", llama),
        ("T5", file(sentences, unigram())),
        ("XLNet", file(xlnet, unigram())),
    ] {
        let tokenizer = Tokenizer::parse(file.to_string().as_bytes());
        let tokenizer = tokenizer.unwrap_or_else(|fault| panic!("{family}: {fault}"));
        let tokens = tokenizer.encode(TEXT, 1, Some(1 << 30)).unwrap();
        assert!(tokens.len() > 8, "{family}");
        let said = tokenizer.decode(&tokens);
        assert_eq!(said.replace(' ', ""), TEXT.replace(' ', ""), "{family}");
    }
}
