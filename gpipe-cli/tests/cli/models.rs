//! Models in folders: evaluated, sampled from, and refused where they are none.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::parity::recorded;
use super::{assert_keys, gpipe, objects, stderr, stdout};

/// Runs a command on the recorded model.
pub fn on_recorded(command: &str, arguments: &[&str]) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let model = recorded().join("model");
    let first = [command, model.to_str().unwrap(), "--threads", "2"];
    gpipe(folder.path(), &[&first, arguments].concat())
}

#[test]
fn an_evaluation_is_the_loss_before_the_first_step_at_any_number_of_stages() {
    let text = recorded().join("text.txt");
    let eval = |stages: &str| {
        let arguments = [
            "--data",
            text.to_str().unwrap(),
            "--seq-len",
            "32",
            "--stages",
            stages,
            "--json",
        ];
        let objects = objects(&on_recorded("eval", &arguments));
        assert_eq!(objects.len(), 1);
        assert_keys(
            &objects[0],
            &["accuracy", "kind", "loss", "perplexity", "step", "tokens"],
        );
        objects[0].clone()
    };
    let [one, five] = ["1", "5"].map(eval);
    assert_eq!(one, five);
    assert_eq!(one["tokens"], 2048);
    let [loss, perplexity] = ["loss", "perplexity"].map(|key| one[key].as_f64().unwrap());
    // Untrained: about as good as a guess.
    assert!((loss - 256f64.ln()).abs() < 0.1, "{loss}");
    assert_eq!(perplexity, loss.exp());
}

#[test]
fn a_text_is_a_function_of_the_model_the_prompt_and_the_seed() {
    let tokens = |arguments: &[&str]| -> Vec<Value> {
        let arguments = [
            &["--prompt", "The pipe", "--tokens", "6", "--json"],
            arguments,
        ]
        .concat();
        let mut tokens = objects(&on_recorded("sample", &arguments));
        // At the end, how fast it was.
        let sampled = tokens.pop().unwrap();
        let keys = ["kind", "seconds", "tokens", "tokens_per_second"];
        assert_keys(&sampled, &keys);
        assert_eq!(sampled["tokens"], tokens.len());
        tokens
    };
    let greedy = tokens(&["--temperature", "0", "--stages", "1"]);
    assert_eq!(greedy.len(), 6);
    for token in &greedy {
        assert_keys(
            token,
            &["kind", "log_probability", "prompt", "text", "token"],
        );
        assert!(token["log_probability"].as_f64().unwrap() < 0.0);
    }
    assert_eq!(
        greedy,
        tokens(&["--temperature", "0", "--stages", "5", "--seed", "9"])
    );
    assert_eq!(greedy, tokens(&["--top-k", "1"]));
    let warm = tokens(&["--temperature", "1.5", "--seed", "3"]);
    assert_eq!(
        warm,
        tokens(&["--temperature", "1.5", "--seed", "3", "--stages", "2"])
    );
    assert_ne!(warm, tokens(&["--temperature", "1.5", "--seed", "4"]));

    let output = on_recorded(
        "sample",
        &["--prompt", "The pipe", "--tokens", "6", "--seed", "3"],
    );
    assert!(
        stdout(&output).starts_with("The pipe"),
        "{}",
        stderr(&output)
    );
    // Of a text with more tokens than the model knows positions, the last ones count.
    let long = "The pipe drains slowly, and then it fills. ".repeat(4);
    let [all, last] = [&long[..], &long[long.len() - 64..]].map(|prompt| {
        let arguments = [
            "--prompt",
            prompt,
            "--tokens",
            "3",
            "--temperature",
            "0",
            "--json",
        ];
        objects(&on_recorded("sample", &arguments))[..3].to_vec()
    });
    assert_eq!(all, last);
    assert_eq!(
        objects(&on_recorded("sample", &["--tokens", "70", "--json"])).len(),
        71
    );
    // Of the likeliest token alone every share is a part.
    assert_eq!(greedy, tokens(&["--top-p", "1e-9"]));
    // Several texts at once, each as if it were alone.
    let texts = |prompts: &[&str]| {
        let prompts = prompts.iter().flat_map(|&prompt| ["--prompt", prompt]);
        let common = ["--tokens", "6", "--temperature", "0"];
        stdout(&on_recorded(
            "sample",
            &prompts.chain(common).collect::<Vec<_>>(),
        ))
    };
    let [one, two] = ["The pipe", "Water"].map(|prompt| texts(&[prompt]));
    assert_eq!(texts(&["The pipe", "Water"]), one + &two);
}

