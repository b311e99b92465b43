//! TensorBoard's event files: scalars by step, as its own readers open them.
//!
//! A file is a sequence of records, each framed as a TFRecord:
//!
//! ```text
//! length: u64 | masked CRC-32C of the length: u32 | data | masked CRC-32C of the data: u32
//! ```
//!
//! The data are protocol buffers, the message `Event` of tensorflow/core/util/event.proto: the few
//! fields that scalars need are written by hand. Numbers are little-endian.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gpipe_files::{Error as FileError, Fault};

use crate::clock::since_1970;
use crate::error::Result;
use crate::folder::lines::append;

/// Prefix of an event file's name, followed by the seconds since 1970; TensorBoard looks for it and
/// reads the files of a folder in the order of their names.
const PREFIX: &str = "events.out.tfevents.";
/// Suffix of an event file's name: the program that wrote it.
const SUFFIX: &str = ".gpipe";

/// Fields of `Event`, of `Summary`, of `Summary.Value` and of `SessionLog`.
mod field {
    pub const WALL_TIME: u32 = 1;
    pub const STEP: u32 = 2;
    pub const FILE_VERSION: u32 = 3;
    pub const SUMMARY: u32 = 5;
    pub const SESSION_LOG: u32 = 7;
    pub const VALUE: u32 = 1;
    pub const TAG: u32 = 1;
    pub const SIMPLE_VALUE: u32 = 2;
    pub const STATUS: u32 = 1;
}

/// `SessionLog.START`: earlier records from this step on belong to a run that was cut short.
const START: u64 = 1;

/// Whether a file of this name was written by [`TensorBoard`].
pub(crate) fn is_event_file(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// An event file that grows by records, each of which is written at once: `tensorboard --logdir`
/// follows it.
///
/// ```
/// use std::time::SystemTime;
/// use gpipe_report::TensorBoard;
///
/// let folder = tempfile::tempdir()?;
/// let now = SystemTime::UNIX_EPOCH;
/// let mut curves = TensorBoard::create(folder.path(), None, now)?;
/// curves.add(1, &[("loss/train".to_owned(), 2.5)], now)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
}

impl TensorBoard {
    /// The file was moved to another folder.
    pub(crate) fn moved_to(&mut self, folder: &Path) {
        self.path = folder.join(self.path.file_name().unwrap_or_default());
    }

    /// Creates a file in a folder that may hold earlier ones. With `first`, the step that comes next,
    /// TensorBoard drops that step and later ones of the earlier files.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if it cannot be written.
    pub fn create(folder: &Path, first: Option<u64>, now: SystemTime) -> Result<Self> {
        let now = since_1970(now);
        // Names must ascend: a run that is resumed within the second, or by a clock that was set back,
        // gets the second after the newest file's.
        let mut seconds = now.as_secs();
        if let Some(newest) = newest(folder) {
            seconds = seconds.max(newest + 1);
        }
        let (path, file) = loop {
            let path = folder.join(format!("{PREFIX}{seconds:010}{SUFFIX}"));
            match gpipe_files::create_new(&path) {
                Ok(file) => break (path, file),
                Err(error) if exists(&error) => seconds += 1,
                Err(error) => return Err(error.into()),
            }
        };
        let mut curves = Self { path, file };
        curves.write(&header(now))?;
        if let Some(step) = first {
            curves.write(&restart(now, step))?;
        }
        Ok(curves)
    }

    /// Adds the values of a step by their tags.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if the file cannot be written.
    pub fn add(&mut self, step: u64, values: &[(String, f64)], now: SystemTime) -> Result<()> {
        self.write(&summary(since_1970(now), step, values))
    }

    fn write(&mut self, event: &[u8]) -> Result<()> {
        let written = append(&mut self.file, &frame(event));
        Ok(written.map_err(FileError::write(&self.path))?)
    }
}

/// The second in the newest name of a folder.
fn newest(folder: &Path) -> Option<u64> {
    let second = |entry: io::Result<fs::DirEntry>| -> Option<u64> {
        let name = entry.ok()?.file_name();
        let digits = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        // Names with more digits would not sort by their numbers.
        digits.parse().ok().filter(|_| digits.len() == 10)
    };
    fs::read_dir(folder).ok()?.filter_map(second).max()
}

