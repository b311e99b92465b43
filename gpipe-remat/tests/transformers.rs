//! Transformers of every family, whole, with frozen parts and with adapters: the bits of one stage and the predicted bytes at
//! any number of stages, under any schedule and policy, on any number of threads, and nothing changes but what is to be
//! trained; dropout included.

#[path = "common/faulty.rs"]
mod faulty;
#[path = "common/host.rs"]
mod host;
#[path = "common/ways.rs"]
mod ways;

use faulty::Faulty;
use gpipe_layers::models::{GptConfig, LlamaConfig, Seq2SeqConfig, gpt, llama, seq2seq};
use gpipe_layers::{AdamW, Flow, Layer, LoraSettings, Loss, Optimizer, freeze};
use gpipe_remat::{
    Assembly, AssemblyBuilder, ModelCosts, ParameterBytes, Policy, Trainer, copy_owned,
    micro_batches, predict_memory,
};
use gpipe_tensor::{Device, DeviceId, Tensor};
use host::host;
use ways::{Outcome, Way};

const SAMPLES: usize = 5;
const MICRO_BATCHES: usize = 3;
const TIME: usize = 7;
const VOCAB: usize = 13;

type Layers = Vec<Box<dyn Layer>>;

/// A model of which everything trains.
type Family = fn() -> Layers;

/// What is trained.
struct Case {
    layers: Box<dyn Fn() -> Layers>,
    /// Whether a parameter of this name changes.
    trains: fn(&str) -> bool,
    loss: Loss,
    /// Whether the model takes segments and a target beside the source.
    has_targets: bool,
}

impl Case {
    fn new(layers: impl Fn() -> Layers + 'static) -> Self {
        Self {
            layers: Box::new(layers),
            trains: |_| true,
            loss: Loss::CrossEntropy,
            has_targets: false,
        }
    }

    fn adapted(family: Family, targets: &'static [&str]) -> Self {
        Self {
            trains: |name| name.contains("lora_"),
            ..Self::new(move || adapted(family, targets))
        }
    }

    /// What the first layer takes, for a number of samples.
    fn flow(&self) -> impl Fn(usize) -> Vec<Flow> + use<> {
        let count = if self.has_targets { 4 } else { 1 };
        move |samples| vec![Flow::u32([samples, TIME]); count]
    }

    /// A batch: ids, and for an encoder-decoder their segments, two in each row with padding after them, then ids of the
    /// target and segments of other lengths.
    fn inputs(&self, device: &Device) -> Vec<Tensor> {
        let segment = |first: usize, end: usize| {
            move |i: usize| match (i / TIME, i % TIME) {
                (row, position) if position < first + row % 2 => 1,
                (row, position) if position < end - row % 3 => 2,
                _ => 0,
            }
        };
        let mut all = vec![tensor(device, id(0))];
        if self.has_targets {
            all.push(tensor(device, segment(3, TIME)));
            all.push(tensor(device, id(2)));
            all.push(tensor(device, segment(2, TIME - 1)));
        }
        all
    }

    fn builder(&self, way: Way) -> AssemblyBuilder {
        Assembly::builder((self.layers)())
            .batch(SAMPLES, self.flow())
            .stages(way.stages)
            .with_schedule(way.schedule(MICRO_BATCHES))
            .policy(way.policy)
            .loss(self.loss)
            .seed(7)
    }

    /// Trains this many steps; the values of all parameters by name stand beside the outcome.
    fn train(&self, way: Way, steps: u64) -> (Outcome, Vec<(String, Vec<f32>)>) {
        let host = host(way.threads);
        let cpu = host.device(DeviceId::Cpu).expect("a processor");
        let (inputs, targets) = (self.inputs(&cpu), tensor(&cpu, id(1)));
        let optimizer = Optimizer::from(AdamW::default());
        let assembled = self.builder(way).optimizer(&optimizer).build(&host);
        let mut trainer =
            Trainer::new(assembled.expect("an assembly"), optimizer.clone(), |_| 0.01);
        let mut bits = Vec::new();
        for _ in 0..steps {
            let step = trainer.step(&inputs, &targets);
            bits.push(step.expect("a step").loss.to_bits());
        }
        let run = trainer.run();
        let counted = run.devices.iter().map(|device| device.peak_bytes());
        let counted = counted.collect();
        let values = copy_owned(&mut run.pipeline, &run.transit).expect("room");
        let values = values
            .into_iter()
            .map(|param| (param.name, param.value.to_f32s().expect("floats").to_vec()));
        let values: Vec<(String, Vec<f32>)> = values.collect();
        let all = values.iter().flat_map(|(_, values)| values);
        bits.extend(all.map(|value| u64::from(value.to_bits())));

        let builder = self.builder(way).optimizer(&optimizer);
        let mut plan = builder.plan(way.threads).expect("a plan");
        let ranges = micro_batches(SAMPLES, MICRO_BATCHES).expect("a size");
        let costs = ModelCosts::new(&plan.layers, &ranges, self.flow()).expect("a model");
        let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
        let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
        let predicted = memory.iter().map(|memory| memory.peak()).collect();
        let outcome = Outcome {
            bits,
            counted,
            predicted,
        };
        (outcome, values)
    }

    /// Trains in each of the ways that the exam or a test takes.
    fn every_way(&self, small: usize) {
        let (_, before) = self.train(Way::ONE, 0);
        let (_, after) = self.train(Way::ONE, 2);
        for ((name, before), (_, after)) in before.iter().zip(&after) {
            assert_eq!(before != after, (self.trains)(name), "{name}");
        }
        Way::compare("N5", small, |way| self.train(way, 2).0);
    }
}

