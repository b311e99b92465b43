//! What the tests of a row said: how much was tried, how much went well.

use std::fmt;

/// Things that were tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many went as they should.
    pub good: u64,
    /// How many there were.
    pub all: u64,
}

impl Tally {
    /// Adds up the lines `exam NAME 12/12` in what the tests printed. `NAME` may be of several
    /// words (`F1 teeth`); the test harness may have begun the line with words of its own.
    pub fn read(output: &str, name: &str) -> Self {
        let mark = format!("exam {name} ");
        let found = output.lines().filter_map(|line| {
            let (_, counts) = line.split_once(&mark)?;
            let (good, all) = counts.split_whitespace().next()?.split_once('/')?;
            Some((good.parse::<u64>().ok()?, all.parse::<u64>().ok()?))
        });
        found.fold(Self::default(), |sum, (good, all)| Self {
            good: sum.good.saturating_add(good),
            all: sum.all.saturating_add(all),
        })
    }

    /// Adds up what the test harness says itself: `test result: ok. 12 passed; 1 failed`.
    pub fn passed(output: &str) -> Self {
        let mut sum = Self::default();
        for line in output
            .lines()
            .filter(|line| line.starts_with("test result:"))
        {
            let words: Vec<&str> = line.split([' ', '.', ';']).collect();
            let count = |of: &str| -> u64 {
                let found = words.windows(2).find(|pair| pair[1] == of);
                found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
            };
            sum.good += count("passed");
            sum.all += count("passed") + count("failed");
        }
        sum
    }

    /// Whether everything went well, and enough was tried.
    pub fn check(self, at_least: u64) -> anyhow::Result<Self> {
        anyhow::ensure!(self.all > 0, "no test of this row said a word");
        anyhow::ensure!(self.good == self.all, "only {self} went well");
        anyhow::ensure!(
            self.all >= at_least,
            "{self}, but {at_least} were to be tried"
        );
        Ok(self)
    }
}

/// What the tests of a row measured: the lines `figure C9 12 ms`.
pub fn figures<'a>(output: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let mark = format!("figure {name} ");
    output.lines().filter_map(move |line| {
        let (_, figure) = line.split_once(&mark)?;
        Some(figure)
    })
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.good, self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 2 tests\ntest a ... exam F1 600/600\nok\nexam F1 12/13 of more\n\
                          exam F10 5/5\nexam F1 teeth 3/3\nexam F1 many\n";

    #[test]
    fn the_lines_of_a_row_are_added_up() {
        let read = |name| Tally::read(OUTPUT, name);
        assert_eq!(
            read("F1"),
            Tally {
                good: 612,
                all: 613
            }
        );
        assert_eq!(read("F1 teeth"), Tally { good: 3, all: 3 });
        assert_eq!(read("F10"), Tally { good: 5, all: 5 });
        assert_eq!(read("F2"), Tally::default());
    }

    #[test]
    fn what_was_measured_is_handed_on() {
        let said = "test x ... figure C9 12 ms\nfigure C1 3\nfigure C9 4 %\n";
        assert_eq!(figures(said, "C9").collect::<Vec<_>>(), ["12 ms", "4 %"]);
    }

    #[test]
    fn the_harness_counts_too() {
        let said = "test result: ok. 12 passed; 0 failed; 0 ignored\nx\ntest result: FAILED. 3 passed; 2 failed;";
        assert_eq!(Tally::passed(said), Tally { good: 15, all: 17 });
        assert_eq!(Tally::passed("nothing"), Tally::default());
    }

    #[test]
    fn silence_failures_and_too_few_are_faults() {
        let fault = |good, all| Tally { good, all }.check(10).err().map(|e| e.to_string());
        assert_eq!(fault(10, 10), None);
        assert_eq!(
            fault(0, 0).as_deref(),
            Some("no test of this row said a word")
        );
        assert_eq!(fault(11, 12).as_deref(), Some("only 11/12 went well"));
        assert_eq!(fault(9, 9).as_deref(), Some("9/9, but 10 were to be tried"));
    }
}