fn exists(error: &FileError) -> bool {
    matches!(error.fault(), Fault::Write(error) if error.kind() == ErrorKind::AlreadyExists)
}

/// The first event of a file.
fn header(time: Duration) -> Vec<u8> {
    let mut event = timed(time);
    bytes(&mut event, field::FILE_VERSION, b"brain.Event:2");
    event
}

fn restart(time: Duration, step: u64) -> Vec<u8> {
    let mut log = Vec::new();
    number(&mut log, field::STATUS, START);
    let mut event = timed(time);
    number(&mut event, field::STEP, step);
    bytes(&mut event, field::SESSION_LOG, &log);
    event
}

fn summary(time: Duration, step: u64, values: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut message = Vec::new();
        bytes(&mut message, field::TAG, tag.as_bytes());
        key(&mut message, field::SIMPLE_VALUE, 5);
        message.extend((*value as f32).to_le_bytes());
        bytes(&mut summary, field::VALUE, &message);
    }
    let mut event = timed(time);
    number(&mut event, field::STEP, step);
    bytes(&mut event, field::SUMMARY, &summary);
    event
}

/// An event with nothing but its time.
fn timed(time: Duration) -> Vec<u8> {
    let mut event = Vec::new();
    key(&mut event, field::WALL_TIME, 1);
    event.extend(time.as_secs_f64().to_le_bytes());
    event
}

/// A field's number with its wire type: 0 a varint, 1 eight bytes, 2 a length and bytes, 5 four
/// bytes.
fn key(message: &mut Vec<u8>, field: u32, wire_type: u32) {
    varint(message, u64::from(field << 3 | wire_type));
}

fn number(message: &mut Vec<u8>, field: u32, value: u64) {
    key(message, field, 0);
    varint(message, value);
}

fn bytes(message: &mut Vec<u8>, field: u32, value: &[u8]) {
    key(message, field, 2);
    varint(message, value.len() as u64);
    message.extend(value);
}

/// Seven bits a byte, the lowest first; all but the last have the high bit set.
fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// The data in a TFRecord's frame.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let parts = [
        &length[..],
        &masked_crc(&length).to_le_bytes(),
        data,
        &masked_crc(data).to_le_bytes(),
    ];
    parts.concat()
}

/// CRC-32C, rotated and shifted: a plain checksum of data that contain checksums would be weak.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What TensorBoard's `RecordWriter` made of the same three events.
    const RECORDED: &str = "\
        1800000000000000a37f4b22\
        09000010582248da411a0d627261696e2e4576656e743a32\
        8ccbddc7\
        36000000000000004f578cef\
        09000060582248da4110ac022a280a110a0a6c6f73732f747261696e150000204\
        00a130a0c6f7074696d697a65722f6c721552499d39\
        5d3e86be\
        0f000000000000006d532b09\
        09000080582248da41100c3a020801\
        27d1efe7";

    #[test]
    fn records_are_those_of_tensorboard() {
        let time = |millis: u64| Duration::from_millis(1_763_740_000_000 + millis);
        let values = [
            ("loss/train".to_owned(), 2.5),
            ("optimizer/lr".to_owned(), 3e-4),
        ];
        let events = [
            header(time(250)),
            summary(time(1500), 300, &values),
            restart(time(2000), 12),
        ];
        let written: String = events
            .iter()
            .flat_map(|event| frame(event))
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(written, RECORDED);
    }

    #[test]
    fn a_file_of_the_same_second_or_an_earlier_one_comes_after() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        let names: Vec<String> = [now, now, now - Duration::from_secs(1 << 29)]
            .into_iter()
            .chain([SystemTime::UNIX_EPOCH - Duration::from_secs(1)])
            .map(|now| TensorBoard::create(folder.path(), Some(1), now).unwrap())
            .map(|curves| {
                curves
                    .path
                    .file_name()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        assert!(
            names.is_sorted() && names.iter().all(|name| is_event_file(name)),
            "{names:?}"
        );
        assert_eq!(folder.path().read_dir().unwrap().count(), 4);
    }
}
