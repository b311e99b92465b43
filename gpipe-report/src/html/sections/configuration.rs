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

/// Keys whose values differ; nothing if a configuration is missing or no TOML.
fn differences(a: &Run, b: &Run) -> String {
    let keys = |run: &Run| -> Option<Vec<(String, String)>> {
        let table: toml::Table = run.config.as_deref()?.parse().ok()?;
        let mut keys = Vec::new();
        for (name, value) in table {
            match value {
                toml::Value::Table(section) => {
                    let of_section = section.into_iter();
                    keys.extend(
                        of_section.map(|(key, value)| (format!("{name}.{key}"), value.to_string())),
                    );
                }
                value => keys.push((name, value.to_string())),
            }
        }
        Some(keys)
    };
    let (Some(a), Some(b)) = (keys(a), keys(b)) else {
        return String::new();
    };
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
