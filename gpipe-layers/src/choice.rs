//! Parsing of a choice from its name.

use crate::{Error, Result};

/// The choice that `text` names. `what` names the kind of choice in the error.
pub(crate) fn choose<T: Copy>(what: &str, text: &str, choices: &[(&str, T)]) -> Result<T> {
    let found = choices.iter().find(|(name, _)| *name == text);
    found.map(|&(_, choice)| choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Error::Config(format!(
            "unknown {what} `{text}`: use {}",
            names.join(" or ")
        ))
    })
}
