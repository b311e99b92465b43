//! Models are flat lists with the names, shapes, beginnings and costs that they promise.

#[path = "models/perceptron.rs"]
mod perceptron;

use gpipe_layers::layers::{Activation, Function};
use gpipe_layers::models::{
    GptConfig, ImageConfig, LlamaConfig, MlpConfig, ModelConfig, PRESETS, Seq2SeqConfig, gpt,
    llama, preset,
};
use gpipe_layers::{
    AdamW, Cost, CostModel, Decay, Flow, Gelu, Init, Layer, Optimizer, compute_in, round_to_tf32,
};
use gpipe_tensor::{DType, Shape};

fn small() -> GptConfig {
    GptConfig {
        vocab: 11,
        context: 6,
        width: 8,
        blocks: 2,
        heads: 2,
        ..GptConfig::default()
    }
}

fn names(layers: &[Box<dyn Layer>]) -> Vec<&str> {
    layers.iter().map(|layer| layer.name()).collect()
}

/// Name, shape, beginning and whether it is a further place of another, of every parameter.
fn params(layers: &mut [Box<dyn Layer>]) -> Vec<(String, Shape, Init, bool)> {
    let mut params = Vec::new();
    for layer in layers {
        layer.params(&mut |param| {
            params.push((
                param.name.clone(),
                param.shape.clone(),
                param.init.clone(),
                param.tied,
            ));
        });
    }
    params
}

/// Every layer's flow and cost, each fed with what the one before hands on.
fn costs(layers: &[Box<dyn Layer>], input: Flow) -> Vec<(Vec<Flow>, Cost)> {
    let mut flow = vec![input];
    let mut costs = Vec::new();
    for layer in layers {
        let cost = layer.cost(&flow).expect("a cost");
        let outputs = cost.outputs.clone();
        costs.push((std::mem::replace(&mut flow, outputs), cost));
    }
    costs
}

#[test]
fn a_gpt_is_a_flat_list_of_halves() {
    let layers = gpt(&small()).unwrap();
    let wanted = [
        "transformer.wte",
        "transformer.h.0.attn",
        "transformer.h.0.mlp",
        "transformer.h.1.attn",
        "transformer.h.1.mlp",
        "transformer.ln_f",
        "lm_head",
    ];
    assert_eq!(names(&layers), wanted);
    let dropping = GptConfig {
        dropout: 0.1,
        ..small()
    };
    assert_eq!(names(&gpt(&dropping).unwrap())[1], "transformer.drop");
}

/// By hand: a half leaves out its last product, with bias and sum, and the GELU before it; the head everything. Dropout
/// behind the product is left out with it.
#[test]
fn halves_of_a_block_are_recomputed_without_their_last_product() {
    let (rows, width, vocab) = (2 * 6, 8, 11);
    let left_out = |cost: &Cost| cost.forward - cost.recomputed();
    let costs = costs(&gpt(&small()).unwrap(), Flow::u32([2, 6]));
    let [attention, mlp, norm, head] = [1, 2, 5, 6].map(|layer| left_out(&costs[layer].1));
    let product = |inputs: u64, outputs: u64| 2 * rows * inputs * outputs;
    let bias_and_sum = 2 * rows * width;
    assert_eq!(attention, product(width, width) + bias_and_sum);
    let gelu = [Flow::f32([2, 6, 32])];
    let gelu = Activation::new("gelu", Function::Gelu(Gelu::Tanh)).cost(&gelu);
    let gelu = gelu.unwrap().forward;
    assert_eq!(mlp, product(4 * width, width) + bias_and_sum + gelu);
    assert_eq!(head, product(width, vocab));
    // It saves what it computes.
    assert_eq!(norm, 0);
    let dropping = GptConfig {
        dropout: 0.1,
        ..small()
    };
    let costs = self::costs(&gpt(&dropping).unwrap(), Flow::u32([2, 6]));
    let halves = [2, 3].map(|layer| left_out(&costs[layer].1));
    assert_eq!(halves, [attention, mlp].map(|flops| flops + rows * width));
}