/// A value for each position of a batch.
fn tensor(device: &Device, value: impl Fn(usize) -> u32) -> Tensor {
    let values = (0..SAMPLES * TIME).map(value).collect();
    Tensor::from_u32(device, [SAMPLES, TIME], values).expect("small")
}

fn id(of: usize) -> impl Fn(usize) -> u32 {
    move |i| ((i * 7 + i * i + of) % VOCAB) as u32
}

fn a_gpt() -> Layers {
    let config = GptConfig {
        vocab: VOCAB,
        context: TIME,
        width: 12,
        blocks: 3,
        heads: 3,
        dropout: 0.1,
        ..GptConfig::default()
    };
    gpt(&config).expect("a model")
}

/// With groups of heads, a window, biases and a head of its own.
fn a_llama() -> Layers {
    let config = LlamaConfig {
        vocab: VOCAB,
        context: TIME,
        width: 12,
        inner: 20,
        blocks: 3,
        heads: 4,
        kv_heads: 2,
        head_size: 4,
        tied: false,
        qkv_bias: true,
        window: Some(4),
        dropout: 0.1,
        ..LlamaConfig::default()
    };
    llama(&config).expect("a model")
}

/// With the embedding's matrix in the head, and one pair of keys and values.
fn tied() -> LlamaConfig {
    LlamaConfig {
        vocab: VOCAB,
        context: TIME,
        width: 12,
        inner: 20,
        blocks: 3,
        heads: 3,
        kv_heads: 1,
        head_size: 6,
        tied: true,
        ..LlamaConfig::default()
    }
}

/// With heads that are normalized.
fn a_tied_llama() -> Layers {
    let config = LlamaConfig {
        qk_norm: true,
        ..tied()
    };
    llama(&config).expect("a model")
}

/// With windows in two of three blocks, and all that Gemma has of its own.
fn a_gemma() -> Layers {
    let config = LlamaConfig {
        window: Some(2),
        full_every: Some(2),
        gemma: true,
        ..tied()
    };
    llama(&config).expect("a model")
}

fn an_encoder_decoder(transparent: bool) -> Layers {
    let config = Seq2SeqConfig {
        transparent,
        vocab: VOCAB,
        width: 12,
        inner: 20,
        encoder_blocks: 2,
        decoder_blocks: 2,
        heads: 3,
        dropout: 0.1,
        ..Seq2SeqConfig::default()
    };
    seq2seq(&config).expect("a model")
}

/// Whether a GPT's parameter comes after its embeddings and first block.
fn is_above(name: &str) -> bool {
    let below = ["wte", "wpe", "h.0."];
    !below.iter().any(|part| name.contains(part))
}

/// The model with adapters of rank 8 on the layers in whose names one of these is found, and all else frozen.
fn adapted(family: Family, targets: &[&str]) -> Layers {
    let settings = LoraSettings {
        rank: 8,
        alpha: 16.0,
        dropout: 0.2,
    };
    let mut layers = family();
    for layer in &mut layers {
        let of = |name: &str| targets.iter().any(|target| name.contains(target));
        let adapt = layer.adapt(&mut |name| of(name).then_some(settings));
        adapt.expect("settings that mean something");
        freeze(layer.as_mut(), |param| !param.name.contains("lora_"));
    }
    layers
}

#[test]
fn a_llama_trains_to_the_bits_of_one_stage() {
    Case::new(a_llama).every_way(2);
    Case::new(a_tied_llama).every_way(3);
    Case::new(a_gemma).every_way(3);
}

/// Packed rows with padding, label smoothing, and a memory that every layer of the decoder reads; also one that is a mean
/// over all layers of the encoder.
#[test]
fn an_encoder_decoder_trains_to_the_bits_of_one_stage() {
    for transparent in [false, true] {
        let case = Case {
            loss: Loss::SmoothedCrossEntropy(0.1),
            has_targets: true,
            ..Case::new(move || an_encoder_decoder(transparent))
        };
        case.every_way(2);
    }
}

#[test]
fn a_gpt_with_a_frozen_beginning_trains_to_the_bits_of_one_stage() {
    let frozen = || {
        let mut layers = a_gpt();
        for layer in &mut layers {
            freeze(layer.as_mut(), |param| !is_above(&param.name));
        }
        layers
    };
    let case = Case {
        trains: is_above,
        ..Case::new(frozen)
    };
    case.every_way(2);
}

/// As `peft` adapts it by default, and with adapters wherever there can be some.
#[test]
fn adapters_of_a_gpt_train_to_the_bits_of_one_stage() {
    Case::adapted(a_gpt, &["c_attn"]).every_way(2);
    Case::adapted(a_gpt, &["attn", "mlp"]).every_way(2);
}

#[test]
fn adapters_of_a_llama_train_to_the_bits_of_one_stage() {
    Case::adapted(a_llama, &["q_proj", "v_proj"]).every_way(2);
    Case::adapted(a_llama, &["self_attn", "mlp"]).every_way(2);
    Case::adapted(a_tied_llama, &["q_proj", "v_proj"]).every_way(2);
}

#[test]
fn teeth_a_layer_that_is_not_the_same_again_is_seen() {
    let case = Case::new(|| {
        let mut layers = adapted(a_llama, &["q_proj", "v_proj"]);
        layers.insert(2, Box::new(Faulty::default()));
        layers
    });
    let way = Way {
        policy: Policy::Stage,
        ..Way::ONE
    };
    let (wanted, got) = (case.train(Way::ONE, 2).0, case.train(way, 2).0);
    assert!(got.bits != wanted.bits, "the bits are the same");
    println!("exam N5 teeth 1/1");
}
