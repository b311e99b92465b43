//! Text, JSON and tables as parts of a page, whatever is in them.

use serde::Serialize;

use crate::error::Result;

/// Text as HTML shows it, inside an attribute too. Control characters, which HTML cannot hold, become
/// the replacement character.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(character),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON for a script element: it contains neither `</script>` nor `<!--`, nor a line separator of
/// JavaScript that JSON does not have.
pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string(value)?;
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped += &format!("\\u{:04x}", u32::from(character));
            }
            c => escaped.push(c),
        }
    }
    Ok(escaped)
}

/// The template with every `{{name}}` replaced; names in the values are left as they are.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        page += value.map_or("", |(_, value)| *value);
        page += rest;
    }
    page
}

/// A table of a heading and rows of HTML, whose first `text` columns are aligned as text.
pub(crate) fn table(heading: &[&str], text: usize, rows: &[Vec<String>]) -> String {
    let class = |column: usize| if column < text { " class=\"text\"" } else { "" };
    let row = |cells: &Vec<String>| {
        // Narrow screens show cells one below the other, each with the name of its column.
        let cells: String = cells
            .iter()
            .zip(heading)
            .enumerate()
            .map(|(column, (cell, name))| {
                format!("<td{} data-name=\"{name}\">{cell}</td>", class(column))
            })
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = rows.iter().map(row).collect();
    let names: String = heading
        .iter()
        .enumerate()
        .map(|(column, name)| format!("<th{}>{name}</th>", class(column)))
        .collect();
    format!(
        "<div class=\"scroll\"><table>\n<thead><tr>{names}</tr>\n</thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_the_element_that_holds_it() {
        let evil = "</script><img src=x onerror='alert(1)'>&\"\u{2028}\u{0}\u{1b}[31m";
        let html = escape(evil);
        assert!(!html.contains(['<', '>', '"', '\'', '\u{0}', '\u{1b}']));
        assert!(html.starts_with("&lt;/script&gt;"));
        let json = json(&evil).unwrap();
        assert!(!json.contains(['<', '>', '&', '\u{2028}']));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), evil);
    }

    #[test]
    fn names_in_values_are_not_replaced() {
        let page = fill(
            "a {{one}} b {{two}} {{none}}!",
            &[("one", "{{two}}"), ("two", "2")],
        );
        assert_eq!(page, "a {{two}} b 2 !");
    }
}
