//! Texts through caches against passes over the whole text, at every number of stages.

use super::*;
use crate::config::{Overrides, Setting};

const CONTEXT: usize = 24;
const LENGTH: i64 = CONTEXT as i64;

fn config(model: &str, stages: usize) -> TrainConfig {
    let settings = vec![
        Setting::new("model.name", model),
        Setting::new("model.blocks", 3),
        Setting::new("model.context", LENGTH),
        Setting::new("data.seq_len", LENGTH),
        Setting::new("data.batch_size", 1),
        Setting::new("pipeline.micro_batches", 1),
        Setting::new("pipeline.stages", stages as i64),
    ];
    Overrides::new().layer(settings).unwrap().resolve().unwrap()
}

const GREEDY: Sampling = Sampling {
    temperature: 0.0,
    top_k: None,
    top_p: None,
};

fn generate(
    model: &str,
    stages: usize,
    prompts: &[&[u32]],
    generation: Generation,
) -> Vec<Vec<Generated>> {
    let config = config(model, stages);
    let setup = Setup::new(&config).unwrap();
    let prompts: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt.to_vec()).collect();
    let mut texts = vec![Vec::new(); prompts.len()];
    let mut generator = Generator::new(setup, &config, prompts, generation).unwrap();
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

fn generation(sampling: Sampling, tokens: usize) -> Generation {
    Generation {
        sampling,
        tokens,
        ends: Vec::new(),
    }
}

/// The scores of the token after `text`, without a cache.
fn scores(run: &mut Assembled<OutputStage>, text: &[u32]) -> Vec<f32> {
    let input = Tensor::from_u32(&run.transit, [1, text.len()], text.to_vec()).unwrap();
    let item = Item {
        micro_batch: MicroBatch::new(0, 0..1, 0, false),
        input: Tensors::from_iter([input]),
        target: (),
    };
    run.pipeline.forward(vec![item]).unwrap();
    let scores = run
        .pipeline
        .with_loss_stage(|turn| turn.take()[0].to_f32s())
        .unwrap();
    scores[scores.len() - scores.len() / text.len()..].to_vec()
}

#[test]
fn a_cache_changes_nothing_but_the_time() {
    ["gpt-nano", "llama-nano"].into_iter().for_each(same_texts);
}

fn same_texts(model: &str) {
    let prompts: [&[u32]; 4] = [&[7, 8, 9], &[5, 3, 1], &[3], &[1; 30]];
    let all = generate(model, 1, &prompts, generation(GREEDY, 30));
    let config = config(model, 1);
    let mut plain = Setup::new(&config)
        .unwrap()
        .assemble_to(&config, |last, _| OutputStage::new(last))
        .unwrap();
    for (prompt, generated) in prompts.iter().zip(&all) {
        let mut text = prompt.to_vec();
        assert_eq!(generated.len(), 30);
        for one in generated {
            // Beyond the context, the window moves.
            let scores = scores(&mut plain, &text[text.len().saturating_sub(CONTEXT)..]);
            let wanted = GREEDY.choose(&scores, 0.0).unwrap();
            let near = (one.log_probability - wanted.log_probability).abs();
            assert!(near < 1e-4, "{near} after {} tokens", text.len());
            let mut sorted = scores.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            if sorted[0] - sorted[1] > 1e-3 {
                assert_eq!(one.token as usize, wanted.token);
            }
            text.push(one.token);
        }
    }
    for stages in [2, 3, 5] {
        assert_eq!(
            generate(model, stages, &prompts, generation(GREEDY, 30)),
            all
        );
    }
}

#[test]
fn a_text_ends_with_a_token_that_ends_it_and_the_others_go_on() {
    let warm = Sampling {
        temperature: 1.0,
        ..GREEDY
    };
    let prompts: [&[u32]; 2] = [&[7, 8, 9], &[3, 4]];
    let whole = generate("gpt-nano", 2, &prompts, generation(warm, 12));
    assert_ne!(whole[0][0].token, whole[1][0].token);
    let end = whole[0][4].token;
    let first = |text: &[Generated]| text.iter().position(|one| one.token == end);
    let ends = vec![end];
    let cut = generate(
        "gpt-nano",
        2,
        &prompts,
        Generation {
            ends,
            ..generation(warm, 12)
        },
    );
    for (cut, whole) in cut.iter().zip(&whole) {
        let tokens = |text: &[Generated]| text.iter().map(|one| one.token).collect::<Vec<_>>();
        let length = first(whole).map_or(12, |last| last + 1);
        assert_eq!(tokens(cut), tokens(&whole[..length]));
        assert_eq!(cut.last().unwrap().ends, first(whole).is_some());
    }
}

