//! The profile file, `profile.json`: read if it was measured like this, and written.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use gpipe_report::numbers;
use serde::Deserialize;

use super::measurements::{FORMAT, Passes, Profile};
use crate::error::{Error, Result};

/// Maximum size of a profile in bytes: far more than the kinds of layers of any model.
const MOST_BYTES: u64 = 16 << 20;

/// Reads a profile: `None` if there is no file, an error if it does not match `here`.
pub fn read(path: &Path, here: &Profile) -> std::result::Result<Option<Profile>, String> {
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        about => about.map_err(|error| error.to_string())?,
    };
    if !about.is_file() || about.len() > MOST_BYTES {
        return Err("not a profile file".to_owned());
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    parse(&bytes, here).map(Some)
}

/// Parses a profile and checks that it was measured like `here`.
fn parse(bytes: &[u8], here: &Profile) -> std::result::Result<Profile, String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if version.format != FORMAT {
        return Err(format!("format {} is not supported", version.format));
    }
    let profile: Profile = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if profile.gpipe != here.gpipe {
        return Err(format!("measured by gpipe {}", profile.gpipe));
    }
    if profile.processor != here.processor {
        return Err(format!(
            "measured on another machine, {}",
            profile.processor
        ));
    }
    if profile.instructions != here.instructions {
        return Err(format!(
            "measured with other instructions, {}",
            profile.instructions
        ));
    }
    if profile.threads != here.threads {
        return Err(format!(
            "measured on {}",
            numbers::counted(profile.threads as u64, "thread")
        ));
    }
    let sizes = || profile.kinds.values().flatten();
    let numbers = sizes().flat_map(|size| size.times.iter().flat_map(Passes::seconds));
    let sane = numbers
        .chain([profile.action_seconds])
        .all(|seconds| seconds.is_finite() && seconds >= 0.0);
    let whole = sizes().all(|size| {
        let threads = size.times.iter().map(|times| times.threads);
        size.samples > 0
            && size.times.first().is_some_and(|t| t.threads == 1)
            && threads.is_sorted()
    });
    let sorted = profile
        .kinds
        .values()
        .all(|sizes| !sizes.is_empty() && sizes.is_sorted_by(|a, b| a.samples < b.samples));
    if !(sane && whole && sorted) {
        return Err("it has invalid times".to_owned());
    }
    Ok(profile)
}

/// Writes the file and creates its folder.
pub fn write(path: &Path, profile: &Profile) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| {
            let folder = folder.display();
            Error::invalid(format!(
                "{folder}: {error}: make it a folder that can be written, or leave --profile out"
            ))
        })?;
    }
    let text = serde_json::to_string_pretty(profile).map_err(Error::run)?;
    gpipe_files::replace(path, (text + "\n").as_bytes()).map_err(|error| {
        match error.is_input_error() {
            true => Error::input(error),
            false => Error::run(error),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::measurements::tests::{kinds, profile};
    use super::*;

    #[test]
    fn a_profile_of_another_machine_or_with_invalid_times_is_refused() {
        let here = profile();
        let spoilt = |change: &dyn Fn(&mut Profile)| {
            let mut other = profile();
            change(&mut other);
            let text = serde_json::to_vec(&other).unwrap();
            parse(&text, &here)
        };
        assert_eq!(spoilt(&|_| {}), Ok(here.clone()));
        type Case<'a> = (&'a dyn Fn(&mut Profile), &'a str);
        let faults: [Case<'_>; 8] = [
            (&|p| p.format = 2, "format 2"),
            (&|p| p.gpipe = "0".into(), "gpipe 0"),
            (&|p| p.processor = "q".into(), "another machine, q"),
            (&|p| p.instructions = "j".into(), "other instructions, j"),
            (&|p| p.threads = 8, "8 threads"),
            (&|p| p.action_seconds = -1.0, "invalid times"),
            (
                &|p| p.kinds.get_mut("a").unwrap().reverse(),
                "invalid times",
            ),
            (
                &|p| p.kinds.get_mut("a").unwrap()[0].times.clear(),
                "invalid times",
            ),
        ];
        for (change, words) in faults {
            let fault = spoilt(change).unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
        for text in [
            "",
            "{",
            "{\"format\":1}",
            "null",
            "[1]",
            "{\"format\":1e99}",
        ] {
            assert!(parse(text.as_bytes(), &here).is_err(), "{text}");
        }
    }

    #[test]
    fn a_profile_without_operations_is_read() {
        let text = serde_json::to_string(&profile()).unwrap();
        let old = text
            .replace(",\"operation\":0.25", "")
            .replace(",\"operation\":0.125", "");
        assert!(old.len() < text.len() && !old.contains("operation"));
        let read = parse(old.as_bytes(), &profile()).unwrap();
        let times = read.times(&kinds("a"), 8).unwrap();
        assert_eq!((times.work[0].forward, times.work[0].operation), (8.0, 0.0));
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs/profile.json");
        let here = profile();
        assert_eq!(read(&path, &here), Ok(None));
        write(&path, &here).unwrap();
        assert_eq!(read(&path, &here), Ok(Some(here.clone())));
        assert!(read(folder.path(), &here).is_err());
        let error = write(&path.join("profile.json"), &here).unwrap_err();
        assert!(error.is_input_error());
        assert!(error.to_string().contains("leave --profile out"), "{error}");
    }
}
