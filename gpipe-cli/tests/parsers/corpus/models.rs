//! What a folder says of a model, and of the files that its weights are in.

use super::{Hostile, hostile};

pub fn all() -> Vec<Hostile> {
    let with = |key: &str, value: &str| {
        let mut keys = vec![
            ("model_type", "\"gpt2\""),
            ("n_embd", "8"),
            ("n_layer", "2"),
            ("n_head", "2"),
            ("n_positions", "4"),
            ("vocab_size", "9"),
        ];
        keys.retain(|(known, _)| *known != key);
        keys.push((key, value));
        let keys: Vec<String> = keys
            .iter()
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("{{{}}}", keys.join(","))
    };
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    let ids = format!("[{}]", "1,".repeat(100_000) + "1");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut list: Vec<Hostile> = [
        ("n_layer", "1000000000"),
        ("n_embd", "18446744073709551615"),
        ("n_head", "3"),
        ("n_head", "0"),
        ("vocab_size", "0"),
        ("model_type", &long),
        ("activation_function", &long),
        ("layer_norm_epsilon", "-1"),
        ("embd_pdrop", "1e308"),
        ("quantization_config", "{\"bits\":4}"),
        ("bos_token_id", "\"<s>\""),
        ("eos_token_id", "1.5"),
        ("eos_token_id", "[[1]]"),
        ("eos_token_id", &ids),
        ("pad_token_id", "{}"),
    ]
    .into_iter()
    .map(|(key, value)| {
        let what = format!("{key} of {value:.40}");
        let word = if value == long {
            "is `xxx"
        } else {
            "config.json"
        };
        hostile("model config", what, with(key, value), word)
    })
    .collect();
    let config = |what: &str, text: &str| hostile("model config", what, text, "config.json");
    list.extend([
        config("nothing", ""),
        config("a list", "[]"),
        config("nesting", &deep),
        // A key that means nothing here.
        hostile(
            "model config",
            "nesting under a key",
            with("task_specific_params", &deep),
            "",
        ),
        config("half a surrogate", &with("model_type", "\"\\ud800\"")),
        config("a number beyond numbers", &with("n_layer", "1e999")),
        config("something after the end", &(with("x", "1") + "{}")),
    ]);
    let index = |what: &str, text: &str| hostile("weights index", what, text, "index.json");
    list.extend(
        [
            "/x.safetensors",
            "../x.safetensors",
            "a\\\\x.safetensors",
            ".safetensors",
            "x.bin",
            "x.safetensors\\n",
        ]
        .map(|file| {
            index(
                &format!("the file `{file}`"),
                &format!(r#"{{"weight_map":{{"a":"{file}"}}}}"#),
            )
        }),
    );
    list.extend([
        index("nothing", ""),
        index("no map", "{}"),
        index("two maps", r#"{"weight_map":{},"weight_map":{}}"#),
        index(
            "a tensor in two files",
            r#"{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}"#,
        ),
        index("a file that is a number", r#"{"weight_map":{"a":1}}"#),
        index("a map that is a list", r#"{"weight_map":[]}"#),
        index("maps in maps", &r#"{"weight_map":"#.repeat(100_000)),
        index(
            "a name of a megabyte",
            &format!(r#"{{"weight_map":{{"a":{long}}}}}"#),
        ),
        index(
            "nesting under a key",
            &format!(r#"{{"metadata":{deep},"weight_map":[]}}"#),
        ),
    ]);
    list
}
