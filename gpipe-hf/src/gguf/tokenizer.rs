//! The tokenizer in a GGUF file, as the `tokenizer.json` and `tokenizer_config.json` that say the same.

use serde_json::{Map, Value as Json, json};

use super::header::{Header, Value, clip};

/// Types of tokens that are found in a text before it is cut: control tokens, and those that users added.
const ADDED: [i64; 2] = [3, 4];

/// Where Qwen and Llama 3 cut a text: contractions, words with what precedes them, runs of digits, signs, line ends and
/// spaces.
fn pattern(digits: &str) -> String {
    let before = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+";
    let after = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    format!("{before}|{digits}{after}")
}

/// The rules of Llama 3, which take a piece that is a token as it is, whatever its merges.
const LLAMA3: &str = "llama-bpe";

const MEND: &str = "name a tokenizer.json with `data.tokenizer`";

impl Header {
    /// The bytes of a `tokenizer.json`, or why there is none.
    pub fn tokenizer(&self) -> Result<Vec<u8>, String> {
        let kind = self.text("tokenizer.ggml.model")?.unwrap_or("none");
        if kind != "gpt2" {
            return Err(format!(
                "tokenizer.ggml.model is `{}`: only gpt2 can be read: {MEND}",
                clip(kind)
            ));
        }
        let by_bytes = |use_regex: bool| {
            json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex,
            })
        };
        let sequence = |first: Json, second: Json| json!({"type": "Sequence", "pretokenizers": [first, second]});
        // llama.cpp splits texts by rules of its own where they are missing, or `default`, and warns: the converter did not know
        // those that the model was trained with.
        let pre = self.text("tokenizer.ggml.pre")?;
        let pre = pre.ok_or_else(|| format!("has no tokenizer.ggml.pre: {MEND}"))?;
        let split = |digits: &str| {
            let split = json!({
                "type": "Split", "pattern": {"Regex": pattern(digits)}, "behavior": "Isolated", "invert": false,
            });
            sequence(split, by_bytes(false))
        };
        let (normalizer, rules) = match pre {
            "gpt-2" => (Json::Null, by_bytes(true)),
            "smollm" => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                (Json::Null, sequence(digits, by_bytes(true)))
            }
            "qwen2" => (json!({"type": "NFC"}), split(r"\p{N}")),
            LLAMA3 => (Json::Null, split(r"\p{N}{1,3}")),
            other => {
                return Err(format!(
                    "tokenizer.ggml.pre is `{}`: only gpt-2, smollm, qwen2 and {LLAMA3} can be read: {MEND}",
                    clip(other)
                ));
            }
        };
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let merges = self.texts("tokenizer.ggml.merges")?;
        let vocab: Map<String, Json> = tokens
            .iter()
            .zip(0_u64..)
            .map(|(token, id)| (token.clone(), id.into()))
            .collect();
        if vocab.len() != tokens.len() {
            return Err("tokenizer.ggml.tokens has a token twice".into());
        }
        let kinds = match self.metadata.get("tokenizer.ggml.token_type") {
            Some(Value::Wholes(kinds)) => kinds.as_slice(),
            _ => &[],
        };
        let added: Vec<Json> = tokens
            .iter()
            .zip(kinds)
            .enumerate()
            .filter(|(_, (_, kind))| ADDED.contains(kind))
            .map(|(id, (token, kind))| {
                json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": *kind == ADDED[0],
                })
            })
            .collect();
        let decoder = json!({
            "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
        });
        let file = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": normalizer,
            "pre_tokenizer": rules,
            "post_processor": null,
            "decoder": decoder,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "ignore_merges": pre == LLAMA3,
                "vocab": vocab, "merges": merges,
            },
        });
        Ok(file.to_string().into_bytes())
    }

    /// The bytes of the `tokenizer_config.json` beside it.
    pub fn tokenizer_config(&self) -> Result<Vec<u8>, String> {
        let mut file = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": false,
        });
        for (stored, name) in [
            ("bos", "bos_token"),
            ("eos", "eos_token"),
            ("unknown", "unk_token"),
            ("padding", "pad_token"),
        ] {
            let id = self.whole(&format!("tokenizer.ggml.{stored}_token_id"))?;
            let tokens = self.texts("tokenizer.ggml.tokens").unwrap_or_default();
            if let Some(token) = id.and_then(|id| tokens.get(usize::try_from(id).ok()?)) {
                file[name] = token.as_str().into();
            }
        }
        if let Some(template) = self.text("tokenizer.chat_template")? {
            file["chat_template"] = template.into();
        }
        Ok(file.to_string().into_bytes())
    }

    fn texts(&self, key: &str) -> Result<&[String], String> {
        match self.metadata.get(key) {
            Some(Value::Texts(texts)) => Ok(texts),
            _ => Err(format!("has no list of texts `{key}`: {MEND}")),
        }
    }
}
