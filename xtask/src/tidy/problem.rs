//! What a rule finds.

use std::fmt;

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, from the root.
    pub path: String,
    /// The line, from 1, where there is one.
    pub line: Option<usize>,
    /// What is wrong and how to mend it.
    pub message: String,
}

impl Problem {
    /// In a file, at a line.
    pub fn new(path: &str, line: Option<usize>, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}