#[test]
fn parameters_have_the_names_and_shapes_of_hugging_face() {
    let block = |i: usize| {
        [
            ("ln_1.weight", vec![8]),
            ("ln_1.bias", vec![8]),
            ("attn.c_attn.weight", vec![8, 24]),
            ("attn.c_attn.bias", vec![24]),
            ("attn.c_proj.weight", vec![8, 8]),
            ("attn.c_proj.bias", vec![8]),
            ("ln_2.weight", vec![8]),
            ("ln_2.bias", vec![8]),
            ("mlp.c_fc.weight", vec![8, 32]),
            ("mlp.c_fc.bias", vec![32]),
            ("mlp.c_proj.weight", vec![32, 8]),
            ("mlp.c_proj.bias", vec![8]),
        ]
        .map(|(name, shape)| (format!("transformer.h.{i}.{name}"), shape))
    };
    for (tied, head) in [(true, "transformer.wte.weight"), (false, "lm_head.weight")] {
        let mut wanted = vec![
            ("transformer.wte.weight".to_owned(), vec![11, 8]),
            ("transformer.wpe.weight".to_owned(), vec![6, 8]),
        ];
        wanted.extend(block(0).into_iter().chain(block(1)));
        wanted.push(("transformer.ln_f.weight".to_owned(), vec![8]));
        wanted.push(("transformer.ln_f.bias".to_owned(), vec![8]));
        wanted.push((head.to_owned(), vec![11, 8]));
        let params = params(&mut gpt(&GptConfig { tied, ..small() }).unwrap());
        let got: Vec<_> = params
            .iter()
            .map(|(name, shape, ..)| (name.clone(), shape.dims().to_vec()))
            .collect();
        assert_eq!(got, wanted);
        let places: Vec<bool> = params.iter().map(|(.., tied)| *tied).collect();
        assert_eq!(places.last(), Some(&tied));
        assert!(!places[..places.len() - 1].contains(&true));
    }
}

#[test]
fn parameters_begin_as_those_of_gpt2() {
    for (name, _, init, _) in params(&mut gpt(&small()).unwrap()) {
        let wanted = match name.as_str() {
            name if name.ends_with("bias") => Init::Zeros,
            name if name.contains(".ln_") => Init::Ones,
            // Two projections in each of two blocks end in the residual stream.
            name if name.ends_with("c_proj.weight") => Init::Normal(0.01),
            _ => Init::Normal(0.02),
        };
        assert_eq!(init, wanted, "{name}");
    }
}

#[test]
fn presets_have_the_sizes_that_they_are_known_by() {
    for (name, parameters) in [("gpt2", 124_439_808), ("bench-a", 6_482_432)] {
        let params = params(&mut gpt(&preset(name).unwrap().config).unwrap());
        let owned = params.iter().filter(|(.., tied)| !tied);
        let count: usize = owned.map(|(_, shape, ..)| shape.elements().unwrap()).sum();
        assert_eq!(count, parameters, "{name}");
    }
    for name in PRESETS {
        let preset = preset(name).unwrap();
        assert_eq!(preset.name, name);
        assert!(preset.sequence <= preset.config.context);
        let layers = gpt(&preset.config).unwrap();
        assert!(layers.len() >= 8, "{name} cannot be cut into 8 stages");
        costs(&layers, Flow::u32([preset.batch, preset.sequence]));
    }
    assert_eq!(preset("gpt-pico"), None);
}

#[test]
fn flops_of_a_gpt_are_those_of_its_matrix_products_and_a_little_more() {
    for name in ["bench-a", "bench-b"] {
        let preset = preset(name).unwrap();
        let layers = gpt(&preset.config).unwrap();
        let costs = costs(&layers, Flow::u32([preset.batch, preset.sequence]));
        let sum = |part: fn(&Cost) -> u64| costs.iter().map(|(_, cost)| part(cost)).sum::<u64>();
        let c = &preset.config;
        let [d, time, blocks, vocab] =
            [c.width, preset.sequence, c.blocks, c.vocab].map(|n| n as u64);
        let tokens = preset.batch as u64 * time;
        let products =
            2 * tokens * (12 * d * d * blocks + d * vocab) + 4 * blocks * tokens * time * d;
        for (ours, products) in [
            (sum(|cost| cost.forward), products),
            (sum(Cost::flops), 3 * products),
        ] {
            assert!(ours > products, "{name}: {ours} {products}");
            assert!(ours < products + products / 30, "{name}: {ours} {products}");
        }
    }
}

