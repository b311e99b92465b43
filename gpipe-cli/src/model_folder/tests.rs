//! A folder that is written is read again, under every name that `transformers` gives its tensors;
//! what does not fit is refused with its name.

use std::fs;

use gpipe_tensor::{Device, DeviceId, Host, Shape};
use tempfile::TempDir;

use super::*;
use crate::args::Settings;
use crate::config::resolve;
use crate::setup::Setup;

fn device() -> Device {
    Host::new(1).unwrap().device(DeviceId::Cpu).unwrap()
}

const SIZES: [&str; 6] = [
    "model.width=8",
    "model.heads=2",
    "model.blocks=2",
    "model.vocab=11",
    "model.context=5",
    "data.seq_len=4",
];

fn config(more: &[&str]) -> Config {
    let set = SIZES
        .iter()
        .chain(more)
        .map(|&text| text.to_owned())
        .collect();
    resolve(&Settings {
        set,
        ..Settings::default()
    })
    .unwrap()
}

type Params = Vec<(String, Tensor)>;

/// Every parameter of the small model, each with values of its own.
fn params(config: &Config) -> Params {
    let shapes = Setup::new(config).unwrap().owners();
    let value = |(name, shape): (String, Shape)| {
        let elements = shape.elements().unwrap();
        let values: Vec<f32> = (0..elements)
            .map(|i| i as f32 + name.len() as f32 / 64.0)
            .collect();
        let tensor = Tensor::from_f32(&device(), shape, values).unwrap();
        (name, tensor)
    };
    shapes.into_iter().map(value).collect()
}