#[test]
fn what_is_no_model_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], words: &[&str]| {
        let output = gpipe(folder.path(), arguments);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        for word in words {
            assert!(message.contains(word), "{arguments:?}: {message}");
        }
        assert_eq!(stdout(&output), "");
    };
    let copy = |name: &str, change: &dyn Fn(&Path)| {
        let copy = folder.path().join(name);
        fs::create_dir(&copy).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(recorded().join("model").join(file), copy.join(file)).unwrap();
        }
        change(&copy);
    };
    let edit = |from: &'static str, to: &'static str| {
        move |folder: &Path| {
            let path = folder.join("config.json");
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{from}");
            fs::write(path, text.replace(from, to)).unwrap();
        }
    };
    fs::create_dir(folder.path().join("empty")).unwrap();
    refused(
        &["sample", "empty"],
        &["empty", "a run's folder, a checkpoint"],
    );
    refused(&["eval", "nowhere"], &["nowhere", "config.json"]);
    refused(
        &["train", "--model", "./nowhere"],
        &["nowhere", "config.json"],
    );
    copy("whole", &|_| {});
    refused(
        &["sample", "whole", "--temperature", "-1"],
        &["--temperature -1", "from 0 up"],
    );
    refused(
        &["sample", "whole", "--top-k", "0"],
        &["--top-k 0", "from 1 up"],
    );
    refused(&["sample", "whole", "--top-p", "0"], &["--top-p 0"]);
    refused(&["sample", "whole", "--tokens", "0"], &["--tokens 0"]);
    refused(
        &["sample", "whole", "--beams", "0"],
        &["--beams 0: use a whole number from 1 up"],
    );
    refused(&["sample", "whole", "--prompt", ""], &["--prompt"]);
    refused(
        &["train", "--model", "whole", "--set", "model.blocks=3"],
        &["model.blocks = 3", "whole has 5", "leave"],
    );
    refused(
        &["train", "--model", "whole", "--seq-len", "65"],
        &["65 tokens", "--seq-len 64"],
    );
    copy("layers", &edit("\"n_layer\": 5", "\"n_layer\": 1000000000"));
    refused(
        &["train", "--model", "layers"],
        &["n_layer is 1000000000", "10000"],
    );
    copy("missing", &edit("\"n_layer\": 5", "\"n_layer\": 6"));
    refused(
        &["train", "--model", "missing"],
        &["transformer.h.5.", "and 11 more"],
    );
    copy(
        "wide",
        &edit("\"vocab_size\": 256", "\"vocab_size\": 4294967295"),
    );
    refused(
        &["train", "--model", "wide", "--tokenizer", "bytes"],
        &["transformer.wte.weight", "[256, 48]"],
    );
    copy(
        "scaled",
        &edit("inverse_layer_idx\": false", "inverse_layer_idx\": true"),
    );
    refused(
        &["train", "--model", "scaled"],
        &["scale_attn_by_inverse_layer_idx"],
    );
    copy("cut", &|folder: &Path| {
        let path = folder.join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 2]).unwrap();
    });
    refused(
        &["train", "--model", "cut"],
        &["model.safetensors", "bytes of data"],
    );
    assert!(!folder.path().join("runs").exists());
}
