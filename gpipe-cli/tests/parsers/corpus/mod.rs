//! Inputs that have broken parsers elsewhere, made here by name: each is refused in one line that
//! says why, or understood, and none takes the program down.

mod checkpoints;
mod files;
mod models;
mod tables;
mod tokenizers;
mod values;
mod weights;

use super::targets::{Target, all};

/// One hostile input: for which parser, what it is, its bytes, and a word of the answer; an empty
/// word if it may also be understood.
struct Hostile {
    parser: &'static str,
    what: String,
    bytes: Vec<u8>,
    word: &'static str,
}

fn hostile(
    parser: &'static str,
    what: impl Into<String>,
    bytes: impl Into<Vec<u8>>,
    word: &'static str,
) -> Hostile {
    Hostile {
        parser,
        what: what.into(),
        bytes: bytes.into(),
        word,
    }
}

fn corpus() -> Vec<Hostile> {
    [
        files::all(),
        tables::all(),
        values::all(),
        weights::all(),
        checkpoints::all(),
        models::all(),
        tokenizers::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What an answer must be: one line, no control characters, not a copy of the input.
fn fault(answer: &Result<String, String>, hostile: &Hostile) -> Option<String> {
    let Err(line) = answer else {
        return (!hostile.word.is_empty()).then(|| "it was understood".into());
    };
    if line.trim().is_empty() {
        return Some("the answer is empty".into());
    }
    // Libraries and clap leave that to the code that displays their errors.
    let libraries = ["schedule table", "safetensors", "names", "command line"];
    let ours = !libraries.contains(&hostile.parser);
    if ours && (line.chars().any(char::is_control) || line.chars().count() > 700) {
        return Some("the answer is more than a line".into());
    }
    (!line.contains(hostile.word)).then(|| {
        let start: String = line.chars().take(200).collect();
        format!("the answer does not say `{}`: {start}", hostile.word)
    })
}

#[test]
fn hostile_inputs_are_refused_by_name() {
    let targets = all();
    let corpus = corpus();
    let (mut files, mut faults) = (0, Vec::new());
    for hostile in &corpus {
        let find = |target: &&Target| target.name == hostile.parser;
        // A build without the feature `tokenizers` does not have that one.
        let Some(target) = targets.iter().find(find) else {
            assert_eq!(hostile.parser, "tokenizer");
            continue;
        };
        let fault = fault(&(target.run)(&hostile.bytes), hostile);
        faults.extend(
            fault.map(|fault| format!("{}, {:.80}: {fault}", hostile.parser, hostile.what)),
        );
        files += 1;
    }
    assert!(
        faults.is_empty(),
        "{} of {files}:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(files >= 150, "{files}");
    println!("exam P3 {files}/{files}");
}

#[test]
fn a_check_that_nothing_fails_would_be_none() {
    let hostile = |word| hostile("costs", "a list", "1,x", word);
    let answers: [(Result<String, String>, &str); 6] = [
        (Err("whole\nand more".into()), "whole"),
        (Err("whole".repeat(1_000)), "whole"),
        (Ok("1".into()), "whole"),
        (Err(String::new()), ""),
        (Err(" ".into()), "whole"),
        (Err("no".into()), "whole"),
    ];
    let seen = answers
        .iter()
        .filter(|(answer, word)| fault(answer, &hostile(word)).is_some());
    assert_eq!(seen.count(), answers.len());
    assert!(fault(&Err("whole numbers".into()), &hostile("whole")).is_none());
    println!("exam P3 teeth {0}/{0}", answers.len());
}
