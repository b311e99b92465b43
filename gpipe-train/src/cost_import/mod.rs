//! Layer costs from files: gpipe's own JSON format, or a profile of PipeDream.

mod argument;
mod cost_file;
mod json;
mod pipedream;
mod settings;

use std::path::Path;

use gpipe_files::{Links, read_capped};

pub use argument::{WholeCosts, parse_list, read_argument, whole};
pub use cost_file::CostFile;
pub use settings::check_settings;

use crate::error::{Error, Result};

/// Maximum size of a cost file in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Reads a cost file: JSON if it begins with `{`, else a PipeDream profile.
///
/// # Errors
/// [`Error::Input`] for a file that cannot be read or is not a regular file of at most 1 GiB, and [`Error::Invalid`] for one
/// that is in neither format or has no layers.
pub fn read(path: &Path) -> Result<CostFile> {
    let file = path.display();
    let fault = |fault: &dyn std::fmt::Display| Error::invalid(format!("{file}: {fault}"));
    let mend = "name a file that can be read, or whole numbers such as 10,40,30";
    let bytes = read_capped(path, MOST_BYTES, Links::Followed, mend);
    let bytes = bytes.map_err(|error| Error::input(error.with_mend(mend)))?;
    let text = String::from_utf8(bytes).map_err(|_| fault(&format!("it is not UTF-8: {mend}")))?;
    // Editors of Windows begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let read = match text.trim_start().starts_with('{') {
        true => json::parse(text),
        false => pipedream::parse(text),
    };
    match read {
        Ok(read) if read.layers.is_empty() => Err(fault(&"it has no layers: list at least one")),
        Ok(read) => Ok(read),
        Err(words) => Err(fault(&words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As tables of schedules may.
    #[test]
    fn a_file_may_begin_with_a_byte_order_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.json");
        std::fs::write(&path, "\u{feff}{\"layers\": [{\"forward\": 1}]}").unwrap();
        assert_eq!(read(&path).unwrap().layers.len(), 1);
    }
}
