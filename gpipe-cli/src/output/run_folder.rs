//! The folder of a run: what was asked for, what happened.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Event;
use super::tensorboard::{self, Scalars};
use crate::checkpoint::{self, Lock};
use crate::config::Config;
use crate::fail::{Fail, Result};

/// Where runs go that were given no folder.
pub const RUNS: &str = "runs";
const CONFIG: &str = "config.toml";
const LOG: &str = "log.txt";
const EVENTS: &str = "events.jsonl";
const TRACE: &str = "trace.json";
const TIMELINE: &str = "timeline.json";

/// A folder that does not exist yet, or that may be replaced: decided before the run is made, so
/// that nothing is left behind if it cannot be.
pub struct NewRun {
    path: Option<PathBuf>,
    overwrite: bool,
}

impl NewRun {
    /// The folder that was asked for, or a new one in `runs`.
    pub fn choose(path: Option<&Path>, overwrite: bool) -> Result<Self> {
        if let Some(path) = path {
            match fs::symlink_metadata(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(unmade(path, &error)),
                Ok(_) if !overwrite => return Err(taken(path)),
                Ok(_) if path.is_dir() => {}
                Ok(_) => {
                    let fault =
                        "is no folder, and --overwrite replaces folders only: choose another name";
                    return Err(Fail::asked(format!("--out {}: {fault}", path.display())));
                }
            }
        }
        Ok(Self {
            path: path.map(Path::to_owned),
            overwrite,
        })
    }

    /// Makes the folder and writes the configuration. Of an earlier run in the same place, the
    /// files that gpipe wrote are removed and all others left alone.
    pub fn create(self, config: &Config) -> Result<RunFolder> {
        let toml = config.to_toml().map_err(Fail::Run)?;
        let path = match &self.path {
            Some(path) => match make(path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && !self.overwrite => {
                    return Err(taken(path));
                }
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(unmade(path, &error));
                }
                _ => path.clone(),
            },
            None => make_new(&toml)?,
        };
        let lock = Lock::take(&path)?;
        remove_earlier(&path).map_err(|error| unmade(&path, &error))?;
        let file = path.join(CONFIG);
        fs::write(&file, toml).map_err(Fail::write(file.display()))?;
        Ok(RunFolder {
            log: Lines::create(path.join(LOG))?,
            events: Lines::create(path.join(EVENTS))?,
            scalars: Scalars::create(&path, None)?,
            path,
            _lock: lock,
        })
    }
}

impl RunFolder {
    /// Opens the folder of a run that goes on in it: `config.toml` is replaced, the log and the events
    /// go on. `first` is the step that is made next.
    pub fn reopen(path: PathBuf, lock: Lock, config: &Config, first: u64) -> Result<Self> {
        let toml = config.to_toml().map_err(Fail::Run)?;
        let (file, new) = (path.join(CONFIG), path.join(".config.toml.new"));
        fs::write(&new, toml)
            .and_then(|()| fs::rename(&new, &file))
            .map_err(Fail::write(file.display()))?;
        Ok(Self {
            log: Lines::reopen(path.join(LOG))?,
            events: Lines::reopen(path.join(EVENTS))?,
            scalars: Scalars::create(&path, Some(first))?,
            path,
            _lock: lock,
        })
    }
}

/// The name of a file of timelines that ends with a step: `timeline-until-00000120.json`.
fn until(name: &str, step: u64) -> String {
    let stem = name.trim_end_matches(".json");
    format!("{stem}-until-{step:08}.json")
}

/// Whether a name is one that [`until`] gives.
fn is_until(name: &str) -> bool {
    [TIMELINE, TRACE].into_iter().any(|whole| {
        let rest = name.strip_prefix(whole.trim_end_matches(".json"));
        let step = rest.and_then(|rest| rest.strip_prefix("-until-")?.strip_suffix(".json"));
        step.is_some_and(|step| step.parse().is_ok_and(|step| until(whole, step) == name))
    })
}

/// Removes the files that gpipe wrote, if there are any.
fn remove_earlier(folder: &Path) -> std::io::Result<()> {
    for name in [CONFIG, LOG, EVENTS, TRACE, TIMELINE] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let ours = |name: &str| tensorboard::is_ours(name) || is_until(name);
        if entry.file_name().to_str().is_some_and(ours) {
            fs::remove_file(entry.path())?;
        }
    }
    checkpoint::remove(folder)
}

/// `create_dir` with the folders above it; unlike `create_dir_all` it says if it was there already.
fn make(path: &Path) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::create_dir(path)
}

/// A new folder in `runs`, named after the time and the configuration.
fn make_new(toml: &str) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    toml.hash(&mut hasher);
    let hash = hasher.finish() & 0xff_ffff;
    let time: String = now().chars().filter(char::is_ascii_digit).collect();
    let (day, time) = time.split_at(8);
    let name = format!("{day}-{time}-{hash:06x}");
    // Runs that begin in the same second get a number.
    for number in 1_u32.. {
        let name = if number == 1 {
            name.clone()
        } else {
            format!("{name}-{number}")
        };
        let path = Path::new(RUNS).join(name);
        match make(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unmade(&path, &error)),
        }
    }
    Err(Fail::asked(format!(
        "no name is free in {RUNS}: choose one with --out"
    )))
}

fn taken(path: &Path) -> Fail {
    Fail::asked(format!(
        "--out {}: exists already: choose another folder, or --overwrite",
        path.display()
    ))
}

