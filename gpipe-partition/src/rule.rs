//! The rule by which a model is cut, as a user names it.

use std::fmt;
use std::str::FromStr;

use crate::balance::balance;
use crate::histogram::histogram;
use crate::partition::{explicit, join};
use crate::{Error, Partition, Result};

/// How layers are cut into stages. Read from and shown as `balance`, `histogram` or sizes such as
/// `3,3,4,2`.
///
/// ```
/// use gpipe_partition::CutRule;
///
/// let costs = [1, 1, 1, 1, 1, 1];
/// let rule: CutRule = "histogram".parse()?;
/// assert_eq!(rule.cut(&costs, 3)?.to_string(), "1,2,3");
/// assert_eq!(CutRule::default().cut(&costs, 3)?.to_string(), "2,2,2");
///
/// let sizes: CutRule = "1, 4,1".parse()?;
/// assert_eq!(sizes.to_string(), "1,4,1");
/// assert!(sizes.cut(&costs, 2).is_err());
/// # Ok::<(), gpipe_partition::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CutRule {
    /// The least bottleneck ([`balance`]).
    #[default]
    Balance,
    /// Lingvo's rule ([`histogram`]).
    Histogram,
    /// The number of layers of each stage ([`explicit`]).
    Sizes(Vec<usize>),
}

impl CutRule {
    /// Cuts a model whose layers cost `costs` into `parts` stages.
    ///
    /// # Errors
    /// As the function that the rule stands for, and if the explicit sizes are not one for each
    /// stage.
    pub fn cut(&self, costs: &[u64], parts: usize) -> Result<Partition> {
        match self {
            Self::Balance => balance(costs, parts),
            Self::Histogram => {
                let costs: Vec<f64> = costs.iter().map(|&cost| cost as f64).collect();
                histogram(&costs, parts)
            }
            Self::Sizes(sizes) if sizes.len() != parts => Err(Error::SizeCount {
                sizes: sizes.len(),
                parts,
            }),
            Self::Sizes(sizes) => explicit(sizes, costs.len()),
        }
    }
}

impl fmt::Display for CutRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balance => f.pad("balance"),
            Self::Histogram => f.pad("histogram"),
            Self::Sizes(sizes) => f.pad(&join(sizes)),
        }
    }
}

impl FromStr for CutRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "balance" => return Ok(Self::Balance),
            "histogram" => return Ok(Self::Histogram),
            _ => {}
        }
        let sizes = text.split(',').map(|size| size.trim().parse());
        match sizes.collect() {
            Ok(sizes) => Ok(Self::Sizes(sizes)),
            Err(_) => Err(Error::UnknownRule(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_named_or_sizes() {
        assert_eq!("3, 3,4,2".parse(), Ok(CutRule::Sizes(vec![3, 3, 4, 2])));
        assert_eq!("histogram".parse(), Ok(CutRule::Histogram));
        for bad in ["", "3,,4", "-1,2", "even", "99999999999999999999"] {
            let error = bad.parse::<CutRule>().unwrap_err().to_string();
            let expected =
                format!("`{bad}` is no partition: use balance, histogram or sizes such as 3,3,4,2");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_rule_is_shown_as_it_is_read() {
        for text in ["balance", "histogram", "3,3,4,2"] {
            assert_eq!(text.parse::<CutRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn sizes_are_one_for_each_stage() {
        let rule = CutRule::Sizes(vec![2, 2]);
        assert_eq!(rule.cut(&[1; 4], 2).unwrap().to_string(), "2,2");
        assert_eq!(
            rule.cut(&[1; 4], 3).unwrap_err().to_string(),
            "2 sizes but 3 stages: give one size for each, or use 2 stages"
        );
        assert!(rule.cut(&[1; 5], 2).is_err());
    }
}
