//! Reading single settings, and the type of each key.

use std::path::Path;

use gpipe_files::{Links, read_capped};
use serde::Deserialize;
use toml::de::DeTable;
use toml::{Spanned, Table, Value};

use super::keys::{Entry, overlay};
use super::{TrainConfig, presets};
use crate::error::{Error, Result};

/// The known keys, each with an example value of its type. Every key but `micro_batch_size`, which is
/// converted to a number of micro-batches, is in the effective configuration.
pub struct Schema {
    /// A complete configuration of each model family.
    families: Vec<Table>,
    /// The union of their keys.
    keys: Table,
}

/// The key that is converted to a number of micro-batches.
const SIZE_KEY: &str = "micro_batch_size";

impl Schema {
    /// Builds the schema from complete configurations.
    pub fn new() -> Self {
        let mut families = presets::of_families();
        let mut keys = Table::new();
        for family in &mut families {
            overlay(family, toml::toml! { pipeline = { threads = 1 } });
            overlay(&mut keys, family.clone());
        }
        overlay(
            &mut keys,
            toml::toml! { pipeline = { micro_batch_size = 1 } },
        );
        Self { families, keys }
    }

    fn section(&self, name: &str) -> Option<&Table> {
        self.keys.get(name)?.as_table()
    }

    /// The example value of a key.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the most similar known key, or all.
    fn kind(&self, place: &str, section: &str, key: &str) -> Result<&Value> {
        let kind = self.section(section).and_then(|keys| keys.get(key));
        kind.ok_or_else(|| self.unknown(place, section, key))
    }

    /// The error for an unknown key. It suggests the most similar known key, compared with its section
    /// and, since sections are often forgotten, without; or lists what there is.
    fn unknown(&self, place: &str, section: &str, key: &str) -> Error {
        if key.is_empty() {
            return Error::invalid(format!(
                "{place}: names no key: write one with its section, such as run.steps=100"
            ));
        }
        let sections = self
            .keys
            .iter()
            .filter_map(|(section, keys)| Some((section, keys.as_table()?)));
        let known: Vec<(String, &str)> = sections
            .flat_map(|(section, keys)| {
                keys.keys()
                    .map(move |key| (format!("{section}.{key}"), key.as_str()))
            })
            .collect();
        let typed = if section.is_empty() {
            key.to_owned()
        } else {
            format!("{section}.{key}")
        };
        // A section that is alike makes no keys so; it chooses among those that are.
        let of_key = |(full, bare): &(String, &str)| match section {
            "" => [likeness(full, key).max(likeness(bare, key)), 0.0],
            _ => [likeness(bare, key), likeness(full, &typed)],
        };
        let mend = match most_like(known.iter(), |known| of_key(known)) {
            Some((full, _)) => format!("did you mean `{full}`?"),
            None => {
                let (of, names) = match self.section(section) {
                    Some(keys) => (format!("the keys of [{section}]"), keys),
                    None => ("sections".to_owned(), &self.keys),
                };
                let names: Vec<&str> = names.keys().map(String::as_str).collect();
                format!("{of} are {}", names.join(", "))
            }
        };
        Error::invalid(format!("{place}: unknown key `{typed}`: {mend}"))
    }

    /// Validates a value by deserializing a configuration in which only this key is changed.
    fn check(&self, entry: &Entry) -> Result<()> {
        let key = match &*entry.key {
            SIZE_KEY => "micro_batches",
            key => key,
        };
        let has =
            |family: &&Table| (family.get(&entry.section)).is_some_and(|s| s.get(key).is_some());
        let Some(family) = self.families.iter().find(has) else {
            return Ok(());
        };
        let mut keys = family.clone();
        let one = Table::from_iter([(key.to_owned(), entry.value.clone())]);
        overlay(
            &mut keys,
            Table::from_iter([(entry.section.clone(), Value::Table(one))]),
        );
        match TrainConfig::deserialize(keys) {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::invalid(format!(
                "{}: {}",
                entry.place,
                error.message()
            ))),
        }
    }
}

/// The known name most similar to `typed`, if any is.
pub fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    most_like(known, |name| [likeness(name, typed), 0.0])
}

/// How similar two names are, from 0 to 1, whatever their case.
fn likeness(known: &str, typed: &str) -> f64 {
    strsim::jaro_winkler(known, &typed.to_lowercase())
}

/// The item of the greatest likeness, if that is more than names share by chance; of equals by the second number.
fn most_like<T>(known: impl Iterator<Item = T>, likeness: impl Fn(&T) -> [f64; 2]) -> Option<T> {
    let found = known.map(|item| (likeness(&item), item));
    let order = |a: [f64; 2], b: [f64; 2]| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1]));
    let (most, found) = found.max_by(|(a, _), (b, _)| order(*a, *b))?;
    (most[0] > 0.7).then_some(found)
}

/// Maximum size of a configuration file in bytes: a multiple of the size of all keys.
const MOST_BYTES: u64 = 1 << 20;

/// Reads a regular file; a pipe could block forever.
pub fn read_file(path: &Path) -> Result<String> {
    let mend = "name a TOML file that can be read";
    let bytes = read_capped(path, MOST_BYTES, Links::Followed, mend);
    let bytes = bytes.map_err(|error| Error::input(error.with_mend(mend)))?;
    text(path, bytes)
}