fn unmade(path: &Path, error: &std::io::Error) -> Fail {
    Fail::asked(format!(
        "--out {}: {error}: choose a folder that can be made",
        path.display()
    ))
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// The folder of a run that has begun.
pub struct RunFolder {
    path: PathBuf,
    log: Lines,
    events: Lines,
    scalars: Scalars,
    _lock: Lock,
}

impl RunFolder {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds to `log.txt` what people read.
    pub fn log(&mut self, text: &str) -> Result<()> {
        self.log.add(text.trim_end())
    }

    /// Adds to `events.jsonl` what programs read, and its curves to TensorBoard's file.
    pub fn event(&mut self, event: &Event) -> Result<()> {
        let line = event.to_json_at(&now())?;
        self.events.add(&line)?;
        match event.scalars() {
            Some((step, values)) => self.scalars.add(step, &values),
            None => Ok(()),
        }
    }

    /// Writes `timeline.json`, in the place of the last one only when it is whole.
    pub fn timeline(&self, json: &[u8]) -> Result<()> {
        let path = self.path.join(TIMELINE);
        let unfinished = self.path.join(format!("{TIMELINE}.new"));
        fs::write(&unfinished, json)
            .and_then(|()| fs::rename(&unfinished, &path))
            .map_err(Fail::write(path.display()))
    }

    /// `timeline.json` as an earlier process left it, unless it is larger than any that is written.
    pub fn earlier_timeline(&self) -> Option<Vec<u8>> {
        const LARGEST: u64 = 1 << 30;
        let path = self.path.join(TIMELINE);
        let found = fs::metadata(&path).ok()?;
        let fits = found.is_file() && found.len() <= LARGEST;
        fits.then(|| fs::read(&path).ok())?
    }

    /// Gives the timelines of a run that is resumed after a step names of their own, and says so.
    pub fn set_timeline_aside(&self, step: u64) -> Result<String> {
        for name in [TIMELINE, TRACE] {
            let (path, aside) = (self.path.join(name), self.path.join(until(name, step)));
            match fs::rename(&path, aside) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Fail::write(path.display())(error));
                }
                _ => {}
            }
        }
        Ok(format!(
            "the timelines of the steps before were made by another plan: they are in {}",
            until(TIMELINE, step)
        ))
    }

    /// Writes `trace.json`.
    pub fn trace(&self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
        let path = self.path.join(TRACE);
        let file = File::create(&path).map(std::io::BufWriter::new);
        file.and_then(|mut file| write(&mut file).and_then(|()| file.flush()))
            .map_err(Fail::write(path.display()))
    }
}

/// A file that grows by lines, each of which is written at once: it can be followed while it grows.
struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    fn create(path: PathBuf) -> Result<Self> {
        let file = File::create_new(&path).map_err(Fail::write(path.display()))?;
        Ok(Self { path, file })
    }

    /// Opens a file to go on with it. A line that was cut off is removed: nothing can read it.
    fn reopen(path: PathBuf) -> Result<Self> {
        let open = || {
            let mut options = File::options();
            let mut file = options.read(true).append(true).create(true).open(&path)?;
            let whole = whole_lines(&mut file)?;
            file.set_len(whole)?;
            Ok(file)
        };
        let file = open().map_err(Fail::write(path.display()))?;
        Ok(Self { path, file })
    }

    fn add(&mut self, line: &str) -> Result<()> {
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .map_err(Fail::write(self.path.display()))
    }
}

/// Bytes up to the end of the last whole line.
fn whole_lines(file: &mut File) -> std::io::Result<u64> {
    const PIECE: u64 = 1 << 16;
    let mut end = file.metadata()?.len();
    let mut piece = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(PIECE);
        file.seek(SeekFrom::Start(start))?;
        piece.clear();
        Read::by_ref(file)
            .take(end - start)
            .read_to_end(&mut piece)?;
        if let Some(last) = piece.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Settings;
    use crate::config::resolve;

    #[test]
    fn only_what_gpipe_wrote_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/run");
        let config = resolve(&Settings::default()).unwrap();
        let mut run = NewRun::choose(Some(&path), false)
            .unwrap()
            .create(&config)
            .unwrap();
        run.log("first").unwrap();
        run.trace(|file| file.write_all(b"{}")).unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();

        assert!(matches!(
            NewRun::choose(Some(&path), false),
            Err(Fail::Usage(_))
        ));
        assert!(matches!(
            NewRun::choose(Some(&path.join("notes.txt")), true),
            Err(Fail::Usage(_))
        ));

        // While it is at work, nobody else writes its folder.
        let chosen = NewRun::choose(Some(&path), true).unwrap();
        assert!(matches!(chosen.create(&config), Err(Fail::Usage(_))));
        drop(run);
        let mut run = NewRun::choose(Some(&path), true)
            .unwrap()
            .create(&config)
            .unwrap();
        run.log("second").unwrap();
        assert_eq!(fs::read_to_string(path.join(LOG)).unwrap(), "second\n");
        assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
        assert!(!path.join(TRACE).exists());
    }

    #[test]
    fn a_line_that_was_cut_off_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let long = "x".repeat(100_000);
        for (before, after) in [
            ("a\nb\ncut o", "a\nb\nnew\n".to_owned()),
            ("a\n", "a\nnew\n".to_owned()),
            ("cut", "new\n".to_owned()),
            ("", "new\n".to_owned()),
            (&format!("{long}\n{long}"), format!("{long}\nnew\n")),
        ] {
            fs::write(&path, before).unwrap();
            Lines::reopen(path.clone()).unwrap().add("new").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_folder_that_appears_in_between_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let chosen = NewRun::choose(Some(&path), false).unwrap();
        fs::create_dir(&path).unwrap();
        let config = resolve(&Settings::default()).unwrap();
        assert!(matches!(chosen.create(&config), Err(Fail::Usage(_))));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }
}
