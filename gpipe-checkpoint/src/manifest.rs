//! The list of a checkpoint's files, with their lengths and digests, that vouches for itself.
//!
//! It is a JSON object whose last key is the SHA-256 digest of all bytes before that key, so every
//! flipped bit shows, in the digest itself too.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::fault::Fault;
use super::names;
use super::shards;

/// The name of the format; another number is another format.
const FORMAT: &str = "gpipe checkpoint 1";

/// `manifest.json`: the list of a checkpoint's files, sealed with its own digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: String,
    /// The step after which it was saved.
    pub step: u64,
    /// Its files, without the manifest.
    pub files: Vec<Listed>,
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Relative to the checkpoint's folder, with slashes.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256 digest.
    pub sha256: String,
}

/// The bytes between the list and the digest, and after the digest.
const BEFORE: &str = ",\n  \"sha256\": \"";
const AFTER: &str = "\"\n}\n";
/// The end of the list, replaced by the key of the digest.
const CLOSE: &str = "\n}";
const DIGEST: usize = 64;

impl Manifest {
    /// The manifest of the checkpoint of a step with these files.
    pub fn new(step: u64, files: Vec<Listed>) -> Self {
        let format = FORMAT.to_owned();
        Self {
            format,
            step,
            files,
        }
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// Those of the JSON library; there are none for names and numbers.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let list = serde_json::to_string_pretty(self)?;
        Ok(Self::seal(list.as_bytes()))
    }

    /// The SHA-256 digest of the list in hexadecimal digits: of checkpoints with the same one, all files are the same.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes).
    pub fn digest(&self) -> serde_json::Result<String> {
        let list = serde_json::to_string_pretty(self)?;
        Ok(digest(list.as_bytes()))
    }

    /// The bytes of a file with this list, a JSON object: the digest becomes its last key. For fuzzers,
    /// which look behind the seal.
    pub fn seal(list: &[u8]) -> Vec<u8> {
        let list = list.strip_suffix(CLOSE.as_bytes()).unwrap_or(list);
        [
            list,
            BEFORE.as_bytes(),
            digest(list).as_bytes(),
            AFTER.as_bytes(),
        ]
        .concat()
    }

