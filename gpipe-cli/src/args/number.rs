//! Numbers of flags that set no key of the configuration: their errors are mends.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

/// A count of 1 or more, by its type or where it is used.
pub fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, &'static str> {
    read(text, "use a whole number from 1 up")
}

fn read<T: FromStr<Err = ParseIntError>>(
    text: &str,
    mend: &'static str,
) -> Result<T, &'static str> {
    text.parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => "use a smaller number",
            _ => mend,
        })
}

/// Seconds within which another process gives a sign of life, one each second.
pub fn seconds(text: &str) -> Result<u64, &'static str> {
    let mend = "use a whole number from 3 up";
    read(text, mend).and_then(|seconds| if seconds < 3 { Err(mend) } else { Ok(seconds) })
}

/// A number that is allowed, or else this mend.
pub fn number(
    text: &str,
    is_allowed: impl Fn(f64) -> bool,
    mend: &'static str,
) -> Result<f64, &'static str> {
    let number = text.parse().ok();
    number.filter(|number| is_allowed(*number)).ok_or(mend)
}
