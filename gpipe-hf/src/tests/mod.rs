//! A folder that is written is read again, under every name that `transformers` gives its tensors;
//! what does not fit is refused with its name.

mod adapters;
mod companions;
mod described;
mod pipeline;
mod shards;
mod written;

use std::fs;
use std::path::Path;

use gpipe_layers::Gelu;
use gpipe_layers::layers::Function;
use gpipe_layers::models::{GptConfig, MlpConfig, ModelConfig};
use gpipe_tensor::safetensors::{self, FileContents};
use gpipe_tensor::{Device, DeviceId, Host, Shape, Tensor};
use tempfile::TempDir;

use crate::{
    Companions, Description, Result, WEIGHTS, Weights, parameter_shapes, read_config, to_files,
};

fn device() -> Device {
    Host::new(1).unwrap().device(DeviceId::Cpu).unwrap()
}

fn small() -> GptConfig {
    GptConfig {
        width: 8,
        heads: 2,
        blocks: 2,
        vocab: 11,
        context: 5,
        ..GptConfig::default()
    }
}

fn model() -> ModelConfig {
    ModelConfig::Gpt(small())
}

fn shapes(model: &ModelConfig) -> Vec<(String, Shape)> {
    parameter_shapes(&mut model.layers().unwrap())
}

type Params = Vec<(String, Tensor)>;

/// Every parameter of the small model, each with values of its own.
fn params(model: &ModelConfig) -> Params {
    let value = |(name, shape): (String, Shape)| {
        let elements = shape.elements().unwrap();
        let values: Vec<f32> = (0..elements)
            .map(|i| i as f32 + name.len() as f32 / 64.0)
            .collect();
        let tensor = Tensor::from_f32(&device(), shape, values).unwrap();
        (name, tensor)
    };
    shapes(model).into_iter().map(value).collect()
}

fn written(files: &[(String, FileContents)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        fs::write(folder.path().join(name), contents.to_vec().unwrap()).unwrap();
    }
    folder
}

fn open(folder: &Path, model: &ModelConfig) -> Result<Weights> {
    Weights::open(folder, &shapes(model))
}

fn refusal(folder: &Path, model: &ModelConfig) -> String {
    match open(folder, model).err() {
        Some(error) if error.is_input_error() => error.to_string(),
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
    let other = GptConfig {
        tied: false,
        gelu: Gelu::Erf,
        dropout: 0.25,
        layer_norm_eps: 1e-6,
        ..small()
    };
    let mlp = MlpConfig {
        inputs: 6,
        hidden: vec![5, 4],
        outputs: 3,
        activation: Function::Relu,
        dropout: 0.1,
    };
    for model in [model(), ModelConfig::Gpt(other), ModelConfig::Mlp(mlp)] {
        let params = params(&model);
        let folder = written(&to_files(&model, &params, &Companions::default()).unwrap());
        let Description {
            model: read,
            one_dropout,
            ids,
        } = read_config(folder.path()).unwrap();
        assert!(one_dropout && ids.is_empty());
        assert_eq!(read, model);
        same(&open(folder.path(), &model).unwrap(), &params);
    }
}

#[test]
fn names_may_lack_the_prefix_and_masks_and_the_tied_head_are_passed_over() {
    let model = model();
    let mut params = params(&model);
    let folder = written(&to_files(&model, &params, &Companions::default()).unwrap());
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
    same(&open(folder.path(), &model).unwrap(), &wanted);
}

#[test]
fn what_does_not_fit_is_named() {
    let model = model();
    let params = params(&model);
    let folder = written(&to_files(&model, &params, &Companions::default()).unwrap());
    let weights = folder.path().join(WEIGHTS);
    let tensor = |shape: [usize; 2]| Tensor::zeros(&device(), shape).unwrap();
    let refused = |change: &dyn Fn(&mut Params)| {
        let mut changed = params.clone();
        change(&mut changed);
        fs::write(&weights, safetensors::save(&changed, &[]).unwrap()).unwrap();
        refusal(folder.path(), &model)
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
            "`transformer.wte.weight` has shape [11, 9], but config.json asks for [11, 8]: take the weights of that model"
        ),
        "{message}"
    );
    // Of a single file, no config.json has been read.
    let message = Weights::open_file(&weights, &shapes(&model), &[])
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("but the configuration asks for [11, 8]"),
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
    let message = refused(&|p| p.push(("a\nb\u{1b}".into(), tensor([1, 8]))));
    assert!(
        message.contains("`a\\nb\\u{1b}` is no parameter"),
        "{message}"
    );
    fs::write(&weights, b"").unwrap();
    assert!(refusal(folder.path(), &model).contains("too few"));
    fs::remove_file(&weights).unwrap();
    assert!(refusal(folder.path(), &model).contains("model.safetensors"));
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    let model = model();
    let mut params = params(&model);
    params[3].1 = Tensor::from_f32(&device(), params[3].1.shape().clone(), [f32::NAN; 8]).unwrap();
    let folder = written(&to_files(&model, &params, &Companions::default()).unwrap());
    let weights = open(folder.path(), &model).unwrap();
    let error = weights.tensor(&params[3].0, &device()).unwrap_err();
    assert!(error.to_string().contains("not finite"), "{error}");
}
