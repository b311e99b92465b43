//! Where text comes from.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fail::{Fail, Result};

/// The name of the built-in text: Cicero, De finibus bonorum et malorum, book I.
const CICERO: &str = "cicero";

/// The bytes of the built-in text, of a file, or of all files in a folder.
///
/// A folder is read with the folders in it, each in the order of its names; names that begin with
/// a dot are left out, and links to folders are not followed.
pub fn read(source: &str) -> Result<Vec<u8>> {
    if source == CICERO {
        return Ok(lipsum::LIBER_PRIMUS.as_bytes().to_vec());
    }
    let path = Path::new(source);
    let found = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let mut files = Vec::new();
    if found.is_dir() {
        collect(path, &mut files)?;
        if files.is_empty() {
            return Err(Fail::asked(format!(
                "--data {source}: the folder holds no files: name one with text"
            )));
        }
    } else if found.is_file() {
        files.push(path.to_owned());
    } else {
        return Err(Fail::asked(format!(
            "--data {source}: is no regular file: name a text file or a folder"
        )));
    }
    let mut text = Vec::new();
    for file in files {
        text.extend(fs::read(&file).map_err(|error| unreadable(&file, &error))?);
    }
    Ok(text)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(folder).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let mut entries = entries.map_err(|error| unreadable(folder, &error))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        let kind = entry
            .file_type()
            .map_err(|error| unreadable(&path, &error))?;
        if kind.is_dir() {
            collect(&path, files)?;
        } else if fs::metadata(&path)
            .map_err(|error| unreadable(&path, &error))?
            .is_file()
        {
            files.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Fail {
    Fail::asked(format!(
        "--data {}: {error}: name a text file or folder that can be read, or {CICERO}",
        path.display()
    ))
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
        write(".git/object", "x");
        assert_eq!(read(folder.path().to_str().unwrap()).unwrap(), b"1234");
    }

    #[test]
    fn what_holds_no_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for source in [folder.path().to_str().unwrap(), "no/such/file", "/dev/null"] {
            assert!(matches!(read(source), Err(Fail::Usage(_))), "{source}");
        }
    }

    #[test]
    fn the_built_in_text_is_there() {
        assert_eq!(read(CICERO).unwrap().len(), 49_068);
    }
}
