//! GGUF files: what is read, and what is refused.

use gpipe_layers::models::ModelConfig;
use gpipe_tensor::{DeviceId, Host};

use super::header::{Header, Value};
use super::*;

mod damaged;
mod positions;

/// A file in the making.
#[derive(Clone, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
        self
    }

    fn whole(&mut self, key: &str, number: u32) -> &mut Self {
        self.text(key).u32(4).u32(number)
    }

    fn texts(&mut self, key: &str, texts: &[&str]) -> &mut Self {
        self.text(key).u32(9).u32(8).u64(texts.len() as u64);
        for text in texts {
            self.text(text);
        }
        self
    }

    fn tensor(&mut self, name: &str, shape: &[u64], kind: u32, offset: u64) -> &mut Self {
        self.text(name).u32(shape.len() as u32);
        for &extent in shape {
            self.u64(extent);
        }
        self.u32(kind).u64(offset)
    }
}

fn begin(tensors: u64, pairs: u64) -> Writer {
    let mut file = Writer(b"GGUF".to_vec());
    file.u32(3).u64(tensors).u64(pairs);
    file
}

/// Parameters of a block as the file has them: name and extents, the innermost first.
const TENSORS: [(&str, &[u64]); 11] = [
    ("token_embd.weight", &[32, 4]),
    ("output_norm.weight", &[32]),
    ("blk.0.attn_norm.weight", &[32]),
    ("blk.0.attn_q.weight", &[32, 16]),
    ("blk.0.attn_k.weight", &[32, 8]),
    ("blk.0.attn_v.weight", &[32, 8]),
    ("blk.0.attn_output.weight", &[16, 32]),
    ("blk.0.ffn_norm.weight", &[32]),
    ("blk.0.ffn_gate.weight", &[32, 10]),
    ("blk.0.ffn_up.weight", &[32, 10]),
    ("blk.0.ffn_down.weight", &[10, 32]),
];

/// The whole file of a model of one block.
fn model() -> Writer {
    with_tensors(&TENSORS)
}

/// The same with these tensors, element i of the q-th q + i/1000.
fn with_tensors(tensors: &[(&str, &[u64])]) -> Writer {
    of_architecture("llama", tensors)
}

/// [`with_tensors`] of a relative of Llama.
fn of_architecture(architecture: &str, tensors: &[(&str, &[u64])]) -> Writer {
    let mut file = begin(tensors.len() as u64, 15);
    file.text("general.architecture").u32(8).text(architecture);
    for (key, number) in [
        ("block_count", 1),
        ("context_length", 8),
        ("embedding_length", 32),
        ("feed_forward_length", 10),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 8),
    ] {
        file.whole(&format!("{architecture}.{key}"), number);
    }
    file.text(&format!("{architecture}.attention.layer_norm_rms_epsilon"))
        .u32(6)
        .u32(1e-5f32.to_bits());
    file.text("tokenizer.ggml.model").u32(8).text("gpt2");
    file.text("tokenizer.ggml.pre").u32(8).text("smollm");
    file.texts("tokenizer.ggml.tokens", &["<|end|>", "a", "b", "ab"]);
    file.texts("tokenizer.ggml.merges", &["a b"]);
    file.text("tokenizer.ggml.token_type").u32(9).u32(5).u64(4);
    file.u32(3).u32(1).u32(1).u32(1);
    file.whole("tokenizer.ggml.eos_token_id", 0);
    let mut data = Vec::new();
    for (number, (name, shape)) in tensors.iter().enumerate() {
        file.tensor(name, shape, 0, data.len() as u64);
        let elements = shape.iter().product::<u64>();
        data.extend((0..elements).flat_map(|i| (number as f32 + i as f32 / 1e3).to_le_bytes()));
        data.resize(data.len().next_multiple_of(32), 0);
    }
    file.0.resize(file.0.len().next_multiple_of(32), 0);
    file.0.extend(data);
    file
}

