//! Amounts of memory with units: `8GiB`, `1.5 MiB`, `4096`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Written without a unit it is bytes; units are B, KiB, MiB, GiB and TiB, or
/// kB, MB, GB and TB for powers of 1000, in any case, and the number may have a fraction.
///
/// ```
/// use gpipe_remat::Bytes;
///
/// assert_eq!("1.5KiB".parse(), Ok(Bytes(1536)));
/// assert_eq!("2GB".parse(), Ok(Bytes(2_000_000_000)));
/// assert_eq!(Bytes(8 << 30).to_string(), "8GiB");
/// assert_eq!(Bytes(1000).to_string(), "1000B");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The amount as a known limit: as it may have been written, or with a digit after the point where that has more than
    /// four digits.
    ///
    /// ```
    /// use gpipe_remat::Bytes;
    ///
    /// assert_eq!(Bytes(1536 << 20).rounded(), "1536MiB");
    /// assert_eq!(Bytes(80_000_000_000).rounded(), "74.5GiB");
    /// ```
    pub fn rounded(self) -> String {
        let exact = self.to_string();
        let digits = exact.bytes().filter(u8::is_ascii_digit).count();
        match BINARY.iter().find(|(_, unit)| self.0 >= *unit) {
            Some(&(name, unit)) if digits > 4 => {
                format!("{:.1}{name}", self.0 as f64 / unit as f64)
            }
            _ => exact,
        }
    }

    /// The amount rounded up to a few digits, as a suggested limit; from 8 PiB up it is exact. Above 0 it parses back.
    ///
    /// ```
    /// assert_eq!(gpipe_remat::Bytes(1_234_567).rounded_up(), "1.2MiB");
    /// ```
    pub fn rounded_up(self) -> String {
        let large = BINARY.iter().find(|(_, unit)| self.0 >= *unit);
        match large.copied() {
            Some((name, unit)) if unit > 1 && self.0 < FRACTION_LIMIT => {
                let whole = self.0 / unit;
                let tenths = (self.0 % unit).saturating_mul(10).div_ceil(unit);
                match tenths {
                    0 => format!("{whole}{name}"),
                    10 => format!("{}{name}", whole + 1),
                    tenths => format!("{whole}.{tenths}{name}"),
                }
            }
            _ => self.to_string(),
        }
    }
}

/// The text is not an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no amount of memory: write a number above 0 and a unit, such as 8GiB, 512MiB or 1.5GB"
)]
pub struct BytesError(String);

const BINARY: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];
const DECIMAL: [(&str, u64); 4] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// Numbers with a fraction are below this, beyond which not every whole number is a float.
const FRACTION_LIMIT: u64 = 1 << 53;

impl FromStr for Bytes {
    type Err = BytesError;

    fn from_str(text: &str) -> Result<Self, BytesError> {
        let fault = || BytesError(text.to_owned());
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = (&text[..digits], text[digits..].trim());
        let known = BINARY.iter().chain(&DECIMAL);
        let unit = match unit {
            "" => 1,
            unit => {
                let same = |(name, _): &&(&str, u64)| name.eq_ignore_ascii_case(unit);
                known.clone().find(same).ok_or_else(fault)?.1
            }
        };
        let bytes = match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(unit).ok_or_else(fault)?,
            Err(_) => {
                let bytes = number.parse::<f64>().map_err(|_| fault())? * unit as f64;
                if bytes.is_nan() || bytes >= FRACTION_LIMIT as f64 {
                    return Err(fault());
                }
                bytes as u64
            }
        };
        if bytes == 0 {
            Err(fault())
        } else {
            Ok(Self(bytes))
        }
    }
}

impl fmt::Display for Bytes {
    /// In the largest binary unit that divides it, so that an amount above 0 parses back exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 0 is a multiple of all.
        let divides = |(_, unit): &&(&str, u64)| self.0 >= *unit && self.0.is_multiple_of(*unit);
        let whole = BINARY.iter().find(divides);
        let (name, unit) = whole.copied().unwrap_or(("B", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [1, 1023, 1024, 1 << 20, (1 << 30) + 1, u64::MAX, 1000] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn nothing_is_no_bytes() {
        assert_eq!(Bytes(0).to_string(), "0B");
        assert_eq!(Bytes(0).rounded_up(), "0B");
    }

    #[test]
    fn rounding_goes_up() {
        let shown = [(1, "1B"), (1024, "1KiB"), (1025, "1.1KiB"), (2047, "2KiB")];
        for (bytes, text) in shown {
            assert_eq!(Bytes(bytes).rounded_up(), text);
        }
        for bytes in [3, 1025, 123_456_789, 5 << 30, (1 << 40) + 1] {
            let rounded: Bytes = Bytes(bytes).rounded_up().parse().unwrap();
            assert!(rounded.0 >= bytes && rounded.0 as f64 <= 1.1 * bytes as f64);
        }
        for near in [1 << 53, u64::MAX - 1] {
            for bytes in near - 1..=near + 1 {
                let rounded: Bytes = Bytes(bytes).rounded_up().parse().unwrap();
                assert!(rounded.0 >= bytes && rounded.0 - bytes <= 1, "{bytes}");
            }
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for bad in [
            "",
            "0",
            "0GiB",
            "GiB",
            "-1GiB",
            "1.2.3MiB",
            "8Gib/s",
            "nan",
            "inf",
            "1e9",
            "99999999999TiB",
            "18446744073709551616",
            ".",
            "0.1B",
            "8 Gi B",
        ] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
        assert_eq!("8 gib".parse(), Ok(Bytes(8 << 30)));
        assert_eq!(".5KiB".parse(), Ok(Bytes(512)));
    }
}
