//! Texts of an encoder-decoder through caches: against passes over the whole source and text, and beam search against
//! PyTorch.

use gpipe_layers::{Init, Param};
use serde_json::Value;

use super::beams::Beam;
use super::*;
use crate::config::{Overrides, Setting};

const GREEDY: Sampling = Sampling {
    temperature: 0.0,
    top_k: None,
    top_p: None,
};

/// The model of gpipe-layers/tests/seq2seq/reference.py.
fn config(stages: usize) -> TrainConfig {
    let settings = vec![
        Setting::new("model.name", "seq2seq-nano"),
        Setting::new("model.vocab", 11),
        Setting::new("model.width", 8),
        Setting::new("model.inner", 12),
        Setting::new("model.heads", 2),
        Setting::new("model.encoder_blocks", 2),
        Setting::new("model.decoder_blocks", 2),
        Setting::new("data.seq_len", 24),
        Setting::new("data.batch_size", 1),
        Setting::new("pipeline.micro_batches", 1),
        Setting::new("pipeline.stages", stages as i64),
    ];
    Overrides::new().layer(settings).unwrap().resolve().unwrap()
}

fn setup(config: &TrainConfig) -> Setup {
    let mut setup = Setup::new(config).unwrap();
    setup.params(&mut begin);
    setup
}

/// The value that a parameter has in the reference, whose texts are of different tokens.
fn begin(param: &mut Param) {
    let name = param.name.clone();
    let (scale, base) = match param.shape.dims() {
        &[_, inputs] => {
            let factor = if name.contains("emb") { 1.0 } else { 3.0 };
            let factor = if name.contains("softmax") {
                -1.0
            } else {
                factor
            };
            (factor * (3.0 / inputs as f64).sqrt(), 0.0)
        }
        _ if name.contains("softmax") => (-0.1, 0.0),
        _ if name.contains("norm") && name.ends_with("weight") => (0.1, 1.0),
        _ => (0.1, 0.0),
    };
    param.init = Init::from_fn(move |index| (base + scale * noise(&name, index)) as f32);
}

/// A number from -1 to below 1.
fn noise(name: &str, index: usize) -> f64 {
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let seed = name.bytes().fold(0x811C_9DC5, fnv);
    let mut hash = (index as u32)
        .wrapping_mul(2_654_435_761)
        .wrapping_add(seed);
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x045D_9F3B);
    f64::from(hash ^ hash >> 16) / f64::from(1_u32 << 31) - 1.0
}

fn generator(stages: usize, lines: &[&[u32]], tokens: usize, end: Option<u32>) -> Generator {
    let config = config(stages);
    let generation = Generation {
        sampling: GREEDY,
        tokens,
        ends: end.into_iter().collect(),
    };
    let lines = lines.iter().map(|line| line.to_vec()).collect();
    Generator::new(setup(&config), &config, lines, generation).unwrap()
}

fn generate(stages: usize, lines: &[&[u32]], end: Option<u32>) -> Vec<Vec<Generated>> {
    let mut generator = generator(stages, lines, 20, end);
    let mut texts = vec![Vec::new(); lines.len()];
    loop {
        let tokens = generator.next_tokens().unwrap();
        if tokens.is_empty() {
            return texts;
        }
        for one in tokens {
            texts[one.prompt].push(one);
        }
    }
}

/// The scores of the token after `text`, without a cache.
fn scores(run: &mut Assembled<OutputStage>, line: &[u32], text: &[u32]) -> Vec<f32> {
    let transit = run.transit.clone();
    let tensor = |all: &[u32]| Tensor::from_u32(&transit, [1, all.len()], all.to_vec()).unwrap();
    let ones = [1; 40];
    let input = [line, &ones[..line.len()], text, &ones[..text.len()]];
    let item = Item {
        micro_batch: MicroBatch::new(0, 0..1, 0, false),
        input: input.into_iter().map(tensor).collect(),
        target: (),
    };
    run.pipeline.forward(vec![item]).unwrap();
    let scores = run
        .pipeline
        .with_loss_stage(|turn| turn.take()[0].to_f32s());
    let scores = scores.unwrap();
    scores[scores.len() - scores.len() / text.len()..].to_vec()
}

#[test]
fn a_cache_changes_nothing_but_the_time() {
    let lines: [&[u32]; 3] = [&[7, 8, 9], &[5, 3, 1, 4, 4, 2, 9], &[3]];
    let all = generate(1, &lines, None);
    let config = config(1);
    let mut plain = setup(&config)
        .assemble_to(&config, |last, _| OutputStage::new(last))
        .unwrap();
    for (line, generated) in lines.iter().zip(&all) {
        let mut text = line[line.len() - 1..].to_vec();
        assert_eq!(generated.len(), 20);
        for one in generated {
            let scores = scores(&mut plain, line, &text);
            let wanted = GREEDY.choose(&scores, 0.0).unwrap();
            let apart = (one.log_probability - wanted.log_probability).abs();
            assert!(apart < 1e-4, "{apart} after {} tokens", text.len());
            let mut sorted = scores.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            if sorted[0] - sorted[1] > 1e-3 {
                assert_eq!(one.token as usize, wanted.token);
            }
            text.push(one.token);
        }
    }
    // A text that ends leaves the caches; the others go on as before.
    let end = all[0][3].token;
    for stages in [2, 3, 7] {
        assert_eq!(generate(stages, &lines, None), all);
        for (cut, whole) in generate(stages, &lines, Some(end)).iter().zip(&all) {
            let ends = whole.iter().position(|one| one.token == end);
            let tokens = |text: &[Generated]| text.iter().map(|one| one.token).collect::<Vec<_>>();
            let length = ends.map_or(whole.len(), |last| last + 1);
            assert_eq!(tokens(cut), tokens(&whole[..length]));
        }
    }
}

#[test]
fn beams_are_those_of_pytorch_at_every_number_of_stages() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("seq2seq_beams.json")).unwrap();
    assert_eq!(cases.len(), 12);
    for case in &cases {
        let tokens = |key: &str| -> Vec<u32> {
            let all = case[key].as_array().unwrap().iter();
            all.map(|token| token.as_u64().unwrap() as u32).collect()
        };
        let number = |key: &str| case[key].as_u64().unwrap() as usize;
        let search = |stages| -> Beam {
            let (line, end) = (tokens("line"), number("end") as u32);
            let generator = generator(stages, &[&line], number("tokens"), Some(end));
            generator.beam_search(number("beams")).unwrap()
        };
        let found = search(1);
        assert_eq!(found.tokens, tokens("text"), "{case}");
        let apart = (found.log_probability - case["ln"].as_f64().unwrap()).abs();
        assert!(apart < 1e-4, "{case}: {found:?}");
        for stages in [2, 5] {
            assert_eq!(search(stages), found, "{case}");
        }
    }
}
