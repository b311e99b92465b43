//! Files that would take memory or time without end are refused by one line that names the part, before
//! the library builds them or while a text is measured.

use super::*;

/// What is said of a file or of a text.
fn said(file: Result<Tokenizer, String>, text: &str) -> String {
    let outcome = file.and_then(|file| file.encode(text, 1, Some(64 << 20)));
    let fault = outcome.expect_err("a fault");
    assert!(!fault.contains('\n') && fault.len() < 600, "{fault}");
    fault
}

fn normalized(rules: Vec<Value>) -> Result<Tokenizer, String> {
    with(|file| file["normalizer"] = json!({"type": "Sequence", "normalizers": rules}))
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
}

#[test]
fn replacements_may_not_multiply_a_text() {
    let five = vec![replace(".", &"a".repeat(100)); 5];
    assert!(said(normalized(five), "text").contains("40000000000 times as much of a text"));
    // Each alone is little, and of most texts so is the product.
    let three = vec![replace("e", &"e".repeat(12)); 3];
    let text = "never ".repeat(1000);
    assert!(said(normalized(three), &text).contains("its rules make"));
    let long = json!({"type": "Prepend", "prepend": "x".repeat(30 << 20)});
    assert!(
        said(normalized(vec![long]), "text").contains("Prepend has a `prepend` of 31457280 bytes")
    );
    // Put before each part between two added tokens.
    let text = "<|endoftext|>a".repeat(1000);
    let before = json!({"type": "Prepend", "prepend": "x".repeat(1000)});
    assert!(said(normalized(vec![before]), &text).contains("its rules make"));
    // Spaces before every piece, twenty times over: a text of one word per byte doubles each time.
    let prefixes = json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "Metaspace", "replacement": "▁"}); 20]});
    let fault = said(with(|file| file["pre_tokenizer"] = prefixes), "text");
    assert!(fault.contains("pre_tokenizer may make"), "{fault}");
    let mut decoder = replace(".", &"x".repeat(1000));
    decoder = json!({"type": "Sequence", "decoders": [decoder]});
    assert!(said(with(|file| file["decoder"] = decoder), "text").contains("its decoder"));
}

/// What is added is normalized when the tokenizer is built.
#[test]
fn added_tokens_may_not_be_multiplied_either() {
    let token = |n: usize| {
        json!({"id": n, "content": format!("<{n:01000}>"), "normalized": true,
            "special": false, "single_word": false, "lstrip": false, "rstrip": false})
    };
    let file = with(|file| {
        file["added_tokens"] = (0..900).map(token).collect();
        file["normalizer"] = replace(".", &"x".repeat(1000));
    });
    assert!(said(file, "text").contains("of the added_tokens"));
}

#[test]
fn a_table_of_sentencepiece_is_as_long_as_it_says() {
    // Text where the length of a trie is expected: 1.1 GiB, of which the library takes eightfold.
    let table = json!({"type": "Precompiled", "precompiled_charsmap": "Z2FyYmFnZQ=="});
    assert!(said(normalized(vec![table]), "text").contains("Precompiled is cut off"));
}

#[test]
fn patterns_are_automata_of_bounded_size() {
    for (pattern, word) in [
        ("a|".repeat(200_000), "pattern of 400000 bytes"),
        (r"(a|a)*(?!x)b".into(), "look-around"),
    ] {
        let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let fault = said(with(|file| file["pre_tokenizer"] = split), "text");
        assert!(fault.contains(word) && fault.contains("Split"), "{fault}");
    }
}

