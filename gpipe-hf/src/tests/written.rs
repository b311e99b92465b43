//! `config.json` is, byte for byte, what earlier versions wrote; what could not be read again is not written.

use gpipe_layers::Gelu;
use gpipe_layers::layers::Function;
use gpipe_layers::models::{GptConfig, ImageConfig, MlpConfig, ModelConfig, Network};
use gpipe_tensor::Tensor;

use super::{Params, device, params};
use crate::{CONFIG, Companions, Error, files_beside_weights, parse_config, to_files};

fn config_json(model: &ModelConfig, companions: &Companions) -> String {
    let files = to_files(model, &params(model), companions).unwrap();
    let [(name, bytes), ..] = &files[..] else {
        panic!("no files")
    };
    assert_eq!(name, CONFIG);
    String::from_utf8(bytes.to_vec().unwrap()).unwrap()
}

fn gpt() -> GptConfig {
    GptConfig {
        vocab: 256,
        context: 64,
        width: 8,
        blocks: 1,
        heads: 2,
        dropout: 0.1,
        ..GptConfig::default()
    }
}

#[test]
fn a_gpt() {
    let expected = r#"{
  "activation_function": "gelu_new",
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "attn_pdrop": 0.1,
  "bos_token_id": null,
  "embd_pdrop": 0.1,
  "eos_token_id": null,
  "layer_norm_epsilon": 0.00001,
  "model_type": "gpt2",
  "n_ctx": 64,
  "n_embd": 8,
  "n_head": 2,
  "n_inner": null,
  "n_layer": 1,
  "n_positions": 64,
  "resid_pdrop": 0.1,
  "tie_word_embeddings": true,
  "torch_dtype": "float32",
  "vocab_size": 256
}
"#;
    let model = ModelConfig::Gpt(gpt());
    assert_eq!(config_json(&model, &Companions::default()), expected);
    let mut companions = Companions::default();
    companions.ids.insert("bos_token_id".into(), 3.into());
    companions
        .ids
        .insert("eos_token_id".into(), vec![3, 4].into());
    companions.ids.insert("pad_token_id".into(), 5.into());
    let expected = expected
        .replace("\"bos_token_id\": null", "\"bos_token_id\": 3")
        .replace(
            "\"eos_token_id\": null",
            "\"eos_token_id\": [\n    3,\n    4\n  ]",
        )
        .replace(
            "  \"resid_pdrop\"",
            "  \"pad_token_id\": 5,\n  \"resid_pdrop\"",
        );
    assert_eq!(config_json(&model, &companions), expected);
    let other = ModelConfig::Gpt(GptConfig {
        tied: false,
        gelu: Gelu::Erf,
        dropout: 0.0,
        layer_norm_eps: 1e-6,
        ..gpt()
    });
    let written = config_json(&other, &Companions::default());
    for line in [
        "\"activation_function\": \"gelu\",",
        "\"attn_pdrop\": 0.0,",
        "\"layer_norm_epsilon\": 1e-6,",
        "\"tie_word_embeddings\": false,",
    ] {
        assert!(written.contains(line), "{line} in {written}");
    }
}

#[test]
fn a_perceptron() {
    let mlp = MlpConfig {
        inputs: 64,
        hidden: vec![8, 4],
        outputs: 10,
        activation: Function::Relu,
        dropout: 0.25,
    };
    let expected = r#"{
  "hidden_act": "relu",
  "hidden_dropout_prob": 0.25,
  "hidden_sizes": [
    8,
    4
  ],
  "input_size": 64,
  "model_type": "mlp",
  "num_labels": 10,
  "torch_dtype": "float32"
}
"#;
    let model = ModelConfig::Mlp(mlp.clone());
    assert_eq!(config_json(&model, &Companions::default()), expected);
    let unknown = ModelConfig::Mlp(MlpConfig {
        activation: Function::Gelu(Gelu::Erf),
        ..mlp
    });
    let error = to_files::<Tensor>(&unknown, &[], &Companions::default()).unwrap_err();
    assert!(matches!(error, Error::NotWritable(_)) && error.is_input_error());
}

#[test]
fn what_is_written_can_be_read_again_or_is_refused() {
    let deep = ModelConfig::Image(ImageConfig {
        network: Network::Convnet(vec![16; 100]),
        channels: 3,
        classes: 2,
        dropout: 0.0,
    });
    let written = config_json(&deep, &Companions::default());
    assert_eq!(parse_config(written.as_bytes()).unwrap().model, deep);
    let layers = ModelConfig::Mlp(MlpConfig {
        inputs: 1,
        hidden: vec![1; 10_001],
        outputs: 1,
        activation: Function::Relu,
        dropout: 0.0,
    });
    let wide = ModelConfig::Gpt(GptConfig {
        vocab: 1 << 33,
        ..gpt()
    });
    for (model, key) in [(layers, "hidden_sizes"), (wide, "vocab_size")] {
        let error = to_files::<Tensor>(&model, &[], &Companions::default()).unwrap_err();
        let told = error.to_string();
        assert!(
            matches!(error, Error::NotWritable(_)) && told.contains(key),
            "{told}"
        );
    }
}

#[test]
fn values_that_are_not_those_of_the_parameters_are_refused() {
    let model = ModelConfig::Gpt(gpt());
    let written = |change: &dyn Fn(&mut Params)| {
        let mut values = params(&model);
        change(&mut values);
        to_files(&model, &values, &Companions::default())
    };
    let refused = |change: &dyn Fn(&mut Params)| {
        let error = written(change).unwrap_err();
        assert!(matches!(error, Error::NotWritable(_)) && error.is_input_error());
        error.to_string()
    };
    let tensor = |shape: [usize; 2]| Tensor::zeros(&device(), shape).unwrap();
    assert_eq!(
        refused(&|values| drop(values.pop())),
        "a model cannot be written: no value is given for the parameter `transformer.ln_f.bias`"
    );
    let told = refused(&|values| values.truncate(1));
    assert!(
        told.contains("`transformer.h.0.attn.c_attn.bias` and 14 more"),
        "{told}"
    );
    // As many elements in another order.
    assert_eq!(
        refused(&|values| values[0].1 = tensor([8, 256])),
        "a model cannot be written: `transformer.wte.weight` has shape [8, 256], but the model asks for [256, 8]"
    );
    let whole = |values: &mut Params| {
        let ids = vec![0; 256 * 8];
        values[0].1 = Tensor::from_u32(&device(), [256, 8], ids).unwrap();
    };
    assert!(refused(&whole).contains("`transformer.wte.weight` holds whole numbers"));
    let told = refused(&|values| values.push(("a\nb".into(), tensor([1, 8]))));
    assert!(told.contains("`a\\nb` is no parameter"), "{told}");
    // The head of this model is its table of tokens.
    let told = refused(&|values| values.push(("lm_head.weight".into(), tensor([256, 8]))));
    assert!(told.contains("`lm_head.weight`"), "{told}");
    assert!(
        refused(&|values| values.clear())
            .contains("`transformer.h.0.attn.c_attn.bias` and 15 more")
    );
    let files = files_beside_weights(&model, &Companions::default()).unwrap();
    assert!(matches!(&files[..], [(name, _)] if name == CONFIG));
    // Adapters are another folder's.
    let adapter = "transformer.h.0.attn.c_attn.lora_A.weight";
    assert!(written(&|values| values.push((adapter.into(), tensor([1, 8])))).is_ok());
    let twice = written(&|values| values.push(values[0].clone()));
    assert!(matches!(twice.unwrap_err(), Error::Save(_)));
}
