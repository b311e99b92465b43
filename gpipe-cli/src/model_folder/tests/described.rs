//! What `config.json` says, what it leaves out, and what is refused in it.

use super::super::{Architecture, Description, config_json};

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

#[test]
fn what_config_json_leaves_out_is_what_the_class_sets() {
    let Description {
        model, one_dropout, ..
    } = config_json::parse(config_json(None).as_bytes()).unwrap();
    let gpt = |description: Architecture| match description {
        Architecture::Gpt(model) => model,
        other => panic!("{other:?}"),
    };
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
        ("embd_pdrop", "1"),
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
    // What cannot be read at all has a place instead of a name.
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