#[test]
fn lingvo_charges_the_embedding_and_the_squares_and_gives_the_rest_away() {
    let layers = gpt(&small()).unwrap();
    let [batch, time, width, vocab] = [3u64, 5, 8, 11];
    let costs = costs(&layers, Flow::u32([batch as usize, time as usize]));
    let price = |model: CostModel| -> Vec<u64> {
        let layers = layers.iter().zip(&costs);
        layers
            .map(|(layer, (flow, _))| model.price(layer.as_ref(), flow).unwrap())
            .collect()
    };
    let block = 5 * time * time * batch * width;
    let wanted = [
        2 * batch * time * width * vocab,
        block,
        0,
        block,
        0,
        10 * batch * time * width,
        100,
    ];
    assert_eq!(price("lingvo".parse().unwrap()), wanted);
    let complete: Vec<u64> = costs.iter().map(|(_, cost)| cost.flops()).collect();
    assert_eq!(price(CostModel::default()), complete);
    assert!("flops".parse::<CostModel>().is_err());

    // A byte counts as many FLOPs as fit its time.
    let traffic = costs.iter().map(|(_, cost)| cost.traffic);
    let timed = traffic
        .zip(&complete)
        .map(|(bytes, flops)| flops + 7 * bytes);
    assert_eq!(price("time:7".parse().unwrap()), timed.collect::<Vec<_>>());
    assert_eq!(
        price("time".parse().unwrap()),
        price("time:10".parse().unwrap())
    );
    for text in ["time:0", "time:", "time:-1", "time:1.5"] {
        let error = text.parse::<CostModel>().unwrap_err().to_string();
        assert!(error.contains("such as time:10"), "{error}");
    }
}

#[test]
fn mixed_precision_halves_activations_and_adds_a_master() {
    let made = |vocab: usize, dtype: DType| {
        let config = GptConfig { vocab, ..small() };
        let mut layers = gpt(&config).unwrap();
        for layer in &mut layers {
            compute_in(layer.as_mut(), dtype);
        }
        layers
    };
    let mut layers = made(64, DType::BF16);
    let mixed = costs(&layers, Flow::u32([3, 6]));
    let single = costs(&made(64, DType::F32), Flow::u32([3, 6]));
    for ((_, mixed), (_, single)) in mixed.iter().zip(&single) {
        assert_eq!(mixed.outputs[0].dtype, DType::BF16);
        assert_eq!(mixed.outputs[0].shape, single.outputs[0].shape);
        assert_eq!(2 * mixed.outputs[0].bytes(), single.outputs[0].bytes());
        assert_eq!(mixed.flops(), single.flops());
        assert!(mixed.memory.forward_peak < single.memory.forward_peak);
        assert!(mixed.traffic < single.traffic);
    }
    // Rows of scores begin at multiples of 64 elements.
    let logits = |vocab: usize, dtype: DType| {
        let costs = costs(&made(vocab, dtype), Flow::u32([3, 6]));
        costs.last().map(|(_, cost)| cost.outputs[0].bytes())
    };
    assert_eq!(logits(65, DType::BF16), Some(2 * 3 * 6 * 128));
    assert_eq!(logits(65, DType::F32), Some(4 * 3 * 6 * 65));
    let mut rounded = made(65, DType::F32);
    rounded
        .iter_mut()
        .for_each(|layer| round_to_tf32(layer.as_mut()));
    let costs = costs(&rounded, Flow::u32([3, 6]));
    let bytes = |(_, cost): &(Vec<Flow>, Cost)| cost.outputs[0].bytes();
    assert_eq!(costs.last().map(bytes), Some(4 * 3 * 6 * 128));
    // Each half keeps what LayerNorm and attention know in single precision: two numbers a row of the
    // one, one a row and head of the other.
    let own = |(_, cost): &(Vec<Flow>, Cost)| cost.memory.saved_own;
    let rows = 3 * 6;
    let exact = 4 * rows * (2 + 2);
    assert_eq!(2 * (own(&mixed[1]) - exact), own(&single[1]) - exact);
    let optimizer = Optimizer::from(AdamW {
        beta2: 0.95,
        weight_decay: 0.0,
        decay: Decay::All,
        ..AdamW::default()
    });
    for layer in &mut layers {
        layer.params(&mut |param| {
            let tensors = if param.tied { 0 } else { 3 };
            assert_eq!(optimizer.state_bytes(param), tensors * 4 * param.elements());
        });
    }
}

