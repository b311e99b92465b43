//! Reading a choice by its name.

use crate::{Error, Result};

/// The choice that `text` names. `what` says in the error what is chosen.
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
