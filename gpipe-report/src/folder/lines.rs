//! Text files that grow by lines.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use gpipe_files::Error as FileError;

use crate::error::Result;

/// A file that grows by lines, each of which is written at once: readers can follow it.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    /// `None` as long as it cannot be opened.
    file: Option<File>,
}

impl Lines {
    /// Creates a file that is not there yet.
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        let file = Some(gpipe_files::create_new(&path)?);
        Ok(Self { path, file })
    }

    /// Opens a file to append to it. A last line without its end is removed: nothing can read it. One that cannot be
    /// written is an error of each line: the run goes on without it.
    ///
    /// # Errors
    /// If something else than a file is in its place.
    pub(crate) fn reopen(path: PathBuf) -> Result<Self> {
        let file = match open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.is_input_error() => return Err(error.into()),
            Err(_) => None,
        };
        Ok(Self { path, file })
    }

    /// The file was moved to another folder.
    pub(crate) fn moved_to(&mut self, folder: &Path) {
        self.path = folder.join(self.path.file_name().unwrap_or_default());
    }

    /// Appends a line.
    pub(crate) fn add(&mut self, line: &str) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open(&self.path)?),
        };
        let written = append(file, format!("{line}\n").as_bytes());
        Ok(written.map_err(FileError::write(&self.path))?)
    }
}

/// Opens a file at the end of its last whole line.
fn open(path: &Path) -> gpipe_files::Result<File> {
    gpipe_files::separate(path)?;
    let mut file = gpipe_files::append(path)?;
    let opened = whole_lines(&mut file).and_then(|whole| file.set_len(whole));
    opened.map_err(FileError::write(path))?;
    Ok(file)
}

/// Appends bytes whole or not at all: readers would stumble over the first half of a record that a full
/// disk cut off, and over all that follows.
pub(crate) fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let whole = file.metadata()?.len();
    let written = file.write_all(bytes);
    if written.is_err() {
        file.set_len(whole)?;
        file.seek(SeekFrom::End(0))?;
    }
    written
}

/// Bytes up to the end of the last whole line.
fn whole_lines(file: &mut File) -> io::Result<u64> {
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
    use std::fs;

    use super::*;

    /// A folder that is not there stands for a file that is read-only, which is none to root.
    #[test]
    fn a_file_that_cannot_be_opened_is_opened_with_its_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("later/lines");
        let mut lines = Lines::reopen(path.clone()).unwrap();
        for _ in 0..2 {
            assert!(lines.add("lost").unwrap_err().to_string().contains("lines"));
        }
        fs::create_dir(folder.path().join("later")).unwrap();
        fs::write(&path, "a\ncut o").unwrap();
        lines.add("new").unwrap();
        lines.add("newer").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nnew\nnewer\n");
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
}