    /// The list in the bytes of a file, without its end and its digest; `None` if it is not sealed.
    pub fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
        let list = bytes.strip_suffix(AFTER.as_bytes())?;
        let list = &list[..list.len().checked_sub(DIGEST)?];
        list.strip_suffix(BEFORE.as_bytes())
    }

    /// The manifest in the bytes of a file.
    ///
    /// # Errors
    /// [`Fault::Manifest`] if its digest does not hold, [`Fault::Format`] if it does, but the list is not
    /// one of this version's; in one line.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let list = Self::opened(bytes).map_err(|fault| Fault::Manifest(fault.to_owned()))?;
        Self::parse_list(list).map_err(Fault::Format)
    }

    /// The list of a file whose digest holds, without its end.
    fn opened(bytes: &[u8]) -> Result<&str, &'static str> {
        let unsealed = "does not end in its digest";
        let text = std::str::from_utf8(bytes).map_err(|_| "is no text")?;
        let text = text.strip_suffix(AFTER).ok_or(unsealed)?;
        let split = text.len().checked_sub(DIGEST).ok_or(unsealed)?;
        let (text, sealed) = text.split_at_checked(split).ok_or(unsealed)?;
        let list = text.strip_suffix(BEFORE).ok_or(unsealed)?;
        match digest(list.as_bytes()) == sealed {
            true => Ok(list),
            false => Err("does not have the digest that it ends in"),
        }
    }

    fn parse_list(list: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Format {
            format: String,
        }
        let list = format!("{list}{CLOSE}");
        let unreadable =
            |error: serde_json::Error| format!("is no list of files: {}", clip(&error.to_string()));
        let Format { format } = serde_json::from_str(&list).map_err(unreadable)?;
        // Before its keys, which another format has others of.
        if format != FORMAT {
            return Err(format!(
                "is of the format `{}`, and this program reads `{FORMAT}`",
                clip(&format)
            ));
        }
        let manifest: Self = serde_json::from_str(&list).map_err(unreadable)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Checks what a digest does not: a manifest may have been made by anyone.
    fn check(&self) -> Result<(), String> {
        check_names(self.files.iter().map(|file| &*file.name))?;
        for Listed { name, sha256, .. } in &self.files {
            let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            if sha256.len() != DIGEST || !sha256.bytes().all(hexadecimal) {
                return Err(format!("has no digest of {name}"));
            }
        }
        Ok(())
    }

    /// The files that are one of these, in order: the file of this name, or the parts that ranks wrote of it
    /// (`model-00001-of-00004.safetensors` of `model.safetensors`). None if there is neither.
    ///
    /// # Errors
    /// If a part is missing, or both are there: in one line.
    pub fn parts(&self, name: &str) -> Result<Vec<String>, String> {
        shards::parts(name, self.files.iter().map(|file| &*file.name))
    }

    /// Bytes of all listed files together.
    pub fn bytes(&self) -> u64 {
        let bytes = self.files.iter().map(|file| file.bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

/// Checks the names of a checkpoint's files: those that are read, and before anything is written those that a reader will
/// find.
///
/// # Errors
/// What the manifest does that no reader takes, in one line: `lists a/../b, which is ...`.
pub fn check_names<'a>(listed: impl Iterator<Item = &'a str> + Clone) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in listed.clone() {
        if names::components(name).is_none() || name == names::MANIFEST {
            return Err(format!(
                "lists `{}`, which is no name of a file below it",
                clip(name)
            ));
        }
        if !seen.insert(name) {
            return Err(format!("lists {name} twice"));
        }
    }
    for name in [names::CONFIG, names::STATE, names::OPTIMIZER] {
        if shards::parts(name, listed.clone())?.is_empty() {
            return Err(format!("does not list {name}"));
        }
    }
    Ok(())
}

/// The beginning of a text that anyone may have written, in one line.
pub fn clip(text: &str) -> String {
    text.escape_debug().take(200).collect()
}

/// The SHA-256 digest in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str) -> Listed {
        Listed {
            name: name.into(),
            bytes: 3,
            sha256: digest(b"abc"),
        }
    }

    fn manifest(more: &[&str]) -> Manifest {
        let names = [names::CONFIG, names::STATE, names::OPTIMIZER];
        let files = names.iter().chain(more).map(|name| listed(name));
        Manifest::new(7, files.collect())
    }

    #[test]
    fn it_reads_back_and_is_json() {
        let manifest = manifest(&["model/config.json"]);
        let bytes = manifest.to_bytes().unwrap();
        assert_eq!(Manifest::parse(&bytes).unwrap(), manifest);
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["step"], 7);
        assert_eq!(
            json["files"][0]["sha256"],
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_shows() {
        let bytes = manifest(&["model/config.json"]).to_bytes().unwrap();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::parse(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Manifest::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn one_made_by_someone_else_is_not_trusted() {
        let refused = |manifest: Manifest| {
            let bytes = manifest.to_bytes().unwrap();
            Manifest::parse(&bytes).unwrap_err().to_string()
        };
        let long = "x\n".repeat(100_000);
        for name in ["../x", "/x", "model/../../x", names::MANIFEST, "", &long] {
            let told = refused(manifest(&[name]));
            assert!(told.contains("no name of a file below"), "{told}");
            assert!(
                told.len() < 600 && !told.contains(char::is_control),
                "{told}"
            );
        }
        assert!(refused(manifest(&[names::STATE])).contains("state.json twice"));
        assert!(refused(Manifest::new(7, Vec::new())).contains("does not list config.toml"));
        let mut other = manifest(&[]);
        other.format = "gpipe checkpoint 2\n".into();
        let told = refused(other);
        assert!(
            told.contains("checkpoint 2") && !told.contains('\n'),
            "{told}"
        );
        let mut other = manifest(&[]);
        other.files[0].sha256.make_ascii_uppercase();
        assert!(refused(other).contains("no digest of config.toml"));
        // A seal over something else.
        let list = "{\n  \"step\": 1";
        let sealed = format!("{list}{BEFORE}{}{AFTER}", digest(list.as_bytes()));
        assert!(Manifest::parse(sealed.as_bytes()).is_err());
        assert!(Manifest::parse(b"").is_err());
    }
}
