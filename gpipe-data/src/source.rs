//! Where text comes from.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gpipe_files::{Fault, Links, open_regular};

use crate::error::{Error, Result, SourceFault};
use crate::folder_walk::{FolderWalk, below, unreadable};

/// The name of the built-in text: Cicero, De finibus bonorum et malorum, book I.
pub const CICERO: &str = "cicero";

/// Reads the bytes of the built-in text ([`CICERO`]), of a file, or of all files in a folder.
///
/// A folder is read with the folders in it, each in the order of its names; names that begin with
/// a dot, pictures and folders of gpipe's runs are left out, and links to folders are not followed.
///
/// # Errors
/// [`Error::Unreadable`] or [`Error::Source`] for what cannot be read or holds no text.
pub fn read_text(source: &str) -> Result<Vec<u8>> {
    read_within("data.source", source, None, &mut Vec::new())
}

/// [`read_text`], of a text that fits in `memory` bytes. Adds to `warnings` what a user of the key should know.
pub(crate) fn read_within(
    key: &str,
    source: &str,
    memory: Option<u64>,
    warnings: &mut Vec<String>,
) -> Result<Vec<u8>> {
    if source == CICERO {
        return Ok(lipsum::LIBER_PRIMUS.as_bytes().to_vec());
    }
    let files = files(key, source, warnings)?;
    let mut all = 0_u64;
    for path in &files {
        all = all.saturating_add(fs::metadata(path).map_err(unreadable(path))?.len());
    }
    let check = |text: u64| match memory.filter(|&memory| text > memory) {
        Some(memory) => Err(Error::Source {
            name: source.to_owned(),
            fault: SourceFault::TooLarge {
                text,
                needed: text,
                memory,
            },
        }),
        None => Ok(()),
    };
    check(all)?;
    let mut text = Vec::new();
    // A request beyond all memory is an error, which names a file.
    let room = usize::try_from(all).unwrap_or(usize::MAX);
    let reserved = text.try_reserve_exact(room).map_err(io::Error::from);
    reserved.map_err(unreadable(source.as_ref()))?;
    let mut binary = BinaryFiles::default();
    for path in files {
        let (file, _) = open_regular(&path, Links::Followed, "").map_err(not_opened)?;
        // A file may have more bytes than it said: it grows, or is one of those that the system makes up.
        let left = memory.unwrap_or(u64::MAX).saturating_sub(text.len() as u64);
        let start = text.len();
        let read = file.take(left.saturating_add(1)).read_to_end(&mut text);
        read.map_err(unreadable(&path))?;
        check(text.len() as u64)?;
        binary.count(&path, &text[start..]);
    }
    warnings.extend(binary.warning(key, source));
    Ok(text)
}

/// What [`read_within`] would warn of, by the beginnings of the files alone.
pub(crate) fn survey(key: &str, source: &str) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    if source == CICERO {
        return Ok(warnings);
    }
    let mut binary = BinaryFiles::default();
    for path in files(key, source, &mut warnings)? {
        let (file, _) = open_regular(&path, Links::Followed, "").map_err(not_opened)?;
        let mut beginning = Vec::new();
        let read = file.take(BEGINNING as u64).read_to_end(&mut beginning);
        read.map_err(unreadable(&path))?;
        binary.count(&path, &beginning);
    }
    warnings.extend(binary.warning(key, source));
    Ok(warnings)
}

/// Bytes in which a NUL tells a binary file from text, as Git does.
const BEGINNING: usize = 8000;

/// Files that are no text in UTF-8, most likely.
#[derive(Default)]
struct BinaryFiles {
    files: usize,
    binary: usize,
    first: Option<PathBuf>,
}

impl BinaryFiles {
    /// Counts a file with these bytes, or this beginning of them.
    fn count(&mut self, path: &Path, bytes: &[u8]) {
        self.files += 1;
        if bytes[..bytes.len().min(BEGINNING)].contains(&0) {
            self.binary += 1;
            self.first.get_or_insert_with(|| path.to_owned());
        }
    }

    fn warning(&self, key: &str, source: &str) -> Option<String> {
        let first = self.first.as_deref()?;
        let (which, mend) = match Path::new(source) == first {
            true => ("holds".to_owned(), String::new()),
            false => (
                format!("{} of {} files hold", self.binary, self.files),
                format!(": first {}", below(Path::new(source), first)),
            ),
        };
        Some(format!(
            "`{key} = {source}`: {which} NUL bytes, as binaries and UTF-16 do, which are taken for text{mend}"
        ))
    }
}

/// The files of a text, which is not the built-in one.
fn files(key: &str, source: &str, warnings: &mut Vec<String>) -> Result<Vec<PathBuf>> {
    let fault = |fault| {
        let name = source.to_owned();
        Err(Error::Source { name, fault })
    };
    let path = Path::new(source);
    let found = fs::metadata(path).map_err(unreadable(path))?;
    if found.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if !found.is_dir() {
        return fault(SourceFault::NotRegular);
    }
    let FolderWalk { files, passed } = FolderWalk::of(path)?;
    warnings.extend(passed.warnings(&format!("{key} = {source}"), path));
    let mut texts = Vec::new();
    for path in files.into_iter().filter(|path| !is_picture(path)) {
        if fs::metadata(&path).map_err(unreadable(&path))?.is_file() {
            texts.push(path);
        }
    }
    match texts.is_empty() {
        true => fault(SourceFault::NoFiles),
        false => Ok(texts),
    }
}