#[test]
fn a_model_is_read_with_halves_of_heads_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, model().0).unwrap();
    let described = crate::read_config(&path).unwrap();
    let ModelConfig::Llama(config) = &described.model else {
        panic!("{described:?}");
    };
    assert_eq!((config.heads, config.kv_heads, config.head_size), (2, 1, 8));
    assert_eq!((config.vocab, config.tied, config.theta), (4, true, 1e4));
    assert_eq!(described.ids["eos_token_id"], 0);
    let mut layers = described.model.layers().unwrap();
    let shapes = crate::parameter_shapes(&mut layers);
    let weights = crate::Weights::open(&path, &shapes).unwrap();
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    let rows = |name: &str| {
        let tensor = weights.tensor(name, &device).unwrap();
        let rows = tensor.to_f32s().unwrap();
        let rows = rows
            .chunks(32)
            .map(|row| (row[0].fract() * 1e3 / 32.0).round());
        rows.collect::<Vec<_>>()
    };
    let block = "model.layers.0.self_attn";
    assert_eq!(
        rows(&format!("{block}.k_proj.weight")),
        [0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0]
    );
    assert_eq!(
        rows(&format!("{block}.q_proj.weight"))[8..12],
        [8.0, 10.0, 12.0, 14.0]
    );
    assert_eq!(
        rows(&format!("{block}.v_proj.weight"))[..3],
        [0.0, 1.0, 2.0]
    );
    let digest = weights.sampled_digest().unwrap();
    let mut other = model().0;
    *other.last_mut().unwrap() ^= 1;
    std::fs::write(&path, other).unwrap();
    let weights = crate::Weights::open(&path, &shapes).unwrap();
    assert_ne!(weights.sampled_digest().unwrap(), digest);
    let tokenizer: serde_json::Value =
        serde_json::from_slice(&gguf_tokenizer(&path).unwrap()).unwrap();
    assert_eq!(tokenizer["model"]["vocab"]["ab"], 3);
    assert_eq!(tokenizer["added_tokens"][0]["content"], "<|end|>");
}

#[test]
fn heads_of_a_qwen3_are_normalized_and_lie_as_they_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let norms: [(&str, &[u64]); 2] = [
        ("blk.0.attn_q_norm.weight", &[8]),
        ("blk.0.attn_k_norm.weight", &[8]),
    ];
    let tensors = [&TENSORS[..], &norms].concat();
    std::fs::write(&path, of_architecture("qwen3", &tensors).0).unwrap();
    let described = crate::read_config(&path).unwrap();
    let ModelConfig::Llama(config) = &described.model else {
        panic!("{described:?}");
    };
    assert!(config.qk_norm && !config.qkv_bias);
    let shapes = crate::parameter_shapes(&mut described.model.layers().unwrap());
    let weights = crate::Weights::open(&path, &shapes).unwrap();
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    let values = |name: &str| {
        let tensor = weights.tensor(&format!("model.layers.0.self_attn.{name}"), &device);
        tensor.unwrap().to_f32s().unwrap()
    };
    assert_eq!(values("q_norm.weight")[..2], [11.0, 11.001]);
    assert_eq!(values("k_norm.weight")[..2], [12.0, 12.001]);
    // Row 1 of the keys.
    assert_eq!(values("k_proj.weight")[32], 4.0 + 32.0 / 1e3);
    // A model without them is another one.
    std::fs::write(&path, of_architecture("qwen3", &TENSORS).0).unwrap();
    let error = crate::Weights::open(&path, &shapes).unwrap_err();
    assert!(error.to_string().contains("_norm.weight"), "{error}");
}

#[test]
fn tensors_that_are_not_the_models_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, model().0).unwrap();
    let described = crate::read_config(&path).unwrap();
    let shapes = crate::parameter_shapes(&mut described.model.layers().unwrap());
    let refused = |tensors: &[(&str, &[u64])]| {
        std::fs::write(&path, with_tensors(tensors).0).unwrap();
        let error = crate::Weights::open(&path, &shapes).unwrap_err();
        assert!(error.is_input_error());
        error.to_string()
    };
    for (name, shape) in [
        ("blk.0.attn_q.weight", &[][..]),
        ("blk.0.attn_q.weight", &[512]),
        ("blk.0.attn_k.weight", &[0]),
    ] {
        let mut tensors = TENSORS;
        for tensor in tensors.iter_mut().filter(|tensor| tensor.0 == name) {
            tensor.1 = shape;
        }
        let line = refused(&tensors);
        assert!(
            line.contains(&format!("`{name}` has shape {shape:?}")),
            "{line}"
        );
    }
    // A number of a block is written in one way, whatever the length of another.
    let zeros = format!("blk.{}.attn_v.weight", "0".repeat(100_000));
    for other in ["blk.00.attn_v.weight", "blk.+0.attn_v.weight", &zeros] {
        let mut tensors = TENSORS.to_vec();
        tensors.push((other, &[32, 8]));
        let line = refused(&tensors);
        assert!(line.contains("is no parameter of a model"), "{line}");
        assert!(line.len() < 400, "{line}");
    }
}

