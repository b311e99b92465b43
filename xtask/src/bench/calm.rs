//! Processor time that other programs and the hypervisor took while a run was measured.

use std::fs;

/// The most of the machine's processor time that others may take in a calm run.
const CALM: f64 = 0.05;
/// How often a run is measured until it was calm.
const ATTEMPTS: usize = 3;

/// Shares of the machine's processor time, 0 where the system does not tell (no `/proc`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// Of programs that are neither this one nor its children.
    pub busy: f64,
    /// Of the hypervisor: time in which this machine wanted to compute and had no processor.
    pub stolen: f64,
}

impl Others {
    /// Of both.
    pub fn share(&self) -> f64 {
        self.busy + self.stolen
    }

    /// Whether times measured beside them can be trusted.
    pub fn is_calm(&self) -> bool {
        self.share() <= CALM
    }

    /// The one that took more.
    pub fn worse(self, other: Self) -> Self {
        if self.share() < other.share() {
            other
        } else {
            self
        }
    }

    fn between(before: &Ticks, after: &Ticks) -> Self {
        let passed = |of: fn(&Ticks) -> u64| of(after).saturating_sub(of(before)) as f64;
        let total = passed(|ticks| ticks.total).max(1.0);
        let others = passed(|ticks| ticks.busy) - passed(|ticks| ticks.ours);
        Self {
            busy: others.max(0.0) / total,
            stolen: passed(|ticks| ticks.stolen) / total,
        }
    }
}

/// Ticks of all processors since the start of the machine (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    total: u64,
    busy: u64,
    stolen: u64,
    /// Of this process and of its children that have ended.
    ours: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        let machine = fs::read_to_string("/proc/stat").ok()?;
        Self::parse(&machine, &fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(machine: &str, process: &str) -> Option<Self> {
        let numbers = |text: &str, first: usize, count: usize| -> Option<Vec<u64>> {
            let words = text.split_whitespace().skip(first).take(count);
            let found: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
            (found.len() == count).then_some(found)
        };
        // Guests are counted in `user` and `nice` already.
        let all = numbers(machine.strip_prefix("cpu ")?, 0, 8)?;
        let &[user, nice, system, idle, wait, irq, soft_irq, stolen] = all.as_slice() else {
            return None;
        };
        let busy = user + nice + system + irq + soft_irq;
        // The name of the program, in parentheses, may hold spaces. Fields 14 to 17: times in user and
        // kernel mode, of the process and of its children.
        let times = numbers(process.rsplit_once(')')?.1, 11, 4)?;
        Some(Self {
            total: busy + idle + wait + stolen,
            busy,
            stolen,
            ours: times.iter().sum(),
        })
    }
}

/// Measures until the machine was calm, three times at most, and returns the calmest result and who
/// disturbed it.
pub fn measure<T>(run: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<(T, Others)> {
    measure_by(Ticks::now, run)
}

fn measure_by<T>(
    mut clock: impl FnMut() -> Option<Ticks>,
    mut run: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Others)> {
    let mut once = || {
        let before = clock();
        let result = run()?;
        let both = before.zip(clock());
        let others = both.map(|(before, after)| Others::between(&before, &after));
        anyhow::Ok((result, others.unwrap_or_default()))
    };
    let mut calmest = once()?;
    for attempt in 2..=ATTEMPTS {
        let others = calmest.1;
        if others.is_calm() {
            break;
        }
        eprintln!(
            "not calm: others took {:.0} % of the machine and the hypervisor {:.0} %; attempt {attempt} of {ATTEMPTS}",
            100.0 * others.busy,
            100.0 * others.stolen
        );
        let next = once()?;
        if next.1.share() < others.share() {
            calmest = next;
        }
    }
    Ok(calmest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_the_machine_and_of_the_process_are_read() {
        let machine = "cpu  10 2 3 50 5 1 4 7 9 9\ncpu0 1 2 3\n";
        let process = "17 (a (b) c) R 1 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0\n";
        let ticks = Ticks::parse(machine, process).unwrap();
        assert_eq!((ticks.total, ticks.busy, ticks.stolen), (82, 20, 7));
        assert_eq!(ticks.ours, 5 + 6 + 7 + 8);
        assert_eq!(Ticks::parse("cpu  10 2 3", process), None);
        assert_eq!(Ticks::parse(machine, "17 (a) R 1"), None);
    }

    #[test]
    fn a_disturbed_run_is_measured_again_and_the_calmest_kept() {
        // What others take of each 100 ticks, 20 of which are ours.
        let attempts = |taken: &[[u64; 2]]| {
            let mut taken = taken.iter();
            let mut now = Ticks {
                total: 0,
                busy: 0,
                stolen: 0,
                ours: 0,
            };
            let mut begins = false;
            let clock = move || {
                begins = !begins;
                if begins {
                    return Some(now);
                }
                let [busy, stolen] = taken.next()?;
                now.total += 100;
                now.busy += 20 + busy;
                now.ours += 20;
                now.stolen += stolen;
                Some(now)
            };
            let mut runs = 0;
            let run = || {
                runs += 1;
                Ok(runs)
            };
            let (kept, others) = measure_by(clock, run).unwrap();
            (kept, runs, others)
        };
        let (kept, runs, others) = attempts(&[[4, 0]]);
        assert_eq!((kept, runs, others.busy), (1, 1, 0.04));
        let (kept, runs, others) = attempts(&[[3, 30], [0, 1]]);
        assert_eq!((kept, runs, others.stolen), (2, 2, 0.01));
        let (kept, runs, others) = attempts(&[[60, 0], [30, 0], [50, 0]]);
        assert_eq!((kept, runs, others.is_calm()), (2, 3, false));
        assert!(measure_by(|| None, || anyhow::bail!("no run") as anyhow::Result<()>).is_err());
        let (_, unknown) = measure_by(|| None, || Ok(())).unwrap();
        assert!(unknown.is_calm());
    }
}
