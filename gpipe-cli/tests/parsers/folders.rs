//! The files of checkpoints and of models in folders, as targets.

use gpipe_cli::parsers;

use super::targets::Target;

/// Signs of JSON.
const JSON: [&str; 16] = [
    "{", "}", "[", "]", ":", ",", "\"", "null", "true", "false", "[[[[[[[[", "{\"a\":", "\\ud800",
    "\\u0000", "1e400", "\u{202e}",
];

/// The parsers of these files.
pub fn all() -> Vec<Target> {
    let mut targets = vec![
        Target {
            name: "manifest",
            seeds: vec![list(&[]), list(&["model/config.json", "model/model.safetensors"])],
            words: &[
                "\"format\"", "\"step\"", "\"files\"", "\"name\"", "\"bytes\"", "\"sha256\"", "\"../x\"", "\"/\"",
                "\"manifest.json\"", "{", "}", "[", "]", ",", ":", "\n}", "\"", "null", "\\u0000", "\u{202e}",
            ],
            run: |bytes| again(bytes, parsers::manifest),
        },
        Target {
            name: "model config",
            seeds: vec![
                include_bytes!("../parity/tokens/model/config.json").to_vec(),
                br#"{"model_type":"gpt2","n_embd":8,"n_layer":2,"n_head":2,"n_ctx":4,"vocab_size":9}"#.to_vec(),
            ],
            words: &[
                "\"model_type\"", "\"gpt2\"", "\"n_embd\"", "\"n_head\"", "\"n_inner\"", "\"gelu\"", "\"eos_token_id\"",
                "\"quantization_config\"", "\"embd_pdrop\"", "{", "}", "[", "]", ",", ":", "\"", "null", "true", "0.5",
                "[[[[[[[[", "\\ud800",
            ],
            run: parsers::model_config,
        },
        Target {
            name: "gguf",
            seeds: vec![gguf()],
            words: &[
                "llama", "gpt2", "rope.scaling.type", "attention.key_length", "token_embd.weight", "blk.0.attn_q.weight",
                "blk.18446744073709551615.ffn_up.weight", "\u{0}\u{0}\u{0}\u{0}", "\u{1}\u{0}\u{0}\u{0}", "\u{8}\u{0}\u{0}\u{0}",
                "\u{9}\u{0}\u{0}\u{0}", "\u{7f}\u{7f}\u{7f}\u{7f}", "GGUF",
            ],
            run: parsers::gguf,
        },
        Target {
            name: "weights index",
            seeds: vec![
                br#"{"metadata":{"total_size":12},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}"#.to_vec(),
                br#"{"weight_map":{}}"#.to_vec(),
            ],
            words: &[
                "\"weight_map\"", "\"metadata\"", ".safetensors", "\"/x.safetensors\"", "\"..\"", "\\u0000", "{", "}", "[",
                "]", ",", ":", "\"", "null", "\\ud800", "{\"a\":", "\u{202e}",
            ],
            run: |bytes| again(bytes, parsers::weights_index),
        },
    ];
    if cfg!(feature = "tokenizers") {
        targets.push(Target {
            name: "tokenizer",
            seeds: tokenizers(),
            words: TOKENIZER,
            run: parsers::tokenizer,
        });
    }
    targets
}

const TOKENIZER: &[&str] = &[
    "\"normalizer\"",
    "\"pre_tokenizer\"",
    "\"decoder\"",
    "\"model\"",
    "\"vocab\"",
    "\"merges\"",
    "\"type\"",
    "\"BPE\"",
    "\"ByteLevel\"",
    "\"Metaspace\"",
    "\"WordPiece\"",
    "\"Unigram\"",
    "\"Sequence\"",
    "\"Split\"",
    "\"Regex\"",
    "\"String\"",
    "\"NFC\"",
    "\"Precompiled\"",
    "\"Strip\"",
    "\"ByteFallback\"",
    "\"continuing_subword_prefix\"",
    "\"unk_token\"",
    "\"dropout\"",
    "\"byte_fallback\"",
    "\"end_of_word_suffix\"",
    "\u{e9}",
    "\u{120}",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "false",
    "(?=",
    "\\\\p{L}+",
    "*",
    "[[[[[[[[",
    "\\ud800",
];

/// What was understood can be written, and understood again as the same.
fn again(bytes: &[u8], parse: fn(&[u8]) -> Result<String, String>) -> Result<String, String> {
    let written = parse(bytes)?;
    assert_eq!(parse(written.as_bytes()).as_ref(), Ok(&written));
    Ok(written)
}

