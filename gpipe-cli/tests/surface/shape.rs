//! The structure of JSON values, of safetensors and of TensorBoard's files, without their values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

/// Paths to all leaves of some values, each with the types that were seen there.
#[derive(Default)]
pub struct Shape(BTreeMap<String, BTreeSet<&'static str>>);

impl Shape {
    /// Adds the paths of a value.
    pub fn add(&mut self, value: &Value) {
        self.walk(String::new(), value);
    }

    /// Says that these types may be seen at a path.
    pub fn insert(&mut self, path: &str, types: &[&'static str]) {
        self.0.entry(path.to_owned()).or_default().extend(types);
    }

    fn walk(&mut self, path: String, value: &Value) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            // In a trace, microseconds are written without a point where they are whole.
            Value::Number(_) if path.ends_with(".ts") || path.ends_with(".dur") => "number",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "text",
            Value::Array(values) => {
                for value in values {
                    self.walk(format!("{path}[]"), value);
                }
                "list"
            }
            Value::Object(object) => {
                for (key, value) in object {
                    let dot = if path.is_empty() { "" } else { "." };
                    self.walk(format!("{path}{dot}{key}"), value);
                }
                return;
            }
        };
        self.0.entry(path).or_default().insert(kind);
    }

    /// A line for each path.
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for (path, types) in &self.0 {
            let types: Vec<&str> = types.iter().copied().collect();
            writeln!(lines, "  {path}: {}", types.join(" | ")).unwrap();
        }
        lines
    }
}

/// The header of a safetensors file, and its data.
pub fn safetensors(bytes: &[u8]) -> (Value, &[u8]) {
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("8 bytes"));
    let (header, data) = rest.split_at(usize::try_from(length).expect("a length"));
    (serde_json::from_slice(header).expect("a header"), data)
}

/// The tags of TensorBoard's file: of each record the values' field 1.
pub fn tags(mut bytes: &[u8]) -> BTreeSet<String> {
    let mut tags = BTreeSet::new();
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        let end = 12 + usize::try_from(length).expect("a length");
        // Event.summary is field 5, Summary.value field 1, Value.tag field 1.
        for summary in fields(&bytes[12..end], 5) {
            for value in fields(summary, 1) {
                let names = fields(value, 1).into_iter();
                tags.extend(names.map(|name| String::from_utf8(name.to_vec()).expect("a tag")));
            }
        }
        bytes = &bytes[end + 4..];
    }
    tags
}

/// The fields of bytes with a number in a message of protocol buffers.
fn fields(mut message: &[u8], wanted: u64) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                varint(&mut message);
                0
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(varint(&mut message)).expect("a length"),
            other => panic!("wire type {other}"),
        };
        let (value, rest) = message.split_at(length);
        if key == wanted << 3 | 2 {
            found.push(value);
        }
        message = rest;
    }
    found
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut number = 0;
    for place in 0.. {
        let (&byte, rest) = message.split_first().expect("a whole number");
        *message = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}
