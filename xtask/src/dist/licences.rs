//! The licences of the crates that the program is linked with: most of them ask to be shipped
//! with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::tree;

/// One text: each licence once, below the names of the crates that come with it.
pub fn of_dependencies(shell: &Shell, package: &str, host: &str) -> anyhow::Result<String> {
    let metadata = cmd!(
        shell,
        "cargo metadata --format-version 1 --locked --filter-platform {host}"
    );
    let metadata: Value = serde_json::from_str(&metadata.quiet().read()?)?;
    let packages = list(&metadata["packages"]);
    let mut crates = BTreeMap::new();
    for id in linked(&metadata, package)? {
        let package = packages.iter().find(|package| package["id"] == id.as_str());
        let package = package.with_context(|| format!("cargo metadata does not list {id}"))?;
        // The crates of the workspace have no source; their licences are those of the archive.
        if package["source"].is_null() {
            continue;
        }
        let field = |key: &str| package[key].as_str().unwrap_or_default();
        let folder = Path::new(field("manifest_path"))
            .parent()
            .context("a manifest has a folder")?;
        let name = format!(
            "{} {} ({})",
            field("name"),
            field("version"),
            field("license")
        );
        crates.insert(name, texts(folder)?);
    }
    Ok(listed(&crates))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The ids of a package and of everything that it links, but not of what only builds or tests it.
fn linked(metadata: &Value, package: &str) -> anyhow::Result<BTreeSet<String>> {
    let root = list(&metadata["packages"])
        .iter()
        .find(|candidate| candidate["name"] == package && candidate["source"].is_null());
    let root = root.with_context(|| format!("no package {package} in the workspace"))?;
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = root["id"].as_str().into_iter().collect();
    while let Some(id) = open.pop() {
        if !found.insert(id.to_owned()) {
            continue;
        }
        let node = nodes
            .get(id)
            .with_context(|| format!("cargo metadata does not resolve {id}"))?;
        let normal = list(&node["deps"]).iter().filter(|dependency| {
            list(&dependency["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
        });
        open.extend(normal.filter_map(|dependency| dependency["pkg"].as_str()));
    }
    Ok(found)
}

/// The licences and notices in a crate's folder.
fn texts(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut texts = Vec::new();
    for path in tree::entries(folder)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        let begins = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
        if path.is_file() && begins.iter().any(|begin| name.starts_with(begin)) {
            let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            texts.push(String::from_utf8_lossy(&bytes).trim().to_owned());
        }
    }
    Ok(texts)
}

/// All crates by name, then every text with the crates that it comes with.
fn listed(crates: &BTreeMap<String, Vec<String>>) -> String {
    let mut by_text: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut lines =
        "gpipe is linked with these crates, under the licences that follow:\n\n".to_owned();
    for (name, texts) in crates {
        lines += &format!("  {name}\n");
        for text in texts {
            by_text.entry(text).or_default().push(name);
        }
    }
    for (text, names) in by_text {
        lines += &format!("\n{}\n{}:\n\n{text}\n", "-".repeat(80), names.join(",\n"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_linked_counts() {
        let dependency = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [{"name": "program", "id": "p", "source": null}],
            "resolve": {"nodes": [
                {"id": "p", "deps": [
                    dependency("a", Value::Null),
                    dependency("test", json!("dev")),
                    dependency("script", json!("build")),
                ]},
                {"id": "a", "deps": [dependency("b", Value::Null)]},
                {"id": "b", "deps": [dependency("a", Value::Null)]},
                {"id": "test", "deps": []},
                {"id": "script", "deps": []},
            ]},
        });
        let found: Vec<String> = linked(&metadata, "program").unwrap().into_iter().collect();
        assert_eq!(found, ["a", "b", "p"]);
        assert!(linked(&metadata, "other").is_err());
    }

    #[test]
    fn a_text_that_crates_share_is_printed_once() {
        let crates = [
            ("a 1 (MIT)", "be free"),
            ("b 2 (MIT)", "be free"),
            ("c 3 (MIT)", "be kind"),
        ];
        let crates = crates.map(|(name, text)| (name.to_owned(), vec![text.to_owned()]));
        let text = listed(&BTreeMap::from(crates));
        assert_eq!(text.matches("be free").count(), 1);
        assert!(text.contains("a 1 (MIT),\nb 2 (MIT):\n\nbe free"), "{text}");
    }
}
