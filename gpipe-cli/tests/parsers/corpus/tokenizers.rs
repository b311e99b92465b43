//! Tokenizers: programs in JSON, that a stranger wrote.

use super::{Hostile, hostile};

const MODEL: &str = r#"{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}"#;

pub fn all() -> Vec<Hostile> {
    let with = |rules: &str, model: &str| {
        let comma = if rules.is_empty() { "" } else { "," };
        format!(r#"{{"version":"1.0"{comma}{rules},"model":{model}}}"#)
    };
    let one = |what: &str, text: String| hostile("tokenizer", what, text, "tokenizer.json");
    let rules = |what: &str, rules: &str| one(what, with(rules, MODEL));
    let model = |what: &str, model: &str| one(what, with("", model));
    let split = |pattern: &str| {
        format!(
            r#"{{"type":"Split","pattern":{{"Regex":"{pattern}"}},"behavior":"Isolated","invert":false}}"#
        )
    };
    let large = split("(?:(?:\\\\w{1000}){1000}){1000}");
    let vocab = |entries: &str| format!(r#"{{"type":"BPE","vocab":{{{entries}}},"merges":[]}}"#);
    let mut list = vec![
        one("nothing", String::new()),
        one("a list", "[]".into()),
        one("lists in lists", "[".repeat(1 << 20)),
        one("no model", r#"{"version":"1.0"}"#.into()),
        one("two models", with(&format!(r#""model":{MODEL}"#), MODEL)),
        one(
            "a version of tomorrow",
            with("", MODEL).replace("1.0", "9.0"),
        ),
        one("half of it", with("", MODEL)[..40].into()),
        hostile("tokenizer", "no text", [0xff; 64], "UTF-8"),
        hostile("tokenizer", "UTF-16", [0xff, 0xfe, 0x7b, 0x00], "UTF-8"),
        rules(
            "sequences in sequences",
            &format!(
                r#""normalizer":{}null{}"#,
                r#"{"type":"Sequence","normalizers":["#.repeat(10_000),
                "]}".repeat(10_000)
            ),
        ),
        rules(
            "a pattern that is none",
            &format!(r#""pre_tokenizer":{}"#, split("(")),
        ),
        rules(
            "a pattern that is too large",
            &format!(r#""pre_tokenizer":{large}"#),
        ),
        rules(
            "a thousand patterns",
            &format!(
                r#""pre_tokenizer":{{"type":"Sequence","pretokenizers":[{}]}}"#,
                vec![split("a"); 1000].join(",")
            ),
        ),
        rules(
            "a rule of tomorrow",
            r#""pre_tokenizer":{"type":"Telepathy"}"#,
        ),
        rules("a rule that is a number", r#""decoder":7"#),
        rules(
            "a table that is no base64",
            r#""normalizer":{"type":"Precompiled","precompiled_charsmap":"!"}"#,
        ),
        rules(
            "a table that is cut off",
            r#""normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="}"#,
        ),
        rules(
            "an added token without a text",
            r#""added_tokens":[{"id":3}]"#,
        ),
        rules("added tokens that are no list", r#""added_tokens":{}"#),
        model("a model of tomorrow", r#"{"type":"Oracle"}"#),
        model("no vocabulary", r#"{"type":"BPE","merges":[]}"#),
        model("an empty vocabulary", &vocab("")),
        model("a negative token", &vocab(r#""a":-1"#)),
        model("half a token", &vocab(r#""a":0.5"#)),
        model("a token beyond 32 bits", &vocab(r#""a":4294967296"#)),
        model("a token that is a text", &vocab(r#""a":"1""#)),
        model(
            "a merge of what there is not",
            r#"{"type":"BPE","vocab":{"a":0},"merges":[["a","z"]]}"#,
        ),
        model(
            "a merge of one",
            r#"{"type":"BPE","vocab":{"a":0},"merges":["a"]}"#,
        ),
        model(
            "merges that make nothing known",
            r#"{"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]}"#,
        ),
        model(
            "a prefix that ends within a character",
            r#"{"type":"BPE","continuing_subword_prefix":"x","vocab":{"a":0,"é":1},"merges":[["a","é"]]}"#,
        ),
        model(
            "a prefix that is longer than the token",
            r#"{"type":"BPE","continuing_subword_prefix":"long","vocab":{"a":0,"b":1},"merges":[["a","b"]]}"#,
        ),
        model(
            "chance",
            r#"{"type":"BPE","dropout":0.5,"vocab":{"a":0},"merges":[]}"#,
        ),
        model(
            "an unknown that there is not",
            r#"{"type":"Unigram","unk_id":7,"vocab":[["a",0.0]]}"#,
        ),
        model(
            "scores that are none",
            r#"{"type":"Unigram","unk_id":0,"vocab":[["a",1e999]]}"#,
        ),
    ];
    // Odd, but it means something.
    for (what, text) in [
        (
            "the largest token there can be",
            with("", &vocab(r#""a":4294967295"#)),
        ),
        ("one token twice", with("", &vocab(r#""a":0,"b":0"#))),
        ("one text twice", with("", &vocab(r#""a":0,"a":1"#))),
        (
            "padding to a million",
            with(
                r#""padding":{"strategy":{"Fixed":1000000000},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,
               "pad_type_id":0,"pad_token":"a"}"#,
                MODEL,
            ),
        ),
        (
            "cutting off everything",
            with(
                r#""truncation":{"direction":"Right","max_length":0,"strategy":"LongestFirst","stride":0}"#,
                MODEL,
            ),
        ),
        (
            "a pattern that tries everything",
            with(
                &format!(r#""pre_tokenizer":{}"#, split("(a|a|b?)*(?=z)c")),
                MODEL,
            ),
        ),
        (
            "nothing is unknown",
            with(
                "",
                r#"{"type":"WordLevel","vocab":{"a":0},"unk_token":"z"}"#,
            ),
        ),
        (
            "words of no length",
            with(
                "",
                r#"{"type":"WordPiece","unk_token":"z","continuing_subword_prefix":"",
            "max_input_chars_per_word":0,"vocab":{"a":0}}"#,
            ),
        ),
    ] {
        list.push(hostile("tokenizer", what, text, ""));
    }
    list
}