fn written(files: &[(String, Vec<u8>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn open(folder: &Path, config: &Config) -> Result<Weights> {
    Weights::open(folder, &Setup::new(config).unwrap().owners())
}

fn refusal(folder: &Path, config: &Config) -> String {
    match open(folder, config).err() {
        Some(Fail::Usage(error)) => error.to_string(),
        other => panic!("no refusal: {other:?}"),
    }
}

fn same(weights: &Weights, params: &[(String, Tensor)]) {
    for (name, value) in params {
        let read = weights.tensor(name, &device()).unwrap();
        assert_eq!(read.shape(), value.shape(), "{name}");
        assert_eq!(read.f32s().unwrap(), value.f32s().unwrap(), "{name}");
    }
}

/// The same tensors under other names.
fn renamed(params: &[(String, Tensor)], rename: impl Fn(&str) -> String) -> Vec<u8> {
    let renamed: Vec<_> = params
        .iter()
        .map(|(name, value)| (rename(name), value.clone()))
        .collect();
    safetensors::save(&renamed, &[]).unwrap()
}

#[test]
fn what_is_written_is_read_again() {
    for more in [
        &[][..],
        &[
            "model.tied=false",
            "model.gelu=erf",
            "model.dropout=0.25",
            "model.layer_norm_eps=1e-6",
        ],
    ] {
        let config = config(more);
        let params = params(&config);
        let folder = written(&files(&config, &params, &Companions::default()).unwrap());
        let Description {
            model,
            one_dropout,
            ids,
        } = describe(folder.path()).unwrap();
        assert!(one_dropout && ids.is_empty());
        assert_eq!(model, Architecture::Gpt(crate::setup::model(&config)));
        same(&open(folder.path(), &config).unwrap(), &params);
        // The folder as a model is the model that was written.
        let name = folder.path().to_str().unwrap().to_owned();
        let again = resolve(&Settings {
            model: Some(name.clone()),
            ..Settings::default()
        })
        .unwrap();
        assert_eq!(
            again.model,
            crate::config::Model {
                name,
                ..config.model
            }
        );
    }
}

#[test]
fn names_may_lack_the_prefix_and_masks_and_the_tied_head_are_passed_over() {
    let config = config(&[]);
    let mut params = params(&config);
    let folder = written(&files(&config, &params, &Companions::default()).unwrap());
    let weights = folder.path().join(WEIGHTS);
    let wanted = params.clone();
    params.push(("transformer.h.1.attn.bias".into(), params[0].1.clone()));
    params.push((
        "transformer.h.1.attn.masked_bias".into(),
        params[0].1.clone(),
    ));
    params.push(("lm_head.weight".into(), params[0].1.clone()));
    fs::write(
        &weights,
        renamed(&params, |name| {
            name.trim_start_matches("transformer.").into()
        }),
    )
    .unwrap();
    same(&open(folder.path(), &config).unwrap(), &wanted);
}

#[test]
fn what_does_not_fit_is_named() {
    let config = config(&[]);
    let params = params(&config);
    let folder = written(&files(&config, &params, &Companions::default()).unwrap());
    let weights = folder.path().join(WEIGHTS);
    let tensor = |shape: [usize; 2]| Tensor::zeros(&device(), shape).unwrap();
    let refused = |change: &dyn Fn(&mut Params)| {
        let mut changed = params.clone();
        change(&mut changed);
        fs::write(&weights, safetensors::save(&changed, &[]).unwrap()).unwrap();
        refusal(folder.path(), &config)
    };
    let message = refused(&|p| drop(p.pop()));
    assert!(
        message.contains("no weights for `transformer.ln_f.bias`, which"),
        "{message}"
    );
    let message = refused(&|p| p.truncate(1));
    assert!(message.contains("and 26 more"), "{message}");
    let message = refused(&|p| p[0].1 = tensor([11, 9]));
    assert!(
        message.contains(
            "`transformer.wte.weight` has shape [11, 9], but config.json asks for [11, 8]"
        ),
        "{message}"
    );
    let message = refused(&|p| p.push(("score.weight".into(), tensor([1, 8]))));
    assert!(
        message.contains("`score.weight` is no parameter"),
        "{message}"
    );
    let message = refused(&|p| p.push(("wte.weight".into(), tensor([11, 8]))));
    assert!(message.contains("twice"), "{message}");
    let message = refused(&|p| p.push(("lm_head.weight".into(), tensor([11, 8]))));
    assert!(message.contains("tie_word_embeddings"), "{message}");
    let message = refused(&|p| p[0].1 = Tensor::from_u32(&device(), [11, 8], vec![0; 88]).unwrap());
    assert!(message.contains("U32"), "{message}");
    fs::write(&weights, b"").unwrap();
    assert!(refusal(folder.path(), &config).contains("too few"));
    fs::remove_file(&weights).unwrap();
    assert!(refusal(folder.path(), &config).contains("model.safetensors"));
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    let config = config(&[]);
    let mut params = params(&config);
    params[3].1 = Tensor::from_f32(&device(), params[3].1.shape().clone(), [f32::NAN; 8]).unwrap();
    let folder = written(&files(&config, &params, &Companions::default()).unwrap());
    let weights = open(folder.path(), &config).unwrap();
    let error = weights
        .tensor(&params[3].0, &device())
        .err()
        .unwrap()
        .into_error();
    assert!(error.to_string().contains("not finite"), "{error}");
}

/// The tensors in two files and an index, which `change` may falsify.
fn sharded(change: impl Fn(&Path)) -> (Config, Params, TempDir) {
    let config = config(&[]);
    let params = params(&config);
    let folder = written(&files(&config, &params, &Companions::default()).unwrap()[..1]);
    let (left, right) = params.split_at(7);
    let mut map = serde_json::Map::new();
    for (file, part) in [("a.safetensors", left), ("b.safetensors", right)] {
        fs::write(
            folder.path().join(file),
            safetensors::save(part, &[]).unwrap(),
        )
        .unwrap();
        map.extend(part.iter().map(|(name, _)| (name.clone(), file.into())));
    }
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    fs::write(folder.path().join(INDEX), index.to_string()).unwrap();
    change(folder.path());
    (config, params, folder)
}

#[test]
fn an_index_leads_to_its_files_and_nowhere_else() {
    let (config, params, folder) = sharded(|_| {});
    same(&open(folder.path(), &config).unwrap(), &params);

    let refused = |change: &dyn Fn(&Path)| {
        let (config, _, folder) = sharded(change);
        refusal(folder.path(), &config)
    };
    let index = |from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        move |folder: &Path| {
            let path = folder.join(INDEX);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(&from));
            fs::write(path, text.replace(&from, &to)).unwrap();
        }
    };
    for path in [
        "../b.safetensors",
        "/etc/b.safetensors",
        "./b.safetensors",
        "x/b.safetensors",
        "b.bin",
        "..",
        "",
    ] {
        let message = refused(&index("b.safetensors", path));
        assert!(
            message.contains("only files beside it"),
            "{path}: {message}"
        );
    }
    assert!(refused(&index("b.safetensors", "c.safetensors")).contains("c.safetensors"));
    let message = refused(&index("transformer.wte.weight", "wte"));
    assert!(
        message.contains("`wte` is not in a.safetensors"),
        "{message}"
    );
    let message = refused(&index(",\"transformer.wte.weight\":\"a.safetensors\"", ""));
    assert!(
        message.contains("`transformer.wte.weight` in a.safetensors is not listed"),
        "{message}"
    );
    let twice = refused(&index(
        "{\"transformer",
        "{\"transformer.wte.weight\":\"b.safetensors\",\"transformer",
    ));
    assert!(twice.contains("twice"), "{twice}");
    let folder_as_shard = |folder: &Path| {
        fs::remove_file(folder.join("b.safetensors")).unwrap();
        fs::create_dir(folder.join("b.safetensors")).unwrap();
    };
    assert!(refused(&folder_as_shard).contains("no regular file"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        let device = |folder: &Path| {
            fs::remove_file(folder.join("b.safetensors")).unwrap();
            symlink("/dev/zero", folder.join("b.safetensors")).unwrap();
        };
        assert!(refused(&device).contains("is a link"));
        let around = |folder: &Path| {
            fs::remove_file(folder.join("b.safetensors")).unwrap();
            symlink("b.safetensors", folder.join("b.safetensors")).unwrap();
        };
        assert!(refused(&around).contains("is a link"));
    }
}

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

#[test]
fn a_hostile_index_is_refused() {
    let deep = format!("{{\"weight_map\":{}", "{\"a\":".repeat(100_000));
    let files = [
        "",
        "/",
        "..",
        "../x.safetensors",
        "/x.safetensors",
        "a/x.safetensors",
        "a\\\\x.safetensors",
        "c:x.safetensors",
        ".safetensors",
        "x.bin",
        "x.safetensors/",
        "x.safetensors\\n",
        "x\\u0000.safetensors",
        "\\u001b[2Jx.safetensors",
    ];
    let mapped = files.map(|file| format!("{{\"weight_map\":{{\"a\":\"{file}\"}}}}"));
    let whole = [
        "",
        "{",
        "{}",
        "[]",
        "null",
        "{\"weight_map\":[]}",
        "{\"weight_map\":null}",
        "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":null}}",
        "{\"weight_map\":{},\"weight_map\":{}}",
        "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}",
        "{\"weight_map\":{}} x",
        &deep,
    ];
    for text in mapped.iter().map(String::as_str).chain(whole) {
        let fault = index::parse(text.as_bytes()).expect_err(&text[..text.len().min(80)]);
        assert!(fault.len() < 600, "{fault}");
    }
    let good = "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\"}}";
    assert_eq!(index::parse(good.as_bytes()).unwrap().0.len(), 1);
}
