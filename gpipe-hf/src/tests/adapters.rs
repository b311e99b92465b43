//! What is read of an adapter, and what it is merged into.

use gpipe_layers::LoraSettings;
use gpipe_layers::layers::Function;
use gpipe_layers::models::{GptConfig, MlpConfig, ModelConfig};
use gpipe_tensor::{DeviceId, Host, Tensor};

use crate::adapter::parse;
use crate::merged;

#[test]
fn a_number_that_is_none_is_refused_by_its_key() {
    let parsed = |key: &str, value: &str| {
        let more = match key {
            "lora_alpha" => String::new(),
            _ => r#","lora_alpha":16"#.to_owned(),
        };
        let file =
            format!(r#"{{"peft_type":"LORA","r":8,"target_modules":["q"]{more},"{key}":{value}}}"#);
        parse(file.as_bytes())
    };
    assert_eq!(
        parsed("lora_dropout", "null").unwrap().settings.dropout,
        0.0
    );
    assert_eq!(parsed("lora_dropout", "0.5").unwrap().settings.dropout, 0.5);
    for (key, value) in [
        ("lora_dropout", r#""0.5""#),
        ("lora_dropout", "[]"),
        ("lora_dropout", "1"),
        ("lora_alpha", "1e300"),
        ("lora_alpha", "-1"),
    ] {
        let fault = parsed(key, value).unwrap_err();
        assert!(fault.starts_with(&format!("`{key}` is ")), "{fault}");
    }
}

#[test]
fn adapters_that_do_not_fit_their_weights_are_refused() {
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    let ones = |shape: [usize; 2]| {
        Tensor::from_f32(&device, shape, vec![1.0; shape[0] * shape[1]]).unwrap()
    };
    let mlp = ModelConfig::Mlp(MlpConfig {
        inputs: 4,
        hidden: vec![3],
        outputs: 2,
        activation: Function::Relu,
        dropout: 0.0,
    });
    let gpt = ModelConfig::Gpt(GptConfig::default());
    let merge = |model: &ModelConfig, shapes: &[(&str, [usize; 2])], rank| {
        let values = shapes
            .iter()
            .map(|&(name, shape)| (name.to_owned(), ones(shape)));
        let settings = LoraSettings {
            rank,
            alpha: 4.0,
            dropout: 0.0,
        };
        merged(model, values.collect(), settings)
    };
    let weight = ("l.weight", [3, 4]);
    let (a, b) = (("l.lora_A.weight", [2, 4]), ("l.lora_B.weight", [3, 2]));
    let all = merge(&mlp, &[weight, a, b], 2).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].1.f32s().unwrap(), [5.0; 12]);
    let transposed = [("l.weight", [4, 3]), a, b];
    assert_eq!(
        merge(&gpt, &transposed, 2).unwrap()[0].1.f32s().unwrap(),
        [5.0; 12]
    );
    for (values, rank, words) in [
        (&[weight, a, b][..], 0, "A (0, inputs)"),
        (&[weight, a, b], 1, "`l.weight`, got [3, 4]"),
        (&[weight, a, b], 4, "`l.weight`"),
        (&[weight, ("l.lora_A.weight", [2, 40]), b], 2, "`l.weight`"),
        (&[weight, a, ("l.lora_B.weight", [9, 2])], 2, "`l.weight`"),
        (&[weight, a], 2, "`l.weight`"),
        (&[("l.weight", [4, 3]), a, b], 2, "`l.weight`"),
        (
            &[("k.weight", [3, 4]), a, b],
            2,
            "`l.lora_A.weight` belongs to no weight",
        ),
    ] {
        let line = merge(&mlp, values, rank).unwrap_err().to_string();
        assert!(line.contains(words), "{line}");
    }
}
