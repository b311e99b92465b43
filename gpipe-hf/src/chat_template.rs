//! The chat template that belongs to a tokenizer.

use std::path::Path;

use gpipe_files::{Links, read_capped};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::gguf::{is_gguf, tokenizer_files};
use crate::names::{SETTINGS, SPECIAL_TOKENS, TEMPLATE};

/// Special tokens that templates name.
const SPECIAL: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The largest file that is read.
const LARGEST: u64 = 32 << 20;

const MEND: &str = "make it readable, or remove it";

/// A template in Jinja, as text that nobody has checked, and what it may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    /// The template.
    pub text: String,
    /// The texts of special tokens by their names, such as `bos_token`.
    pub special: Vec<(String, String)>,
}

/// The chat template beside a `tokenizer.json`, or in a GGUF file, if there is one: in `chat_template.jinja`, else in
/// `tokenizer_config.json`, of several the one named `default`. Special tokens are those of `tokenizer_config.json`, and of
/// `special_tokens_map.json` where the former has no `added_tokens_decoder`: as `transformers` 5 reads them.
///
/// # Errors
/// If a file is there and cannot be read, is longer than 32 MiB, or is no JSON.
pub fn chat_template(tokenizer: &Path) -> Result<Option<ChatTemplate>> {
    let beside = |name: &str| -> Result<Option<Vec<u8>>> {
        let path = tokenizer.with_file_name(name);
        match path.symlink_metadata() {
            Ok(_) => Ok(Some(read_capped(&path, LARGEST, Links::Followed, MEND)?)),
            Err(_) => Ok(None),
        }
    };
    let json = |name: &str, bytes: Option<Vec<u8>>| -> Result<Value> {
        let Some(bytes) = bytes else {
            return Ok(Value::Null);
        };
        serde_json::from_slice(&bytes).map_err(|error| Error::Invalid {
            path: tokenizer.with_file_name(name),
            fault: format!("no JSON: {error}: {MEND}"),
        })
    };
    let (settings, own) = match is_gguf(tokenizer) {
        true => {
            let files = tokenizer_files(tokenizer)?;
            let settings = files.into_iter().find(|(name, _)| name == SETTINGS);
            (settings.map(|(_, bytes)| bytes), None)
        }
        false => (beside(SETTINGS)?, beside(TEMPLATE)?),
    };
    let settings = json(SETTINGS, settings)?;
    let text = match own {
        Some(bytes) => Some(String::from_utf8(bytes).map_err(|_| Error::Invalid {
            path: tokenizer.with_file_name(TEMPLATE),
            fault: format!("no UTF-8 text: {MEND}"),
        })?),
        None => of_settings(&settings["chat_template"]),
    };
    let Some(text) = text else {
        return Ok(None);
    };
    let map = match is_gguf(tokenizer) || settings.get("added_tokens_decoder").is_some() {
        true => Value::Null,
        false => json(SPECIAL_TOKENS, beside(SPECIAL_TOKENS)?)?,
    };
    let special = SPECIAL.iter().filter_map(|&name| {
        // As text, or as a token with its rules.
        let token = map.get(name).unwrap_or(&settings[name]);
        let text = token.as_str().or_else(|| token["content"].as_str())?;
        Some((name.to_owned(), text.to_owned()))
    });
    Ok(Some(ChatTemplate {
        text,
        special: special.collect(),
    }))
}

/// A template as text, or the default one of a list of templates with names.
fn of_settings(templates: &Value) -> Option<String> {
    let default = templates
        .as_array()
        .and_then(|all| all.iter().find(|one| one["name"] == "default"));
    let text = default.map_or(templates, |one| &one["template"]);
    text.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::names::TOKENIZER;

    #[test]
    fn a_template_is_found_beside_the_tokenizer() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let found = || chat_template(&path(TOKENIZER));
        assert_eq!(found().unwrap(), None);
        let write = |settings: Value| fs::write(path(SETTINGS), settings.to_string()).unwrap();
        write(json!({"bos_token": "<s>"}));
        assert_eq!(found().unwrap(), None);
        let tokens = json!({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null});
        let special: Vec<(String, String)> = [("bos_token", "<s>"), ("eos_token", "</s>")]
            .map(|(name, text)| (name.into(), text.into()))
            .into();
        let several =
            json!([{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}]);
        for templates in [json!("a"), several] {
            let mut settings = tokens.clone();
            settings["chat_template"] = templates;
            write(settings);
            let template = found().unwrap().unwrap();
            assert_eq!((template.text.as_str(), &template.special), ("a", &special));
        }
        // In a file of their own they go first, unless the settings describe all tokens that were added.
        let map = json!({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": null});
        fs::write(path(SPECIAL_TOKENS), map.to_string()).unwrap();
        let bos = [("bos_token".to_owned(), "<b>".to_owned())];
        assert_eq!(found().unwrap().unwrap().special, bos);
        write(json!({"chat_template": "a"}));
        assert_eq!(found().unwrap().unwrap().special, bos);
        write(json!({"chat_template": "a", "eos_token": "</s>", "added_tokens_decoder": {}}));
        let eos = [("eos_token".to_owned(), "</s>".to_owned())];
        assert_eq!(found().unwrap().unwrap().special, eos);
        write(json!({"chat_template": "a"}));
        fs::write(path(SPECIAL_TOKENS), "[").unwrap();
        let message = found().unwrap_err().to_string();
        assert!(
            message.contains("special_tokens_map.json: no JSON"),
            "{message}"
        );
        fs::remove_file(path(SPECIAL_TOKENS)).unwrap();
        // A file of its own goes first.
        fs::write(path(TEMPLATE), "c").unwrap();
        assert_eq!(found().unwrap().unwrap().text, "c");
        fs::write(path(TEMPLATE), b"\xFF").unwrap();
        let message = found().unwrap_err().to_string();
        assert!(message.contains(TEMPLATE), "{message}");
        fs::write(path(SETTINGS), "{").unwrap();
        let message = found().unwrap_err().to_string();
        assert!(
            message.contains("tokenizer_config.json: no JSON"),
            "{message}"
        );
    }
}
