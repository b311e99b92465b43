//! Every check that a change must pass.

mod step;
mod steps;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use xshell::Shell;

use self::step::Step;
use self::steps::steps;
use crate::flags::Ci;
use crate::tree::Tree;

/// The steps whose names start with one of these, or all; an error if one of them starts no name.
fn asked(mut steps: Vec<Step>, only: &[String]) -> anyhow::Result<Vec<Step>> {
    let starts = |step: &Step, name: &String| step.name.starts_with(name.as_str());
    for name in only {
        anyhow::ensure!(
            steps.iter().any(|step| starts(step, name)),
            "no step's name starts with {name}: see cargo xtask ci --list"
        );
    }
    steps.retain(|step| only.is_empty() || only.iter().any(|name| starts(step, name)));
    Ok(steps)
}

/// Runs the steps in order, stops at the first that fails, and says how long each took.
pub fn run(shell: &Shell, root: &Path, flags: &Ci) -> anyhow::Result<()> {
    let mut steps = asked(steps(&Tree::read(root)?, root)?, &flags.only)?;
    let left_out = |step: &Step| {
        (flags.no_test && step.name == "test")
            || (flags.static_checks && !step.is_static())
            || (flags.no_static_checks && step.is_static())
    };
    steps.retain(|step| !left_out(step));
    anyhow::ensure!(!steps.is_empty(), "no step is left of those asked for");
    if flags.list {
        for step in &steps {
            println!("{}", step.name);
        }
        return Ok(());
    }
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for step in &steps {
        println!("\n== {}", step.name);
        let start = Instant::now();
        step.run(shell, root)
            .with_context(|| format!("step `{}` failed", step.name))?;
        times.push((&step.name, start.elapsed()));
    }
    println!();
    for (name, time) in &times {
        println!("{:>7.1} s  {name}", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!(
        "{:>7.1} s  {} steps passed",
        total.as_secs_f64(),
        times.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_asked_for_is_that_of_a_step() {
        let names = |only: &[&str]| -> anyhow::Result<Vec<String>> {
            let steps = ["tidy", "test", "test docs"].map(|name| Step::cargo(name, ""));
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            let steps = asked(steps.into(), &only)?;
            Ok(steps.into_iter().map(|step| step.name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), 3);
        assert_eq!(names(&["test"]).unwrap(), ["test", "test docs"]);
        let refused = names(&["tidy", "tset"]).unwrap_err().to_string();
        assert!(refused.contains("starts with tset: see"), "{refused}");
    }
}