#[test]
fn the_caches_are_let_go_with_their_texts() {
    let config = config("gpt-nano", 2);
    let setup = Setup::new(&config).unwrap();
    let prompts = vec![vec![1, 2], vec![3], vec![4]];
    let mut generator = Generator::new(setup, &config, prompts, generation(GREEDY, 5)).unwrap();
    let bytes = |generator: &mut Generator| -> usize {
        let all = generator
            .run
            .pipeline
            .gather(|_, stage| Ok::<_, gpipe_remat::Error>(stage.cache_bytes()));
        all.unwrap().into_iter().sum()
    };
    assert_eq!(bytes(&mut generator), 0);
    generator.next_tokens().unwrap();
    let three = bytes(&mut generator);
    assert!(three > 0);
    generator.keep(&[0, 2]).unwrap();
    assert_eq!(bytes(&mut generator), three / 3 * 2);
}

#[test]
fn as_many_beams_as_tokens_find_the_likeliest_text() {
    let config = config("gpt-nano", 1);
    let mut plain = Setup::new(&config)
        .unwrap()
        .assemble_to(&config, |last, _| OutputStage::new(last))
        .unwrap();
    let prompt = [7, 8, 9];
    let vocab = config.model.vocab().unwrap();
    let log_probabilities = |scores: Vec<f32>| -> Vec<f64> {
        let sum: f64 = scores.iter().map(|&score| f64::from(score).exp()).sum();
        let of = |&score: &f32| f64::from(score) - sum.ln();
        scores.iter().map(of).collect()
    };
    let first = log_probabilities(scores(&mut plain, &prompt));
    let mut best = (f64::NEG_INFINITY, [0; 2]);
    for (token, probability) in first.iter().enumerate() {
        let text = [&prompt[..], &[token as u32]].concat();
        let next = log_probabilities(scores(&mut plain, &text));
        for (last, next) in next.iter().enumerate() {
            if probability + next > best.0 {
                best = (probability + next, [token as u32, last as u32]);
            }
        }
    }
    let search = |stages, beams, tokens, ends: &[u32]| {
        let config = self::config("gpt-nano", stages);
        let setup = Setup::new(&config).unwrap();
        let generation = Generation {
            ends: ends.to_vec(),
            ..generation(GREEDY, tokens)
        };
        let generator = Generator::new(setup, &config, vec![prompt.to_vec()], generation).unwrap();
        generator.beam_search(beams).unwrap()
    };
    let found = search(1, vocab, 2, &[]);
    assert_eq!(found.tokens, best.1);
    assert!((found.log_probability - best.0).abs() < 1e-4, "{found:?}");
    // One beam is the likeliest token each time; caches change places in every stage.
    let greedy = generate("gpt-nano", 1, &[&prompt], generation(GREEDY, 12));
    let greedy: Vec<u32> = greedy[0].iter().map(|one| one.token).collect();
    assert_eq!(search(2, 1, 12, &[]).tokens, greedy);
    let four = search(1, 4, 12, &[]);
    assert!(four.log_probability >= search(1, 1, 12, &[]).log_probability);
    for stages in [2, 5] {
        assert_eq!(search(stages, 4, 12, &[]), four);
    }
    // Nothing goes on after a token that ends it.
    let end = four.tokens[3];
    let ended = search(2, 4, 12, &[end]).tokens;
    let first = ended.iter().position(|&token| token == end);
    assert_eq!(first.map_or(12, |last| last + 1), ended.len());
}

/// More beams than there are texts are as many as those; more than memory are refused before they are made.
#[test]
fn beams_beyond_memory_are_refused() {
    let search = |beams, prompts: usize, tokens| {
        let config = config("gpt-nano", 2);
        let setup = Setup::new(&config).unwrap();
        let generation = Generation {
            ends: vec![0],
            ..generation(GREEDY, tokens)
        };
        let generator = Generator::new(setup, &config, vec![vec![7]; prompts], generation);
        generator.unwrap().beam_search(beams)
    };
    assert_eq!(search(usize::MAX, 1, 1).unwrap().tokens.len(), 1);
    for tokens in [16, usize::MAX] {
        let said = search(usize::MAX / 2 + 1, 1, tokens)
            .unwrap_err()
            .to_string();
        assert!(said.contains("use --beams "), "{said}");
    }
    for (beams, prompts, tokens, words) in [
        (0, 1, 2, "--beams 0: use a whole number from 1 up"),
        (2, 2, 2, "--beams 2 with 2 prompts: use one --prompt"),
        (2, 1, 0, "--tokens 0: use a whole number from 1 up"),
    ] {
        let said = search(beams, prompts, tokens).unwrap_err().to_string();
        assert_eq!(said, words);
    }
}
