//! What `config.json` says, what it leaves out, and what is refused in it.

use gpipe_layers::models::{GptConfig, LlamaConfig, MlpConfig, ModelConfig};
use serde_json::Map;

use crate::config_json;
use crate::description::Description;

/// A whole `config.json`, in which a key can be replaced.
fn config_json(change: Option<(&str, &str)>) -> String {
    let mut keys = std::collections::BTreeMap::from([
        ("model_type", "\"gpt2\""),
        ("n_embd", "48"),
        ("n_head", "3"),
        ("n_layer", "5"),
        ("n_positions", "64"),
        ("vocab_size", "256"),
    ]);
    keys.extend(change);
    let keys: Vec<String> = keys
        .iter()
        .map(|(key, value)| format!("\"{key}\":{value}"))
        .collect();
    format!("{{{}}}", keys.join(","))
}

fn gpt(model: ModelConfig) -> GptConfig {
    match model {
        ModelConfig::Gpt(config) => config,
        other => panic!("{other:?}"),
    }
}

fn mlp(model: ModelConfig) -> MlpConfig {
    match model {
        ModelConfig::Mlp(config) => config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_config_json_leaves_out_is_what_the_class_sets() {
    let Description {
        model, one_dropout, ..
    } = config_json::parse(config_json(None).as_bytes()).unwrap();
    let model = gpt(model);
    assert!(one_dropout && model.tied);
    assert_eq!((model.dropout, model.layer_norm_eps), (0.1, 1e-5));
    let other = config_json(Some(("attn_pdrop", "0.2")));
    assert!(!config_json::parse(other.as_bytes()).unwrap().one_dropout);
    let ids = config_json(None).replace(
        '}',
        ",\"bos_token_id\":3,\"eos_token_id\":[3,4],\"pad_token_id\":null}",
    );
    let ids = config_json::parse(ids.as_bytes()).unwrap().ids;
    assert_eq!(
        serde_json::Value::Object(ids),
        serde_json::json!({"bos_token_id": 3, "eos_token_id": [3, 4]})
    );
    let older = config_json(Some(("n_positions", "null"))).replace('}', ",\"n_ctx\":32}");
    assert_eq!(
        gpt(config_json::parse(older.as_bytes()).unwrap().model).context,
        32
    );
}

/// A whole `config.json` of a Llama, with more keys.
fn llama_json(kind: &str, more: &str) -> String {
    format!(
        "{{\"model_type\":\"{kind}\",\"hidden_size\":48,\"num_attention_heads\":4,\
         \"num_key_value_heads\":2,\"num_hidden_layers\":5,\"intermediate_size\":70,\
         \"vocab_size\":256{more}}}"
    )
}

#[test]
fn the_family_of_llama_is_read_and_written_again() {
    for (kind, more, bias, window) in [
        ("llama", "", [false; 3], None),
        (
            "llama",
            r#","attention_bias":true,"mlp_bias":true"#,
            [true; 3],
            None,
        ),
        ("llama", r#","sliding_window":9"#, [false; 3], None),
        ("qwen2", "", [true, false, false], None),
        (
            "qwen2",
            r#","sliding_window":9"#,
            [true, false, false],
            None,
        ),
        (
            "qwen2",
            r#","sliding_window":9,"use_sliding_window":true,"max_window_layers":0"#,
            [true, false, false],
            Some(9),
        ),
        ("qwen3", "", [false; 3], None),
        (
            "qwen3",
            r#","attention_bias":true,"mlp_bias":true,"sliding_window":9,"use_sliding_window":true,"max_window_layers":0"#,
            [true, true, false],
            Some(9),
        ),
        ("mistral", r#","sliding_window":9"#, [false; 3], Some(9)),
        ("mistral", r#","sliding_window":null"#, [false; 3], None),
        // What the class sets.
        ("mistral", "", [false; 3], Some(4096)),
    ] {
        let described = config_json::parse(llama_json(kind, more).as_bytes()).unwrap();
        let ModelConfig::Llama(config) = &described.model else {
            panic!("{described:?}");
        };
        let got = [config.qkv_bias, config.output_bias, config.mlp_bias];
        assert_eq!((got, config.window), (bias, window), "{kind}{more}");
        // Qwen3's class sets the size of heads, the others divide the width.
        let head_size = if kind == "qwen3" { 128 } else { 12 };
        assert_eq!(
            (config.head_size, config.theta, config.tied),
            (head_size, 1e4, false)
        );
        assert_eq!(config.qk_norm, kind == "qwen3");
        let written = config_json::write(&described.model, &described.ids).unwrap();
        assert_eq!(config_json::parse(&written).unwrap(), described);
    }
    for (qk_norm, window, [qkv_bias, output_bias, mlp_bias]) in [
        (true, None, [false, false, true]),
        (true, Some(9), [true, false, false]),
        (false, Some(9), [true, true, false]),
        (false, None, [true, false, true]),
    ] {
        let without = LlamaConfig {
            qk_norm,
            window,
            ..LlamaConfig::default()
        };
        let config = LlamaConfig {
            qkv_bias,
            output_bias,
            mlp_bias,
            ..without.clone()
        };
        let written = |config| config_json::write(&ModelConfig::Llama(config), &Map::new());
        let fault = written(config).unwrap_err().to_string();
        assert!(
            fault.ends_with("leave out qkv_bias, output_bias and mlp_bias"),
            "{fault}"
        );
        written(without).unwrap();
    }
    // A key that is missing is what the class sets, `null` as many as there are heads of queries.
    for (kind, missing) in [("llama", 64), ("qwen2", 32), ("qwen3", 32), ("mistral", 8)] {
        for (value, expected) in [("", missing), (r#""num_key_value_heads":null,"#, 64)] {
            let text = llama_json(kind, r#","head_dim":12"#)
                .replace(r#""num_key_value_heads":2,"#, value)
                .replace(r#""num_attention_heads":4"#, r#""num_attention_heads":64"#);
            let described = config_json::parse(text.as_bytes()).unwrap();
            let ModelConfig::Llama(config) = described.model else {
                panic!("{described:?}");
            };
            assert_eq!((config.heads, config.kv_heads), (64, expected), "{text}");
        }
    }
    for more in [
        r#","rope_theta":5e5,"rope_scaling":null"#,
        r#","rope_parameters":{"rope_type":"default","rope_theta":5e5}"#,
        r#","rope_scaling":{"type":"default","rope_theta":500000},"rope_parameters":{"rope_theta":9.0}"#,
        r#","rope_scaling":{},"rope_parameters":{"rope_type":null,"rope_theta":5e5},"rope_theta":9.0"#,
    ] {
        let described = config_json::parse(llama_json("llama", more).as_bytes()).unwrap();
        assert!(matches!(described.model, ModelConfig::Llama(config) if config.theta == 5e5));
    }
    // Of Gemma 3: what the class sets; a pattern by its number and by its list; bases as versions before 5 and since have them.
    let gemma = |more: &str| {
        let scalar = match more.contains("query_pre_attn_scalar") {
            true => "",
            false => r#","query_pre_attn_scalar":12"#,
        };
        let text = llama_json("gemma3_text", &format!(r#","head_dim":12{scalar}{more}"#));
        config_json::parse(text.as_bytes())
    };
    let list = r#","layer_types":["sliding_attention","full_attention","sliding_attention","full_attention","sliding_attention"]"#;
    for (more, window, every, [theta, window_theta], scaling) in [
        ("", Some(4096), Some(6), [1e6, 1e4], "none"),
        (
            r#","sliding_window":9,"sliding_window_pattern":2,"rope_theta":5e5,"rope_local_base_freq":5e3"#,
            Some(9),
            Some(2),
            [5e5, 5e3],
            "none",
        ),
        (list, Some(4096), Some(2), [1e6, 1e4], "none"),
        (
            r#","sliding_window_pattern":1"#,
            None,
            None,
            [1e6, 1e4],
            "none",
        ),
        (
            r#","layer_types":["full_attention","full_attention","full_attention","full_attention","full_attention"],"sliding_window":null"#,
            None,
            None,
            [1e6, 1e4],
            "none",
        ),
        (
            r#","layer_types":["sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention"],"rope_scaling":{"rope_type":"linear","factor":8.0}"#,
            Some(4096),
            Some(6),
            [1e6, 1e4],
            "linear:8",
        ),
        (
            r#","rope_parameters":{"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":5e5},"sliding_attention":{"rope_theta":7e3}}"#,
            Some(4096),
            Some(6),
            [5e5, 7e3],
            "linear:8",
        ),
        (
            r#","rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":5e5}},"rope_scaling":{"rope_type":"linear","factor":8.0}"#,
            Some(4096),
            Some(6),
            [5e5, 1e4],
            "linear:8",
        ),
    ] {
        let described = gemma(more).unwrap();
        let ModelConfig::Llama(config) = &described.model else {
            panic!("{described:?}");
        };
        assert!(config.gemma && config.tied && !config.qk_norm);
        assert_eq!(
            (config.window, config.full_every),
            (window, every),
            "{more}"
        );
        assert_eq!(
            [config.theta, config.window_theta],
            [theta, window_theta],
            "{more}"
        );
        assert_eq!(config.rope_scaling.to_string(), scaling);
        let written = config_json::write(&described.model, &described.ids).unwrap();
        assert_eq!(config_json::parse(&written).unwrap(), described);
        described.model.layers().unwrap();
    }
    for (more, named) in [
        (
            r#","query_pre_attn_scalar":168"#,
            "query_pre_attn_scalar is 168",
        ),
        (r#","hidden_activation":"gelu""#, "hidden_activation"),
        (
            r#","final_logit_softcapping":30.0"#,
            "final_logit_softcapping is 30",
        ),
        (
            r#","use_bidirectional_attention":true"#,
            "use_bidirectional_attention",
        ),
        (r#","sliding_window_pattern":0"#, "sliding_window_pattern"),
        (r#","sliding_window":null"#, "has no `sliding_window`"),
        (
            r#","layer_types":["full_attention","sliding_attention","full_attention","full_attention","full_attention"]"#,
            "layer_types",
        ),
        (
            r#","rope_local_base_freq":0.0"#,
            "rope_local_base_freq is 0",
        ),
        (
            r#","rope_parameters":{"sliding_attention":{"rope_type":"linear","factor":2.0}}"#,
            "rope_type of sliding_attention",
        ),
        (
            r#","rope_parameters":{"full_attention":{"rope_type":"yarn"}}"#,
            "`yarn`",
        ),
        (r#","rope_parameters":[]"#, "rope_parameters is no object"),
    ] {
        let fault = gemma(more).unwrap_err();
        assert!(fault.contains(named) && !fault.contains('\n'), "{fault}");
    }
    // Positions that a model was first trained with are its own, those beside the object or all of them.
    for (more, scaling) in [
        (
            r#","rope_scaling":{"type":"linear","factor":2}"#,
            "linear:2",
        ),
        (
            r#","original_max_position_embeddings":9,"rope_scaling":{LLAMA3,"original_max_position_embeddings":5}"#,
            "llama3:8,1,4,9",
        ),
        (
            r#","rope_scaling":{LLAMA3,"original_max_position_embeddings":5}"#,
            "llama3:8,1,4,5",
        ),
        (
            r#","rope_parameters":{LLAMA3,"rope_theta":1e4}"#,
            "llama3:8,1,4,2048",
        ),
        (
            r#","max_position_embeddings":77,"rope_scaling":{LLAMA3}"#,
            "llama3:8,1,4,77",
        ),
    ] {
        let llama3 =
            r#""rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0"#;
        let text = llama_json("llama", &more.replace("LLAMA3", llama3));
        let described = config_json::parse(text.as_bytes()).unwrap();
        let ModelConfig::Llama(config) = &described.model else {
            panic!("{described:?}");
        };
        assert_eq!(config.rope_scaling.to_string(), scaling);
        let written = config_json::write(&described.model, &described.ids).unwrap();
        assert_eq!(config_json::parse(&written).unwrap(), described);
    }
    for (kind, more, named) in [
        ("llama", r#","rope_scaling":{"type":"yarn"}"#, "`yarn`"),
        (
            "llama",
            r#","rope_scaling":{"type":"linear"}"#,
            "rope_scaling has no `factor`",
        ),
        (
            "llama",
            r#","rope_scaling":{"type":"linear","factor":0.5}"#,
            "rope_scaling: turns slower by a factor of 0.5",
        ),
        (
            "llama",
            r#","rope_parameters":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":1}"#,
            "rope_parameters: turns slower below 1",
        ),
        (
            "llama",
            r#","rope_parameters":{"rope_type":"llama3","original_max_position_embeddings":2.5}"#,
            "original_max_position_embeddings in rope_parameters is no whole number",
        ),
        ("llama", r#","rope_scaling":"linear""#, "rope_scaling is no"),
        ("llama", r#","rope_parameters":[]"#, "rope_parameters is no"),
        (
            "llama",
            r#","rope_parameters":{"rope_type":5}"#,
            "rope_type",
        ),
        (
            "llama",
            r#","rope_parameters":{"rope_theta":"500000"}"#,
            "rope_theta",
        ),
        (
            "qwen2",
            r#","rope_parameters":{"full_attention":{"rope_type":"yarn","rope_theta":9.0}}"#,
            "`full_attention`",
        ),
        ("llama", r#","hidden_act":"gelu""#, "hidden_act"),
        ("llama", r#","head_dim":7"#, "head_dim"),
        ("llama", r#","rms_norm_eps":-1"#, "rms_norm_eps"),
        (
            "llama",
            r#","quantization_config":{}"#,
            "quantization_config",
        ),
        (
            "qwen2",
            r#","sliding_window":9,"use_sliding_window":true,"max_window_layers":3"#,
            "sliding_window",
        ),
        (
            "mistral",
            r#","layer_types":["full_attention","chunked_attention"]"#,
            "layer_types",
        ),
        (
            "mistral",
            r#","layer_types":["sliding_attention"]"#,
            "layer_types has 1 of num_hidden_layers = ",
        ),
    ] {
        let fault = config_json::parse(llama_json(kind, more).as_bytes()).unwrap_err();
        assert!(fault.contains(named) && !fault.contains('\n'), "{fault}");
    }
}

#[test]
fn a_value_of_another_type_is_refused_by_the_name_of_its_key() {
    for (key, value) in [("n_layer", "5.0"), ("n_embd", "-1"), ("n_head", "\"3\"")] {
        let fault = config_json::parse(config_json(Some((key, value))).as_bytes()).unwrap_err();
        assert!(
            fault.starts_with(&format!("{key} cannot be read: invalid ")),
            "{fault}"
        );
    }
    let fault = config_json::parse(b"[]").unwrap_err();
    assert!(fault.contains("an object"), "{fault}");
    // The keys of other models may have values of other types.
    let segformer = br#"{"model_type":"segformer","num_attention_heads":[1,2,5,8]}"#;
    let fault = config_json::parse(segformer).unwrap_err();
    assert!(fault.starts_with("model_type is `segformer`"), "{fault}");
}

#[test]
fn a_hostile_config_json_is_refused_by_the_name_of_its_key() {
    let deep = "[".repeat(100_000);
    let huge = "9".repeat(400);
    let long = format!("\"{}\"", "x".repeat(100_000));
    let changes = [
        ("model_type", "\"bert\""),
        ("model_type", "null"),
        ("model_type", long.as_str()),
        ("n_layer", "1431655766"),
        ("n_layer", "1000000000"),
        ("n_layer", "0"),
        ("n_layer", "null"),
        ("n_layer", "18446744073709551615"),
        ("n_embd", "0"),
        ("n_embd", "4294967296"),
        ("n_head", "0"),
        ("n_head", "5"),
        ("n_head", "4294967295"),
        ("n_positions", "0"),
        ("n_positions", "99999999999"),
        ("vocab_size", "0"),
        ("vocab_size", "4294967296"),
        ("n_inner", "191"),
        ("n_inner", "0"),
        ("activation_function", "\"relu\""),
        ("activation_function", long.as_str()),
        ("layer_norm_epsilon", "-1e-5"),
        ("layer_norm_epsilon", "1e300"),
        ("embd_pdrop", "1"),
        ("embd_pdrop", "0.99999999"),
        ("attn_pdrop", "-0.1"),
        ("resid_pdrop", "1e300"),
        ("scale_attn_weights", "false"),
        ("scale_attn_by_inverse_layer_idx", "true"),
        ("reorder_and_upcast_attn", "true"),
        ("add_cross_attention", "true"),
        ("is_encoder_decoder", "true"),
        ("quantization_config", "{\"bits\":4}"),
    ];
    for (key, value) in changes {
        let text = config_json(Some((key, value)));
        let fault = config_json::parse(text.as_bytes()).expect_err(key);
        assert!(fault.contains(key) && fault.len() < 400, "{key}: {fault}");
    }
    // What is no JSON has a place instead of a name.
    for value in [
        "-1",
        "5.5",
        "1e3",
        "\"5\"",
        "[5]",
        "{}",
        "true",
        &huge,
        &deep,
        "5,\"n_layer\":5",
        "",
    ] {
        let text = config_json(Some(("n_layer", value)));
        let fault = config_json::parse(text.as_bytes()).expect_err(&value[..value.len().min(20)]);
        assert!(
            fault.contains("cannot be read") && fault.len() < 400,
            "{fault}"
        );
    }
    let others = [
        &b""[..],
        b"{",
        b"[]",
        b"null",
        b"\xFF\xFE{}",
        b"{}{}",
        b"\"gpt2\"",
        b"{\"layer_norm_epsilon\":1e999}",
    ];
    for bytes in others {
        assert!(config_json::parse(bytes).is_err());
    }
}

/// A whole `config.json` of a perceptron, in which a key can be replaced.
fn mlp_json(change: Option<(&str, &str)>) -> String {
    let mut keys = std::collections::BTreeMap::from([
        ("model_type", "\"mlp\""),
        ("hidden_act", "\"relu\""),
        ("hidden_dropout_prob", "0.25"),
        ("hidden_sizes", "[7,3]"),
        ("input_size", "5"),
        ("num_labels", "2"),
    ]);
    keys.extend(change);
    let keys: Vec<String> = keys
        .iter()
        .map(|(key, value)| format!("\"{key}\":{value}"))
        .collect();
    format!("{{{}}}", keys.join(","))
}

#[test]
fn a_perceptron_has_the_sizes_that_its_file_says() {
    let read = |text: String| mlp(config_json::parse(text.as_bytes()).unwrap().model);
    let model = read(mlp_json(None));
    assert_eq!((model.inputs, model.outputs), (5, 2));
    assert_eq!((model.hidden, model.dropout), (vec![7, 3], 0.25));
    assert_eq!(
        read(mlp_json(Some(("hidden_dropout_prob", "null")))).dropout,
        0.0
    );
    let changes = [
        ("input_size", "0"),
        ("input_size", "null"),
        ("input_size", "4294967296"),
        ("num_labels", "0"),
        ("num_labels", "null"),
        ("num_labels", "4294967296"),
        ("hidden_act", "\"gelu\""),
        ("hidden_act", "null"),
        ("hidden_sizes", "[]"),
        ("hidden_sizes", "null"),
        ("hidden_sizes", "[8,0]"),
        ("hidden_sizes", "[4294967296]"),
        ("hidden_dropout_prob", "1"),
        ("hidden_dropout_prob", "-0.1"),
        ("hidden_dropout_prob", "0.99999999"),
    ];
    for (key, value) in changes {
        let text = mlp_json(Some((key, value)));
        let fault = config_json::parse(text.as_bytes()).expect_err(key);
        assert!(fault.contains(key) && fault.len() < 400, "{key}: {fault}");
    }
    let many = format!("[{}1]", "1,".repeat(10_000));
    let text = mlp_json(Some(("hidden_sizes", &many)));
    assert!(config_json::parse(text.as_bytes()).is_err());
}