/// Decodes the bytes of a file as UTF-8.
pub fn text(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        Error::invalid(format!(
            "{}: byte {offset} is not UTF-8: name a TOML file",
            path.display()
        ))
    })
}

/// Parses the text of a TOML file.
pub fn of_file(schema: &Schema, path: &Path, text: &str) -> Result<Vec<Entry>> {
    let file = path.display();
    let line = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
    let fault = |error: toml::de::Error| {
        let message = error.message();
        let beyond = ["too large", "as i128", "as u128"];
        let mend = match beyond.iter().any(|words| message.contains(words)) {
            true => "use a smaller number",
            false => "write TOML, such as the config.toml of an earlier run",
        };
        Error::invalid(match error.span() {
            Some(span) => format!("{file} line {}: {message}: {mend}", line(span.start)),
            None => format!("{file}: {message}: {mend}"),
        })
    };
    let values: Table = toml::from_str(text).map_err(fault)?;
    let places = DeTable::parse(text).map_err(fault)?;
    let at = |key: &Spanned<_>| format!("{file} line {}", line(key.span().start));

    let mut entries = Vec::new();
    for (section, keys) in places.get_ref() {
        let (place, name): (String, &str) = (at(section), section.get_ref());
        let keys = match (schema.section(name), keys.get_ref().as_table()) {
            (Some(_), Some(keys)) => keys,
            (Some(_), None) => {
                return Err(Error::invalid(format!(
                    "{place}: `{name}` is a section: write [{name}] and its keys below"
                )));
            }
            (None, Some(_)) => {
                let sections = || schema.keys.keys().map(String::as_str);
                let mend = match nearest(name, sections()) {
                    Some(nearest) => format!("did you mean [{nearest}]?"),
                    None => format!("sections are {}", sections().collect::<Vec<_>>().join(", ")),
                };
                return Err(Error::invalid(format!(
                    "{place}: unknown section [{name}]: {mend}"
                )));
            }
            (None, None) => return Err(schema.unknown(&place, "", name)),
        };
        for key in keys.keys() {
            let (place, key): (String, &str) = (at(key), key.get_ref());
            let kind = schema.kind(&place, name, key)?;
            let place = format!("{place}: {name}.{key}");
            let value = conform(values[name][key].clone(), kind)
                .map_err(|fault| Error::invalid(format!("{place}: {fault}")))?;
            entries.push(of_value(schema, place, name, key, value)?);
        }
    }
    Ok(entries)
}

/// The entry of a setting whose value is text, as typed by a user.
pub fn of_text(schema: &Schema, place: String, key: &str, text: &str) -> Result<Entry> {
    let (section, key) = split(key);
    let kind = schema.kind(&place, section, key)?;
    let value = read(text, kind).map_err(|fault| Error::invalid(format!("{place}: {fault}")))?;
    of_value(schema, place, section, key, value)
}

/// The entry of a setting whose value is typed.
pub fn of_typed(schema: &Schema, place: String, key: &str, value: Value) -> Result<Entry> {
    let (section, key) = split(key);
    let kind = schema.kind(&place, section, key)?;
    let value =
        conform(value, kind).map_err(|fault| Error::invalid(format!("{place}: {fault}")))?;
    of_value(schema, place, section, key, value)
}

fn split(key: &str) -> (&str, &str) {
    key.split_once('.').unwrap_or(("", key))
}

fn of_value(
    schema: &Schema,
    place: String,
    section: &str,
    key: &str,
    value: Value,
) -> Result<Entry> {
    let entry = Entry {
        place,
        section: section.to_owned(),
        key: key.to_owned(),
        value,
    };
    schema.check(&entry)?;
    Ok(entry)
}

/// Parses text as a value of the type of `kind`. A quoted string is read as TOML.
fn read(text: &str, kind: &Value) -> std::result::Result<Value, String> {
    let value = match kind {
        Value::String(_) => match toml::from_str::<Table>(&format!("text = {text}")) {
            Ok(mut table) if text.starts_with(['"', '\'']) => table.remove("text"),
            _ => None,
        },
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Float(_) => text.parse().ok().map(Value::Float),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        _ => None,
    };
    conform(
        value.unwrap_or_else(|| Value::String(text.to_owned())),
        kind,
    )
}

/// Converts a value to the type of `kind`.
fn conform(value: Value, kind: &Value) -> std::result::Result<Value, String> {
    let wanted = match (value, kind) {
        (Value::Integer(n), Value::Float(_)) => return Ok(Value::Float(n as f64)),
        (value, kind) if value.same_type(kind) => return Ok(value),
        (value, Value::Integer(_)) => {
            let digits = value.as_str().is_some_and(|text| {
                text.len() > 18 && text.bytes().all(|byte| byte.is_ascii_digit())
            });
            let fault = if digits {
                "too large"
            } else {
                "not a whole number"
            };
            return Err(format!("{} is {fault}: use one such as 4", shown(&value)));
        }
        (value, Value::Float(_)) => {
            format!("{} is not a number: use one such as 0.1", shown(&value))
        }
        (value, Value::Boolean(_)) => {
            format!("{} is not a boolean: use true or false", shown(&value))
        }
        (value, _) => format!("{value} is not text: put it in quotes"),
    };
    Err(wanted)
}

/// Formats a value for a message: text in backquotes, other values as TOML.
fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), |text| format!("`{text}`"))
}