#[test]
fn a_key_of_another_type_does_not_pass_for_one_that_is_missing() {
    // Each has a default, which would be taken in its place.
    for key in [
        "rope.freq_base",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.dimension_count",
        "attention.head_count_kv",
        "attention.key_length",
        "vocab_size",
        "expert_count",
    ] {
        let key = format!("llama.{key}");
        let whole = model().0;
        let mut header = Header::parse(whole.as_slice(), whole.len() as u64).unwrap();
        header.describe(None).unwrap();
        for value in [Value::Truth(true), Value::Wholes(vec![2]), Value::Other] {
            header.metadata.insert(key.clone(), value);
            let fault = header.describe(None).unwrap_err();
            assert!(fault.starts_with(&format!("{key} is no ")), "{fault}");
        }
    }
}

#[test]
fn words_are_split_by_rules_that_the_file_names() {
    let with_pre = |pre: Option<&str>| {
        let mut header = Header::parse(model().0.as_slice(), model().0.len() as u64).unwrap();
        let key = "tokenizer.ggml.pre".to_owned();
        match pre {
            Some(pre) => header.metadata.insert(key, Value::Text(pre.to_owned())),
            None => header.metadata.remove(&key),
        };
        header.tokenizer()
    };
    assert!(with_pre(Some("gpt-2")).is_ok() && with_pre(Some("smollm")).is_ok());
    let qwen: serde_json::Value =
        serde_json::from_slice(&with_pre(Some("qwen2")).unwrap()).unwrap();
    assert_eq!(qwen["normalizer"]["type"], "NFC");
    let rules = &qwen["pre_tokenizer"]["pretokenizers"];
    assert_eq!(rules[0]["behavior"], "Isolated");
    assert_eq!(rules[1]["use_regex"], false);
    assert_eq!(qwen["model"]["ignore_merges"], false);
    let llama: serde_json::Value =
        serde_json::from_slice(&with_pre(Some("llama-bpe")).unwrap()).unwrap();
    assert_eq!(llama["model"]["ignore_merges"], true);
    let pattern = llama["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].as_str();
    assert!(pattern.unwrap().contains(r"|\p{N}{1,3}| ?"));
    for (pre, words) in [
        (None, "has no tokenizer.ggml.pre"),
        (Some("default"), "tokenizer.ggml.pre is `default`"),
    ] {
        let fault = with_pre(pre).unwrap_err();
        assert!(
            fault.starts_with(words)
                && fault.ends_with("name a tokenizer.json with `data.tokenizer`"),
            "{fault}"
        );
    }
}

#[test]
fn keys_that_change_what_a_model_computes_are_refused_by_name() {
    let with = |key: &str, value: Value| {
        let mut header = Header::parse(model().0.as_slice(), model().0.len() as u64).unwrap();
        header.metadata.insert(format!("llama.{key}"), value);
        header.describe(None)
    };
    for (key, neutral, other) in [
        ("attention.clamp_kqv", &[0.0][..], 8.0),
        ("attention.max_alibi_bias", &[0.0], 8.0),
        ("attn_logit_softcapping", &[0.0], 50.0),
        ("final_logit_softcapping", &[0.0], 30.0),
        ("embedding_scale", &[0.0, 1.0], 12.0),
        ("logit_scale", &[0.0, 1.0], 0.5),
        ("residual_scale", &[0.0, 1.0], 0.22),
        // Heads have 8 elements.
        ("attention.scale", &[0.0, 0.353_553_39], 0.125),
        ("rope.freq_base", &[5e5], -5.0),
        ("rope.freq_base", &[1e4], f64::NAN),
        ("rope.freq_base", &[1e6], f64::INFINITY),
        ("rope.freq_base", &[1.0], 0.0),
    ] {
        for &value in neutral {
            assert!(with(key, Value::Real(value)).is_ok(), "{key} = {value}");
        }
        let fault = with(key, Value::Real(other)).unwrap_err();
        assert!(
            fault.starts_with(&format!("llama.{key} is {other}: ")),
            "{fault}"
        );
    }
    assert!(with("attention.causal", Value::Truth(true)).is_ok());
    let fault = with("attention.causal", Value::Truth(false)).unwrap_err();
    assert!(
        fault.starts_with("llama.attention.causal is false: "),
        "{fault}"
    );
}