#[test]
fn words_and_pieces_are_short() {
    let words = |limit: u64| {
        with(|file| {
            file["model"] = json!({"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "",
                "max_input_chars_per_word": limit, "vocab": {"?": 0}});
        })
    };
    assert!(words(200).is_ok());
    assert!(
        said(words(1 << 62), "text").contains("max_input_chars_per_word of 4611686018427387904")
    );
    let long = with(|file| {
        let piece = "a".repeat(60_000);
        file["model"] =
            json!({"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], [piece, -1.0]]});
    });
    assert!(said(long, "text").contains("60000 bytes in a token"));
    let prefix = with(|file| {
        file["model"] = json!({"type": "WordPiece", "unk_token": "?", "max_input_chars_per_word": 100,
            "continuing_subword_prefix": "x".repeat(1 << 20), "vocab": {"?": 0}});
    });
    assert!(said(prefix, "text").contains("what goes with a token"));
}

/// The same tokenizer, and room for a part of what its tokens take.
#[test]
fn tokens_must_fit_in_memory() {
    let text = "never two without three ".repeat(50_000);
    let tokenizer = tokenizer();
    for threads in [1, 2] {
        assert!(tokenizer.encode(&text, threads, Some(1 << 30)).is_ok());
    }
    let fault = said(Ok(tokenizer), &text.repeat(100));
    assert!(fault.contains("are there"), "{fault}");
    let whole = with(|file| file["normalizer"] = json!({"type": "NFD"})).unwrap();
    assert!(whole.encode(&text[..1 << 16], 1, Some(64 << 20)).is_ok());
    assert!(said(Ok(whole), &text).contains("the tokens of 1.2MiB need"));
}

#[test]
fn hostile_files_are_one_line() {
    let refused = |file: Result<Tokenizer, String>, word: &str| {
        let fault = file.err().expect("a fault");
        assert!(fault.contains(word) && fault.len() < 600, "{fault}");
    };
    refused(Tokenizer::parse(b""), "cannot be read");
    refused(Tokenizer::parse(&FILE[..FILE.len() / 2]), "cannot be read");
    refused(Tokenizer::parse(b"\xff"), "UTF-8");
    refused(Tokenizer::parse(&b"[".repeat(1 << 20)), "nested");
    let deep = format!(
        r#"{{"normalizer":{}"#,
        r#"{"type":"Sequence","normalizers":["#.repeat(1 << 16)
    );
    refused(Tokenizer::parse(deep.as_bytes()), "nested");
    refused(with(|file| file["model"] = Value::Null), "cannot be read");
    refused(
        with(|file| file["model"]["dropout"] = json!(0.5)),
        "dropout",
    );
    refused(
        with(|file| file["model"]["continuing_subword_prefix"] = json!("é")),
        "continuing_subword_prefix",
    );
    refused(
        with(|file| file["model"]["vocab"] = json!({})),
        "cannot be read",
    );
    refused(
        with(|file| file["model"]["vocab"]["x"] = json!(4294967296_u64)),
        "cannot be read",
    );
    refused(
        with(|file| file["model"]["vocab"]["x"] = json!(-1)),
        "cannot be read",
    );
    let split = json!({"type": "Split", "pattern": {"Regex": "(?:(?:\\w{1000}){1000}){1000}"},
                       "behavior": "Isolated", "invert": false});
    refused(
        with(|file| file["pre_tokenizer"] = split.clone()),
        "too large",
    );
    let many = json!({"type": "Sequence", "pretokenizers": vec![split; 100]});
    refused(with(|file| file["pre_tokenizer"] = many), "rules");
    let unigram = |piece: String| json!({"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [["?", 0.0], [piece, -1.0]]});
    refused(
        with(|file| file["model"] = unigram("x".repeat(5 << 20))),
        "bytes in a token",
    );
    let pieces: Vec<_> = (0..20_000)
        .map(|n| json!([format!("{n:0256}"), -1.0]))
        .collect();
    refused(
        with(|file| file["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": pieces})),
        "bytes of text in its pieces",
    );
    // Two pieces and the token that is added.
    assert_eq!(
        with(|file| file["model"] = unigram("pipe".into()))
            .unwrap()
            .size(),
        3
    );
    assert_eq!(
        with(|file| file["model"]["vocab"]["x"] = json!(u32::MAX))
            .unwrap()
            .size(),
        1 << 32
    );
}
