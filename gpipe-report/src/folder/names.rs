//! Names of the files in a run's folder.

/// The configuration.
pub(crate) const CONFIG: &str = "config.toml";
/// Text for people.
pub(crate) const LOG: &str = "log.txt";
/// Events: one JSON object a line.
pub(crate) const EVENTS: &str = "events.jsonl";
/// Timelines for Perfetto.
pub(crate) const TRACE: &str = "trace.json";
/// The plan and the timelines of some steps.
pub(crate) const TIMELINE: &str = "timeline.json";

/// The identity of the run, written by the crate that saves its checkpoints.
pub(crate) const RUN: &str = "run.json";
/// Prefix of the folder in which a run that replaces another waits for its first step.
pub(crate) const STARTING: &str = ".starting-";

/// The page of a run, as `gpipe report` names it.
pub const PAGE: &str = "report.html";

/// The name of a file of timelines that ends with a step: `timeline-until-00000120.json`.
pub(crate) fn until(name: &str, step: u64) -> String {
    let stem = name.trim_end_matches(".json");
    format!("{stem}-until-{step:08}.json")
}

/// Whether a name is one that [`until`] gives.
pub(crate) fn is_until(name: &str) -> bool {
    [TIMELINE, TRACE].into_iter().any(|whole| {
        let rest = name.strip_prefix(whole.trim_end_matches(".json"));
        let step = rest.and_then(|rest| rest.strip_prefix("-until-")?.strip_suffix(".json"));
        step.is_some_and(|step| step.parse().is_ok_and(|step| until(whole, step) == name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_given_are_recognised() {
        assert_eq!(until(TIMELINE, 120), "timeline-until-00000120.json");
        for name in [TIMELINE, TRACE] {
            assert!(is_until(&until(name, 0)) && is_until(&until(name, u64::MAX)));
            assert!(!is_until(name));
        }
        for name in [
            "timeline-until-120.json",
            "timeline-until-+0000120.json",
            "timeline-until-.json",
            "log-until-00000120.json",
            "timeline-until-00000120.json.bak",
        ] {
            assert!(!is_until(name), "{name}");
        }
    }
}
