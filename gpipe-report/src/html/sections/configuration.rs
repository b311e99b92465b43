//! The section on configuration and machine, with the differences of two runs.

use super::common::machine;
use crate::html::escape::{escape, table};
use crate::numbers;
use crate::run::Run;
use crate::timeline::record::Record;

/// The section on configuration and machine; for two runs, their differences first.
pub(crate) fn configuration(runs: &[Run]) -> String {
    let mut html = String::from("<h2>Configuration and machine</h2>\n");
    if let [a, b] = runs {
        html += &differences(a, b);
    }
    html += "<div class=\"sides\">\n";
    for run in runs {
        let machine = run.record.as_ref().map_or(String::new(), |record| {
            let machine = &record.machine;
            let memory = machine.memory.map_or(String::new(), |memory| {
                format!(", {} of memory", numbers::bytes(memory))
            });
            format!(
                "<p>{}: {} on {} {}{memory}; gpipe {}</p>\n",
                escape(&run.name),
                machine_words(record),
                escape(&machine.system),
                escape(&machine.architecture),
                escape(&record.gpipe)
            )
        });
        let config = run.config.as_ref().map_or(String::new(), |config| {
            let open = if runs.len() == 1 { " open" } else { "" };
            format!(
                "<details{open}><summary>config.toml</summary><pre>{}</pre></details>\n",
                escape(config)
            )
        });
        html += &format!("<div>\n{machine}{config}</div>\n");
    }
    html + "</div>\n"
}

fn machine_words(record: &Record) -> String {
    let mut names: Vec<&str> = record.devices.iter().map(String::as_str).collect();
    names.dedup();
    format!(
        "{} ({})",
        escape(&machine(record)),
        escape(&names.join(", "))
    )
}

/// Keys whose values differ.
fn differences(a: &Run, b: &Run) -> String {
    let keys = |run: &Run| -> Vec<(String, String)> {
        let table = run
            .config
            .as_deref()
            .and_then(|text| text.parse::<toml::Table>().ok());
        let mut keys = Vec::new();
        for (section, values) in table.into_iter().flatten() {
            for (key, value) in values.as_table().into_iter().flatten() {
                keys.push((format!("{section}.{key}"), value.to_string()));
            }
        }
        keys
    };
    let (a, b) = (keys(a), keys(b));
    let of = |keys: &[(String, String)], name: &str| {
        let found = keys.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    };
    let mut names: Vec<&String> = a.iter().chain(&b).map(|(key, _)| key).collect();
    names.sort_unstable();
    names.dedup();
    let rows: Vec<Vec<String>> = names
        .into_iter()
        .filter(|name| of(&a, name) != of(&b, name))
        .map(|name| {
            let cell = |value: Option<String>| value.map_or(String::new(), |value| escape(&value));
            vec![escape(name), cell(of(&a, name)), cell(of(&b, name))]
        })
        .collect();
    if rows.is_empty() {
        return "<p>Both runs have the same configuration.</p>\n".to_owned();
    }
    format!(
        "<p>What differs:</p>\n{}",
        table(&["key", "A", "B"], 3, &rows)
    )
}