#[test]
fn a_gpt_that_makes_no_sense_is_refused() {
    let broken: [fn(&mut GptConfig); 8] = [
        |c| c.vocab = 0,
        |c| c.context = 0,
        |c| c.width = 0,
        |c| c.heads = 3,
        |c| c.heads = 0,
        |c| c.width = usize::MAX,
        |c| c.dropout = 1.0,
        |c| c.layer_norm_eps = f32::NAN,
    ];
    for (i, breaks) in broken.into_iter().enumerate() {
        let mut config = small();
        breaks(&mut config);
        assert!(gpt(&config).is_err(), "{i}");
    }
}

/// Layers are made before anything can be said of their memory.
#[test]
fn more_layers_than_any_model_has_are_refused() {
    const MANY: usize = 10_001;
    let mlp = MlpConfig {
        inputs: 2,
        hidden: vec![1; MANY],
        outputs: 2,
        activation: Function::Relu,
        dropout: 0.0,
    };
    let encoder = Seq2SeqConfig {
        encoder_blocks: MANY,
        ..Seq2SeqConfig::default()
    };
    let decoder = Seq2SeqConfig {
        decoder_blocks: MANY,
        ..Seq2SeqConfig::default()
    };
    let llama = LlamaConfig {
        blocks: MANY,
        ..LlamaConfig::default()
    };
    let gpt = GptConfig {
        blocks: MANY,
        ..GptConfig::default()
    };
    for (model, what) in [
        (ModelConfig::Gpt(gpt), "gpt: blocks is 10001"),
        (ModelConfig::Llama(llama), "llama: blocks is 10001"),
        (ModelConfig::Mlp(mlp), "mlp: 10001 hidden layers"),
        (
            ModelConfig::Seq2Seq(encoder),
            "seq2seq: encoder_blocks is 10001",
        ),
        (
            ModelConfig::Seq2Seq(decoder),
            "seq2seq: decoder_blocks is 10001",
        ),
    ] {
        let refused = model.layers().err().map(|error| error.to_string());
        let refused = refused.unwrap_or_else(|| panic!("{what}"));
        assert!(refused.starts_with(what), "{refused}");
        assert!(refused.contains("10000"), "{refused}");
    }
}

#[test]
fn windows_that_no_block_or_every_block_has_are_refused_where_others_are_meant() {
    let config = |window, full_every, window_theta, gemma| LlamaConfig {
        blocks: 2,
        window,
        full_every,
        window_theta,
        gemma,
        ..LlamaConfig::default()
    };
    assert!(llama(&config(Some(4), Some(2), 1e4, true)).is_ok());
    for (config, named) in [
        (config(Some(4), Some(1), 1e4, false), "full_every is 1"),
        (config(None, Some(2), 1e4, false), "full_every is 2"),
        (config(Some(4), None, 1e4, true), "set full_every"),
        (config(None, None, 0.0, false), "window_theta is 0"),
    ] {
        let refused = llama(&config).err().map(|error| error.to_string());
        assert!(refused.unwrap().contains(named), "{config:?}");
    }
}

/// Networks that have no such layer promise it too: their share is read by others.
#[test]
fn a_dropout_that_no_layer_applies_is_refused_all_the_same() {
    for dropout in [1.0, -0.1, f32::NAN] {
        let image = |network: &str| {
            ModelConfig::Image(ImageConfig {
                network: network.parse().unwrap(),
                channels: 3,
                classes: 1,
                dropout,
            })
        };
        let llama = LlamaConfig {
            blocks: 0,
            dropout,
            ..LlamaConfig::default()
        };
        for model in [
            image("convnet:4"),
            image("unet:1,2"),
            image("resnet18"),
            image("amoebanetd:3,8"),
            ModelConfig::Llama(llama),
        ] {
            let refused = model.layers().err().map(|error| error.to_string());
            let refused = refused.unwrap_or_else(|| panic!("{model:?}"));
            assert!(
                refused.contains(&format!("dropout is {dropout}")),
                "{refused}"
            );
        }
    }
}
