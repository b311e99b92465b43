//! Manifests of checkpoints, sealed by someone who knows how.

use super::{Hostile, hostile};

pub fn all() -> Vec<Hostile> {
    let digest = "0f".repeat(32);
    let file = |name: &str| format!(r#"{{"name":"{name}","bytes":3,"sha256":"{digest}"}}"#);
    let whole = ["config.toml", "state.json", "optimizer.safetensors"].map(file);
    let list = |step: &str, files: &[String]| {
        let files = files.join(",");
        format!(r#"{{"format":"gpipe checkpoint 1","step":{step},"files":[{files}]}}"#)
    };
    // What follows the object, and is cut off with its end before it is sealed.
    let end = |list: String| format!("{}\n}}", list.strip_suffix('}').unwrap_or(&list));
    let named = |name: &str| {
        let files = [&whole[..], &[file(name)]].concat();
        end(list("7", &files))
    };
    let mut all: Vec<Hostile> = [
        "../x",
        "/etc/passwd",
        "model/../../x",
        "model//x",
        "./x",
        "",
        "C:x",
        "a\\\\b",
        "a\\u0000b",
        "a\\nb",
        "a/b/c/d/e",
        "manifest.json",
        "state.json",
        "model/",
    ]
    .into_iter()
    .map(|name| {
        hostile(
            "manifest",
            format!("the name `{name}`"),
            named(name),
            "manifest.json",
        )
    })
    .collect();
    let one = |what: &str, text: String, word| hostile("manifest", what, text, word);
    all.extend([
        one("nothing", String::new(), "no list of files"),
        one("no files", end(list("7", &[])), "does not list config.toml"),
        one(
            "a step before the first",
            end(list("-1", &whole)),
            "manifest.json",
        ),
        one(
            "a step beyond counting",
            end(list("18446744073709551616", &whole)),
            "manifest.json",
        ),
        one(
            "another format",
            end(list("7", &whole)).replace("checkpoint 1", "checkpoint 2"),
            "reads `gpipe checkpoint 1`",
        ),
        one(
            "a key of tomorrow",
            end(list("7", &whole)).replace("\"step\"", "\"new\":1,\"step\""),
            "new",
        ),
        one(
            "a digest that is none",
            end(list("7", &whole)).replacen("0f", "0F", 1),
            "no digest",
        ),
        one(
            "a digest that is short",
            end(list("7", &whole)).replacen("0f", "", 1),
            "no digest",
        ),
        one(
            "a negative length",
            end(list("7", &whole)).replacen("3,", "-3,", 1),
            "manifest.json",
        ),
        one("nesting", "[".repeat(100_000), "manifest.json"),
        one(
            "an end of its own",
            end(list("7", &whole)) + ",\"sha256\":\"\"",
            "manifest.json",
        ),
        hostile("manifest", "no text", [0xff, 0xfe], "no text"),
    ]);
    all
}
