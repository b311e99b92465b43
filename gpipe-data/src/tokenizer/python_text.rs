//! Values as Python's `str` and `repr` write them.

use std::fmt::{self, Write as _};

use minijinja::value::ValueKind;
use minijinja::{Error, Output, State, Value, escape_formatter, filters};

/// Decimal exponents from which on Python writes a floating-point number with an exponent.
const LARGE: i32 = 16;
/// The same for small numbers.
const SMALL: i32 = -5;

/// `repr` of a floating-point number: the shortest digits that give it back, with an exponent below 1e-4 and from 1e16 on.
pub fn float(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return match value.is_nan() {
            true => "nan".to_owned(),
            false => format!("{sign}inf"),
        };
    }
    let shortest = format!("{value:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse().unwrap_or(0) {
        exponent @ (..=SMALL | LARGE..) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => format!("{value:?}"),
    }
}

/// Prints a value.
pub fn print(
    output: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    match has_floats(value) {
        true => write!(output, "{}", Python(value)).map_err(Error::from),
        false => escape_formatter(output, state, value),
    }
}

/// The filter `string`.
pub fn string(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    match has_floats(value) {
        true => Ok(Value::from(Python(value).to_string())),
        false => filters::string(state, value),
    }
}

fn as_float(value: &Value) -> Option<f64> {
    let is_float = value.kind() == ValueKind::Number && !value.is_integer();
    f64::try_from(value.clone()).ok().filter(|_| is_float)
}

/// Whether a number is floating-point, or one in a list or a dictionary; of all else the library writes what Python does.
fn has_floats(value: &Value) -> bool {
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::Number => !value.is_integer(),
        ValueKind::Seq => items().any(|item| has_floats(&item)),
        ValueKind::Map => items().any(|key| {
            has_floats(&key) || value.get_item(&key).is_ok_and(|item| has_floats(&item))
        }),
        _ => false,
    }
}

/// A value within others, or a number.
struct Python<'a>(&'a Value);

impl fmt::Display for Python<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if let Some(number) = as_float(value) {
            return f.write_str(&float(number));
        }
        let [open, close] = match value.kind() {
            ValueKind::Map => ['{', '}'],
            ValueKind::Seq if value.is_tuple() => ['(', ')'],
            ValueKind::Seq => ['[', ']'],
            _ => return write!(f, "{value:?}"),
        };
        f.write_char(open)?;
        let mut count = 0;
        for item in value.try_iter().into_iter().flatten() {
            if count > 0 {
                f.write_str(", ")?;
            }
            count += 1;
            write!(f, "{}", Python(&item))?;
            if value.kind() == ValueKind::Map {
                let item = value.get_item(&item).unwrap_or_default();
                write!(f, ": {}", Python(&item))?;
            }
        }
        if value.is_tuple() && count == 1 {
            f.write_char(',')?;
        }
        f.write_char(close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_python() {
        for (value, wanted) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (7.0, "7.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-1.5e-7, "-1.5e-07"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(float(value), wanted);
        }
    }
}
