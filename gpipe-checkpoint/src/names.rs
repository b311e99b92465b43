//! Names in `RUN/checkpoints`.

/// The folder in a run's folder that holds its checkpoints.
pub const FOLDER: &str = "checkpoints";

/// The manifest of a checkpoint.
pub const MANIFEST: &str = "manifest.json";
/// What rank 0 writes to see who finds it, in a checkpoint's folder before it has its name.
pub const PROBE: &str = "probe";
/// The configuration of the run, in a checkpoint's folder.
pub const CONFIG: &str = "config.toml";
/// The [`RunState`](crate::RunState), in a checkpoint's folder.
pub const STATE: &str = "state.json";
/// The optimizer's state, in a checkpoint's folder; or it is there in [parts](crate::Manifest::parts).
pub const OPTIMIZER: &str = "optimizer.safetensors";
/// The [`Identity`](crate::Identity) of the run, in its folder and in a checkpoint's.
pub const RUN: &str = "run.json";
/// The folder of the model's files, in a checkpoint's folder.
pub const MODEL: &str = "model";
/// The pointer to the newest checkpoint.
pub const LATEST: &str = "latest";
/// The pointer to the checkpoint with the least loss on the held-out samples.
pub const BEST: &str = "best";
/// Prefix of what is still being written.
pub const PARTIAL: &str = ".partial-";
/// Prefix of what is being deleted.
pub const DISCARDED: &str = ".discarded-";
/// Prefix of a folder in the place of a pointer, which is set aside; earlier versions gave it to a checkpoint that was not
/// whole.
pub const DAMAGED: &str = "damaged-";

/// The folder of the checkpoint after a step.
pub fn of_step(step: u64) -> String {
    format!("step-{step:08}")
}

/// The step of a checkpoint's folder.
pub fn step_of(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.parse().ok()?;
    (of_step(step) == name).then_some(step)
}

/// The components of a name in a manifest, if it can only mean a file below the checkpoint's folder:
/// at most four plain names between slashes.
pub fn components(name: &str) -> Option<Vec<&str>> {
    const MOST: usize = 4;
    const LONGEST: usize = 255;
    let plain = |part: &&str| {
        !matches!(*part, "" | "." | "..")
            && part.len() <= LONGEST
            && !part.contains(['\\', ':'])
            && !part.chars().any(char::is_control)
    };
    let parts: Vec<&str> = name.split('/').collect();
    (parts.len() <= MOST && parts.iter().all(plain)).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_steps_are_one_to_one() {
        for step in [0, 1, 120, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(step_of(&of_step(step)), Some(step));
        }
        assert_eq!(of_step(120), "step-00000120");
        for name in [
            "step-120",
            "step-+0000120",
            "step-",
            "step-0000012x",
            "latest",
            "step-000000120",
        ] {
            assert_eq!(step_of(name), None, "{name}");
        }
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        assert_eq!(
            components("model/model.safetensors"),
            Some(vec!["model", "model.safetensors"])
        );
        for name in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "model/../../x",
            "model//x",
            "./x",
            "x/",
            "C:x",
            "a\\b",
            "a\nb",
            "a/b/c/d/e",
        ] {
            assert_eq!(components(name), None, "{name:?}");
        }
        assert_eq!(components(&"x".repeat(256)), None);
    }
}
