//! Every parser on mutations of good inputs. Inputs with an answer that was not heard before join
//! the corpus: answers stand for the paths through the parser.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::full;
use super::mutate::{Random, mutate};
use super::targets::{Target, all};

/// The most inputs that are mutated further.
const CORPUS: usize = 2_000;

/// What a session of fuzzing brought.
struct Session {
    accepted: usize,
    /// Kinds of answers.
    kinds: usize,
}

/// Runs a parser a number of times; returns the first input that it panics on.
fn fuzz(target: &Target, runs: usize, seed: u64) -> Result<Session, Vec<u8>> {
    let mut random = Random::new(seed);
    let mut corpus = target.seeds.clone();
    // By their hashes: a million answers in words would be a hundred megabytes.
    let mut heard: HashSet<u64> = HashSet::new();
    let mut accepted = 0;
    for run in 0..runs {
        let input = match target.seeds.get(run) {
            Some(seed) => seed.clone(),
            None => mutate(&mut random, &corpus, target.seeds.len(), target.words),
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let Ok(answer) = outcome else {
            return Err(input);
        };
        accepted += usize::from(answer.is_ok());
        let kind = match answer {
            // What was understood has as many kinds as lengths.
            Ok(text) => format!("understood {}", text.len() / 8),
            Err(text) => words(&text),
        };
        let mut hasher = DefaultHasher::new();
        kind.hash(&mut hasher);
        if heard.insert(hasher.finish()) && corpus.len() < CORPUS {
            corpus.push(input);
        }
    }
    Ok(Session {
        accepted,
        kinds: heard.len(),
    })
}

/// The words of a message without what was typed.
fn words(message: &str) -> String {
    let quotes_left_out = message.split(['`', '"']).step_by(2);
    let text: String = quotes_left_out.collect();
    text.chars()
        .filter(|c| !c.is_ascii_digit())
        .take(120)
        .collect()
}

/// The most memory that this process had at once, in KiB.
#[cfg(target_os = "linux")]
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|text| text.split_whitespace().next()?.parse().ok())
        .expect("a size")
}

#[test]
fn no_input_makes_a_parser_panic() {
    let runs = if full() { 1_000_000 } else { 400 };
    // Such as `GPIPE_PARSERS=manifest,tokenizer`: these only.
    let asked = std::env::var("GPIPE_PARSERS").ok();
    let is_asked = |target: &Target| match &asked {
        Some(names) => names.split(',').any(|name| name == target.name),
        None => true,
    };
    for target in all().into_iter().filter(is_asked) {
        #[cfg(target_os = "linux")]
        let before = peak();
        let session = fuzz(&target, runs, 1).unwrap_or_else(|input| {
            panic!(
                "{} panics on {:?}",
                target.name,
                String::from_utf8_lossy(&input)
            )
        });
        // Every seed is understood, and not all else is.
        let (accepted, kinds) = (session.accepted, session.kinds);
        assert!(
            accepted >= target.seeds.len() && accepted < runs,
            "{}: {accepted}",
            target.name
        );
        assert!(kinds >= 4, "{}: only {kinds} kinds of answers", target.name);
        println!(
            "{}: {runs} runs, {accepted} understood, {kinds} kinds of answers",
            target.name
        );
        println!("exam P1 {runs}/{runs}");
        // No input is longer than a few KiB: none may make a parser ask for 64 MiB. At full numbers
        // this test has the process to itself; otherwise the memory of others is counted with it.
        #[cfg(target_os = "linux")]
        if full() {
            let more = peak().saturating_sub(before);
            assert!(more < 64 << 10, "{} took {more} KiB more", target.name);
        }
    }
}

/// Parsers with faults of the kinds that parsers have: each is found.
mod teeth {
    use super::*;

    fn found(name: &str, run: fn(&[u8]) -> Result<String, String>) -> bool {
        let mut targets = all().into_iter();
        let target = targets
            .find(|target| target.name == name)
            .expect("such a target");
        fuzz(&Target { run, ..target }, 20_000, 1).is_err()
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// A length that the file claims is believed.
    fn believes(bytes: &[u8]) -> Result<String, String> {
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or("short")?;
        let length = u64::from_le_bytes(*length);
        if length > 1 << 40 {
            return Err("long".into());
        }
        Ok(format!("{}", rest[..length as usize].len()))
    }

    /// Sums that wrap.
    fn wraps(bytes: &[u8]) -> Result<String, String> {
        let mut sum = 0u64;
        for cost in text(bytes).split(',') {
            let cost = cost
                .trim()
                .parse::<u64>()
                .map_err(|error| error.to_string())?;
            sum = sum.checked_add(cost).expect("costs that fit");
        }
        Ok(sum.to_string())
    }

    /// A column counted in bytes, within a character.
    fn slices(bytes: &[u8]) -> Result<String, String> {
        let text = text(bytes);
        Ok(text[..text.len().min(6)].to_owned())
    }

    /// What is written is not what was read.
    fn forgets(bytes: &[u8]) -> Result<String, String> {
        let written = gpipe_cli::parsers::config(bytes)?;
        let forgotten = written.replace("seed = 0", "seed = 1");
        let again = gpipe_cli::parsers::config(forgotten.as_bytes());
        assert_eq!(again.as_ref(), Ok(&written));
        Ok(written)
    }

    #[test]
    fn every_planted_fault_is_found() {
        let found = [
            found("safetensors", believes),
            found("costs", wraps),
            found("setting", slices),
            found("config", forgets),
        ];
        assert_eq!(found, [true; 4]);
        println!("exam P1 teeth 4/4");
    }
}
