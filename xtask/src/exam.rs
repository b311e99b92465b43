//! The exam: what the tests check in seconds, at the numbers that one wants before trusting a
//! night's training to the program, and the proof that each row can fail.
//!
//! A row is a name, the number it must reach, and the tests that count. Those tests live in the
//! crates, like all others, and `cargo test` runs them at small numbers; the exam sets
//! `GPIPE_EXAM=full`. Each prints how much of what it tried went well, and the exam adds it up:
//!
//! ```text
//! exam F1 212/212                    a test of row F1
//! exam F1 teeth 6/6                  faults planted for row F1, and caught
//! ```

mod numbers;
mod rows;
mod run;
mod tally;
mod test;

use std::time::Instant;

use xshell::Shell;

use crate::flags::Exam;
use numbers::Numbers;
use rows::{Row, rows};
use run::Outcome;

/// Runs the rows that are asked for, and fails if one does.
pub fn run(shell: &Shell, flags: &Exam) -> anyhow::Result<()> {
    let asked = select(rows(), flags)?;
    if flags.list {
        for row in &asked {
            println!("{:<8} {}", row.name, row.what);
        }
        return Ok(());
    }
    let numbers = if flags.quick {
        Numbers::Small
    } else {
        Numbers::Full
    };
    let started = Instant::now();
    let (mut failed, mut left_out) = (Vec::new(), 0);
    for row in &asked {
        let started = Instant::now();
        let result = if flags.teeth {
            run::teeth(shell, row)
        } else {
            run::row(shell, row, numbers)
        };
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(Outcome::Passed(counted)) => println!("{:<8} {counted}  {seconds:.1} s", row.name),
            Ok(Outcome::LeftOut(why)) => {
                println!("{:<8} left out: {why}", row.name);
                left_out += 1;
            }
            Err(fault) => {
                println!("{:<8} failed  {seconds:.1} s\n{fault:#}", row.name);
                failed.push(row.name);
            }
        }
    }
    let (seconds, rows) = (started.elapsed().as_secs_f64(), asked.len());
    anyhow::ensure!(
        failed.is_empty(),
        "{} of {rows} rows failed: {}",
        failed.len(),
        failed.join(", ")
    );
    println!("{}", passed(rows - left_out, left_out, seconds));
    Ok(())
}

/// The last line of an exam without failures.
fn passed(rows: usize, left_out: usize, seconds: f64) -> String {
    let others = match left_out {
        0 => String::new(),
        count => format!(", {count} left out"),
    };
    let ending = if rows == 1 { "" } else { "s" };
    format!("{rows} row{ending} passed{others} in {seconds:.0} s")
}

/// The rows that are named, or all; of these, the quick ones only or those with teeth only.
fn select(rows: Vec<Row>, flags: &Exam) -> anyhow::Result<Vec<Row>> {
    for name in &flags.row {
        anyhow::ensure!(
            rows.iter().any(|row| row.name.eq_ignore_ascii_case(name)),
            "no row is named {name}: see cargo xtask exam --list"
        );
    }
    let named = |row: &Row| {
        flags.row.is_empty()
            || flags
                .row
                .iter()
                .any(|name| row.name.eq_ignore_ascii_case(name))
    };
    let fits = |row: &Row| {
        let quick = !flags.quick || row.quick || !flags.row.is_empty();
        quick && (!flags.teeth || row.teeth.is_some())
    };
    let chosen: Vec<Row> = rows
        .into_iter()
        .filter(|row| named(row) && fits(row))
        .collect();
    anyhow::ensure!(!chosen.is_empty(), "none of these rows has teeth");
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(row: &[&str], quick: bool, teeth: bool) -> Exam {
        let row = row.iter().map(|&name| name.to_owned()).collect();
        Exam {
            row,
            list: false,
            quick,
            teeth,
        }
    }

    fn names(flags: &Exam) -> Vec<&'static str> {
        let rows = select(rows(), flags).expect("rows");
        rows.iter().map(|row| row.name).collect()
    }

    #[test]
    fn rows_that_were_left_out_have_not_passed() {
        assert_eq!(passed(3, 0, 9.6), "3 rows passed in 10 s");
        assert_eq!(passed(1, 0, 9.6), "1 row passed in 10 s");
        assert_eq!(passed(2, 1, 9.6), "2 rows passed, 1 left out in 10 s");
    }

    #[test]
    fn rows_are_chosen_by_name_speed_and_teeth() {
        let every = names(&asked(&[], false, false));
        let unique: std::collections::BTreeSet<_> = every.iter().collect();
        assert_eq!(unique.len(), every.len(), "a name is there twice");
        assert_eq!(names(&asked(&["f1"], false, false)), ["F1"]);
        let quick = names(&asked(&[], true, false));
        assert!(quick.len() < every.len() && quick.iter().all(|name| every.contains(name)));
        assert!(!names(&asked(&[], false, true)).is_empty());
        let error = select(rows(), &asked(&["Z9"], false, false));
        let error = error.err().expect("no such row").to_string();
        assert!(error.contains("Z9") && error.contains("--list"), "{error}");
    }
}
