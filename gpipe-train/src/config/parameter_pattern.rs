//! A regular expression over the names of parameters.

use std::fmt;
use std::str::FromStr;

use regex::Regex;

/// Parameters, by a regular expression that is found anywhere in their names; none for an empty text.
#[derive(Clone, Debug)]
pub struct ParameterPattern(Option<Regex>);

impl ParameterPattern {
    /// No parameters.
    pub const NONE: Self = Self(None);

    /// Whether it is empty.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the parameter of this name is one of them.
    pub fn matches(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(name))
    }
}

impl PartialEq for ParameterPattern {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Display for ParameterPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or("", Regex::as_str))
    }
}

impl FromStr for ParameterPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::NONE);
        }
        Regex::new(text)
            .map(|regex| Self(Some(regex)))
            .map_err(|error| {
                // The lines before show the place in the text.
                let error = error.to_string();
                let fault = error.lines().last().unwrap_or_default();
                let fault = fault.strip_prefix("error: ").unwrap_or(fault);
                format!("the regular expression `{text}` is invalid: {fault}: write one such as `ln_|bias`")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_searched_and_faults_are_one_line() {
        let pattern: ParameterPattern = r"^h\.[01]\.|wte".parse().unwrap();
        for (name, matches) in [
            ("h.1.mlp.weight", true),
            ("transformer.wte.weight", true),
            ("h.2.mlp.weight", false),
        ] {
            assert_eq!(pattern.matches(name), matches, "{name}");
        }
        assert!(!ParameterPattern::NONE.matches("h"));
        assert_eq!("".parse(), Ok(ParameterPattern::NONE));
        assert_eq!(
            "h.(".parse::<ParameterPattern>().unwrap_err(),
            "the regular expression `h.(` is invalid: unclosed group: write one such as `ln_|bias`"
        );
    }
}
