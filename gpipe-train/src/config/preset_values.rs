//! Values and sections of the defaults of presets.

use toml::{Table, Value};

/// Converts a size to a TOML integer; deserialization refuses one that is too large.
pub fn size(size: usize) -> Value {
    Value::Integer(i64::try_from(size).unwrap_or(i64::MAX))
}

/// The shortest number in double precision that reads back as this one: 1e-5, not 9.9999997e-6.
pub fn digits(number: f32) -> Value {
    Value::Float(number.to_string().parse().unwrap_or(number.into()))
}

pub fn section<const N: usize>(name: &str, keys: [(&str, Value); N]) -> Table {
    let keys = keys.map(|(key, value)| (key.to_owned(), value));
    Table::from_iter([(name.to_owned(), Value::Table(Table::from_iter(keys)))])
}