/// The memory for the tokens of a text that are made line by line.
pub(crate) struct Room {
    text: u64,
    memory: Option<u64>,
    /// Bytes of the lines so far.
    lines: u64,
    /// Bytes of their tokens.
    tokens: u64,
}

impl Room {
    /// What a text of this many bytes leaves of `memory` bytes.
    pub fn beside(text: usize, memory: Option<u64>) -> Self {
        Self {
            text: text as u64,
            memory,
            lines: 0,
            tokens: 0,
        }
    }

    /// Bytes that are left.
    pub fn left(&self) -> Option<u64> {
        let taken = self.text.saturating_add(self.tokens);
        Some(self.memory?.saturating_sub(taken))
    }

    /// Takes the bytes of a line's tokens.
    pub fn take(&mut self, line: usize, tokens: usize) -> std::result::Result<(), SourceFault> {
        self.lines += line as u64;
        self.tokens += tokens as u64;
        let taken = self.text.saturating_add(self.tokens);
        let Some(memory) = self.memory.filter(|&memory| taken > memory) else {
            return Ok(());
        };
        // As many for each byte of the lines that follow.
        let all = u128::from(self.tokens) * u128::from(self.text) / u128::from(self.lines.max(1));
        let all = u64::try_from(all).unwrap_or(u64::MAX);
        Err(SourceFault::TooLarge {
            text: self.text,
            needed: self.text.saturating_add(all.max(self.tokens)),
            memory,
        })
    }
}

/// Whether a file is a picture, by the end of its name.
pub(crate) fn is_picture(path: &Path) -> bool {
    let end = path.extension().and_then(OsStr::to_str);
    let end = end.map(str::to_ascii_lowercase);
    matches!(end.as_deref(), Some("png" | "jpg" | "jpeg"))
}

/// The error for a path that became another kind of file since it was looked at, or cannot be opened.
fn not_opened(error: gpipe_files::Error) -> Error {
    let path = error.path().to_owned();
    match error.into_fault() {
        Fault::Read(source) => Error::Unreadable { path, source },
        _ => Error::Source {
            name: path.display().to_string(),
            fault: SourceFault::NotRegular,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_in_the_order_of_names() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        write("c.txt", "4");
        write("b/2.txt", "3");
        write("b/1.txt", "2");
        write("a.txt", "1");
        write(".hidden", "x");
        write("b/photo.JPG", "x");
        write(".git/object", "x");
        assert_eq!(read_text(folder.path().to_str().unwrap()).unwrap(), b"1234");
    }

    #[test]
    fn files_with_nul_bytes_are_told_by_reading_and_by_a_survey() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let late = [&b"x".repeat(BEGINNING)[..], b"\0"].concat();
        let files: [(&str, &[u8]); 4] = [
            ("a.txt", b"text"),
            ("b.txt", b"\xff\xfet\0e\0"),
            ("c.bin", b"\0"),
            ("late", &late),
        ];
        for (name, bytes) in files {
            fs::write(root.join(name), bytes).unwrap();
        }
        let both = |path: &Path| {
            let (source, mut warnings) = (path.to_str().unwrap(), Vec::new());
            read_within("key", source, None, &mut warnings).unwrap();
            assert_eq!(survey("key", source).unwrap(), warnings);
            warnings.concat().replace(source, "DIR")
        };
        assert_eq!(
            both(root),
            "`key = DIR`: 2 of 4 files hold NUL bytes, as binaries and UTF-16 do, which are taken for text: first b.txt"
        );
        assert_eq!(
            both(&root.join("c.bin")),
            "`key = DIR`: holds NUL bytes, as binaries and UTF-16 do, which are taken for text"
        );
        assert_eq!(both(&root.join("a.txt")), "");
    }

    #[test]
    fn what_holds_no_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("photo.png"), "x").unwrap();
        for source in [folder.path().to_str().unwrap(), "no/such/file", "/dev/null"] {
            assert!(
                read_text(source).is_err_and(|error| error.is_input_error()),
                "{source}"
            );
        }
    }

    /// The system says that files of `/proc` have no bytes.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_of_more_bytes_than_it_said_must_fit_in_memory() {
        let source = "/proc/self/maps";
        assert!(
            read_within("data.source", source, Some(1 << 30), &mut Vec::new())
                .unwrap()
                .len()
                > 100
        );
        let read =
            read_within("data.source", source, Some(100), &mut Vec::new()).map(|text| text.len());
        let error = read.unwrap_err().to_string();
        assert!(error.contains(", but 100B are there: "), "{error}");
    }

    #[test]
    fn the_built_in_text_is_there() {
        assert_eq!(read_text(CICERO).unwrap().len(), 49_068);
    }
}
