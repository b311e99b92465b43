//! A folder that is written is read again, under every name that `transformers` gives its tensors;
//! what does not fit is refused with its name.

mod described;
mod shards;

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
        assert_eq!(model, Architecture::Gpt(crate::setup::gpt(&config)));
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
