//! What the text of a module defines and uses: items, modules as blocks, and names that stand by themselves.

use std::collections::BTreeSet;

use super::code::is_word;

/// Whether a name that an import brings in stands somewhere by itself: not as a method, not below a path,
/// not where a module of that name is declared.
pub fn is_used(code: &str, name: &str) -> bool {
    let bytes = code.as_bytes();
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].trim_end();
        let is_module = before
            .strip_suffix("mod")
            .is_some_and(|rest| !rest.ends_with(ends_in_word));
        let whole = !code[..at].ends_with(ends_in_word)
            && !bytes
                .get(at + name.len())
                .is_some_and(|&byte| is_word(byte));
        whole && !is_module && !before.ends_with('.') && !before.ends_with("::")
    })
}

fn ends_in_word(last: char) -> bool {
    last.is_alphanumeric() || last == '_'
}

/// The names of the items that code defines.
pub fn definitions(code: &str) -> BTreeSet<String> {
    let kinds = [
        "fn",
        "struct",
        "enum",
        "union",
        "trait",
        "type",
        "const",
        "static",
        "macro_rules",
    ];
    let parts = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let words: Vec<&str> = parts.filter(|word| !word.is_empty()).collect();
    let pairs = words.windows(2).filter(|pair| kinds.contains(&pair[0]));
    pairs.map(|pair| pair[1].to_owned()).collect()
}

/// The modules that lie in a file as blocks, with the places where their insides begin and end.
pub fn blocks(code: &str) -> Vec<(String, (usize, usize))> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("mod ") {
        let rest = &code[at + 4..];
        let Some((name, _)) = rest.split_once('{') else {
            continue;
        };
        let name = name.trim();
        let apart = at == 0 || !is_word(code.as_bytes()[at - 1]);
        if !apart || name.is_empty() || !name.bytes().all(is_word) {
            continue;
        }
        let open = at + 4 + rest.find('{').unwrap_or_default();
        let mut depth = 0_usize;
        let close = code[open..].bytes().position(|byte| {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let close = close.map_or(code.len(), |close| open + close);
        found.push((name.to_owned(), (open, close)));
    }
    found
}
