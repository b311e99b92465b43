//! What chat templates take from Python: methods of texts, `tojson`, tests of values, and a date.

use std::io::{self, Write};

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::python_text;

/// The most bytes that a method or `tojson` makes.
const MOST: usize = 16 << 20;

/// The day that templates take for today, the one that Llama 3.2's names by itself: a clock would make other tokens
/// of the same conversations each day, and a run could not be resumed.
const TODAY: [(&str, &str); 11] = [
    ("%d", "26"),
    ("%b", "Jul"),
    ("%B", "July"),
    ("%m", "07"),
    ("%y", "24"),
    ("%Y", "2024"),
    ("%a", "Fri"),
    ("%A", "Friday"),
    ("%H", "00"),
    ("%M", "00"),
    ("%S", "00"),
];

/// Adds these to an environment.
pub fn extend(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(method);
    environment.set_formatter(python_text::print);
    environment.add_filter("string", python_text::string);
    environment.add_filter("tojson", to_json);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment.add_function("strftime_now", |format: String| {
        let date = TODAY
            .iter()
            .fold(format, |text, (code, value)| text.replace(code, value));
        match date.contains('%') {
            true => Err(refused("strftime_now is given a code that is not known")),
            false => Ok(date),
        }
    });
}

fn refused(words: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, words)
}

/// Whether Python has `len` and items of it: of texts, lists, dictionaries, and what is undefined.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Map, Seq, String, Undefined};
    matches!(value.kind(), String | Seq | Map | Undefined)
}

/// Whether Python iterates over it; the library does over nothing too.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// `str.title`: a letter is a capital one unless it follows another letter.
fn title(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut within = false;
    for sign in text.chars() {
        // Of several characters for one, as for `ß`, the first is the capital one.
        match sign.to_uppercase().next() {
            Some(first) if !within && sign.is_lowercase() => {
                all.push(first);
                let others = sign.to_uppercase().skip(1);
                all.extend(others.flat_map(char::to_lowercase));
            }
            _ if within => all.extend(sign.to_lowercase()),
            _ => all.push(sign),
        }
        within = sign.is_lowercase() || sign.is_uppercase();
    }
    all
}

/// A method of Python, if what it makes is small: the library counts bytes only once they are there.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let text = value.as_str().map_or(0, str::len);
    let longest = args.iter().filter_map(Value::as_str).map(str::len).max();
    let bytes = match name {
        "format" => return Err(refused("`format` is not known to chat templates")),
        // The new text in each place between two characters.
        "replace" => (text + 1).saturating_mul(longest.unwrap_or(0) + 1),
        "join" => {
            let mut bytes = 0_usize;
            for part in args
                .first()
                .map(Value::try_iter)
                .transpose()?
                .into_iter()
                .flatten()
            {
                bytes = bytes.saturating_add(text + part.as_str().map_or(0, str::len));
                if bytes > MOST {
                    break;
                }
            }
            bytes
        }
        // Lists of parts have some 24 bytes a part.
        "split" | "splitlines" => text.saturating_mul(24),
        _ => text,
    };
    if value.kind() == ValueKind::String && bytes > MOST {
        return Err(refused("it makes too much text"));
    }
    match (name, value.as_str(), args) {
        // The library's is the filter, for which letters behind an apostrophe are within a word.
        ("title", Some(text), []) => Ok(title(text).into()),
        _ => unknown_method_callback(state, value, name, args),
    }
}

/// JSON as Python's `json.dumps` writes it with `ensure_ascii = False`.
fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    // Nothing is no JSON: a key that the message lacks, or has as null.
    if value.is_undefined() {
        return Err(refused("tojson is given a value that is not there"));
    }
    let indent: Option<usize> = options.get("indent")?;
    // What else templates may say is how it is written anyway.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let python = Python {
        indent: indent.map(|width| width.min(16)),
        depth: 0,
        filled: false,
    };
    let mut bytes = Capped(Vec::new());
    let written = value.serialize(&mut Serializer::with_formatter(&mut bytes, python));
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let text = String::from_utf8(bytes.0).map_err(|_| refused("tojson made no text"))?;
    Ok(Value::from(text))
}

/// Bytes, up to [`MOST`].
struct Capped(Vec<u8>);

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST {
            return Err(io::Error::other("tojson makes too much text"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Python's spaces: one after each comma and colon, or a line for each item.
struct Python {
    indent: Option<usize>,
    depth: usize,
    /// Whether the list or object that ends has items.
    filled: bool,
}

impl Python {
    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W, sign: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        writer.write_all(sign)
    }

    fn item<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        match (self.indent, first) {
            (Some(_), true) => self.line(writer),
            (Some(_), false) => writer.write_all(b",").and_then(|()| self.line(writer)),
            (None, true) => Ok(()),
            (None, false) => writer.write_all(b", "),
        }
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, sign: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.filled && self.indent.is_some() {
            self.line(writer)?;
        }
        self.filled = true;
        writer.write_all(sign)
    }

    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        let width = self.indent.unwrap_or(0) * self.depth;
        write!(writer, "\n{:width$}", "")
    }
}

impl Formatter for Python {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(python_text::float(value).as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.item(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.item(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
}