/// The list of a checkpoint with more files than it must have.
fn list(more: &[&str]) -> Vec<u8> {
    let names = ["config.toml", "state.json", "optimizer.safetensors"];
    let files: Vec<String> = names
        .iter()
        .chain(more)
        .map(|name| {
            format!(
                "    {{\"name\": \"{name}\", \"bytes\": 3, \"sha256\": \"{}\"}}",
                "0f".repeat(32)
            )
        })
        .collect();
    format!(
        "{{\n  \"format\": \"gpipe checkpoint 1\",\n  \"step\": 7,\n  \"files\": [\n{}\n  ]\n}}",
        files.join(",\n")
    )
    .into_bytes()
}

/// The header of a model of one block, and its first tensor.
fn gguf() -> Vec<u8> {
    let number = |value: u32| value.to_le_bytes().to_vec();
    let long = |value: usize| (value as u64).to_le_bytes().to_vec();
    let text = |text: &str| [long(text.len()), text.into()].concat();
    let texts = |key: &str, all: &[&str]| {
        let all: Vec<u8> = all.iter().flat_map(|one| text(one)).collect();
        [text(key), number(9), number(8), long(all.len() / 9), all].concat()
    };
    let word = |key: &str, value: &str| [text(key), number(8), text(value)].concat();
    let whole = |key: &str, value| [text(key), number(4), number(value)].concat();
    [
        [b"GGUF".to_vec(), number(3), long(1), long(13)].concat(),
        word("general.architecture", "llama"),
        whole("llama.block_count", 1),
        whole("llama.context_length", 8),
        whole("llama.embedding_length", 32),
        whole("llama.feed_forward_length", 10),
        whole("llama.attention.head_count", 2),
        whole("llama.attention.head_count_kv", 1),
        [
            text("llama.attention.layer_norm_rms_epsilon"),
            number(6),
            number(1e-5_f32.to_bits()),
        ]
        .concat(),
        word("tokenizer.ggml.model", "gpt2"),
        word("tokenizer.ggml.pre", "smollm"),
        // Each of one byte, and of nine with its length.
        texts("tokenizer.ggml.tokens", &["a", "b", "c"]),
        texts("tokenizer.ggml.merges", &[]),
        whole("tokenizer.ggml.eos_token_id", 0),
        [
            text("token_embd.weight"),
            number(2),
            long(32),
            long(3),
            number(0),
            long(0),
        ]
        .concat(),
        vec![0; 4 * 32 * 3 + 32],
    ]
    .concat()
}

/// Small ones of every kind of model, with rules of many kinds.
fn tokenizers() -> Vec<Vec<u8>> {
    let file = |rules: &str, model: &str| {
        format!("{{\"version\":\"1.0\",{rules},\"model\":{model}}}").into_bytes()
    };
    let bpe = r#"{"type":"BPE","dropout":null,"unk_token":"?","continuing_subword_prefix":null,"end_of_word_suffix":null,
        "fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
        "vocab":{"?":0,"t":1,"h":2,"e":3,"p":4,"i":5,"\u0120":6,"th":7,"the":8,"\u0120p":9},
        "merges":[["t","h"],["th","e"],["\u0120","p"]]}"#;
    let added = r#""added_tokens":[{"id":10,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":true,
        "normalized":false,"special":true}]"#;
    vec![
        file(
            &format!(
                r#"{added},"normalizer":null,"pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,
                "trim_offsets":true,"use_regex":true}},"post_processor":null,
                "decoder":{{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}}"#
            ),
            bpe,
        ),
        file(
            r#""normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"},
                {"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]},
                "pre_tokenizer":{"type":"Split","pattern":{"String":"\u2581"},"behavior":"MergedWithNext","invert":false},
                "decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},
                {"type":"Strip","content":" ","start":1,"stop":0}]}"#,
            r#"{"type":"BPE","unk_token":"<0x00>","byte_fallback":true,"vocab":{"<0x00>":0,"<0xC3>":1,"\u2581":2},"merges":[]}"#,
        ),
        file(
            r#""normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,
                "lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},
                "decoder":{"type":"WordPiece","prefix":"\u0023\u0023","cleanup":true}"#,
            r#"{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"\u0023\u0023","max_input_chars_per_word":9,
                "vocab":{"?":0,"the":1,"pipe":2,"\u0023\u0023s":3}}"#,
        ),
        file(
            r#""normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always",
                "split":true},"decoder":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always","split":true}"#,
            r#"{"type":"Unigram","unk_id":0,"byte_fallback":false,"vocab":[["?",0.0],["\u2581the",-1.5],["\u2581p",-2.0]]}"#,
        ),
        file(
            r#""pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Digits",
                "individual_digits":true},{"type":"Punctuation","behavior":"Isolated"}]},"decoder":null"#,
            r#"{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"the":1}}"#,
        ),
    ]
}

#[test]
fn signs_of_json_reach_every_one_of_them() {
    for target in all() {
        for sign in JSON {
            assert!(
                (target.run)(sign.as_bytes()).is_err(),
                "{} took {sign}",
                target.name
            );
        }
    }
}
