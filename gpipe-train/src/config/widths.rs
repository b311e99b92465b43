//! The key `model.hidden`: the widths of hidden layers.

use std::str::FromStr;

use super::numbers::Size;

/// The widths of a perceptron's hidden layers, first to last: `128,128,64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widths(Vec<usize>);

impl Widths {
    /// The widths; at least one.
    pub fn get(&self) -> &[usize] {
        &self.0
    }
}

impl FromStr for Widths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let width = |width: &str| {
            let number = width.trim().parse::<i64>().ok();
            number.and_then(|number| Size::try_from(number).ok())
        };
        let widths: Option<Vec<Size>> = text.split(',').map(width).collect();
        let widths = widths.ok_or_else(|| {
            format!(
                "`{text}` is not a list of widths: use whole numbers from 1 up, such as 128,128"
            )
        })?;
        Ok(Self(widths.into_iter().map(Size::get).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_is_a_number_from_1_up() {
        assert_eq!("128, 64".parse(), Ok(Widths(vec![128, 64])));
        for bad in ["", "128,", "0", "-1", "wide", "99999999999"] {
            assert!(bad.parse::<Widths>().is_err(), "{bad}");
        }
    }
}
