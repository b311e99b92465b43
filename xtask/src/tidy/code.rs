//! Rust source with everything but the code blanked out.

/// The text with comments and the insides of string and character literals replaced by spaces.
/// Lines and columns stay.
pub fn without_prose(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = prose_end(text, at);
        if let Some(end) = end {
            blank(&mut code, at, end);
            at = end;
        } else if is_word(bytes[at]) {
            // A whole word at once, so that the r of `for` begins no raw string.
            at += bytes[at..]
                .iter()
                .take_while(|&&byte| is_word(byte))
                .count();
        } else {
            at += 1;
        }
    }
    // Whole characters were blanked, so what is left is still text.
    String::from_utf8_lossy(&code).into_owned()
}

/// The end of the comment or literal that begins here, if one does.
fn prose_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text.as_bytes()[at..];
    let length = if rest.starts_with(b"//") {
        rest.iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(rest.len())
    } else if rest.starts_with(b"/*") {
        block_comment(rest)
    } else if let Some(length) = raw_string(rest) {
        length
    } else if rest[0] == b'"' {
        quoted(rest, 0)
    } else if rest.starts_with(b"b\"") || rest.starts_with(b"c\"") {
        quoted(rest, 1)
    } else if rest[0] == b'\'' {
        character(&text[at..])?
    } else {
        return None;
    };
    Some(at + length)
}

/// The length of a comment that may hold others.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of `r"…"`, `br#"…"#` and their like.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = if matches!(rest, [b'b' | b'c', b'r', ..]) {
        2
    } else {
        1
    };
    if rest.get(prefix - 1) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix..]
        .iter()
        .take_while(|&&byte| byte == b'#')
        .count();
    let start = prefix + hashes + 1;
    if rest.get(start - 1) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let inside = rest[start..]
        .windows(close.len())
        .position(|window| window == close);
    Some(inside.map_or(rest.len(), |inside| start + inside + close.len()))
}

/// The length of a string whose opening quote lies at `open`.
fn quoted(rest: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut inside = rest[1..].chars();
    let first = inside.next()?;
    if first == '\\' {
        // The escaped character may itself be a quote.
        let escaped = inside.next()?.len_utf8();
        let close = rest[2 + escaped..].find('\'')?;
        return Some(2 + escaped + close + 1);
    }
    (inside.next() == Some('\'')).then(|| first.len_utf8() + 2)
}

/// Code (as [`without_prose`] leaves it) with the items that only tests have blanked out, and the
/// names of the modules among them that lie in other files.
pub fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut kept = code.as_bytes().to_vec();
    let mut modules = Vec::new();
    for (start, _) in code.match_indices("#[cfg(") {
        let attribute = code[start..]
            .find(']')
            .map_or("", |end| &code[start..=start + end]);
        if !(attribute == "#[cfg(test)]" || attribute.starts_with("#[cfg(all(test,")) {
            continue;
        }
        let item = start + attribute.len();
        let end = item + item_length(&code[item..]);
        if let Some(name) = module_name(&code[item..end]) {
            modules.push(name.to_owned());
        }
        blank(&mut kept, start, end);
    }
    (String::from_utf8_lossy(&kept).into_owned(), modules)
}

/// The length of an item up to its closing brace or its semicolon.
fn item_length(code: &str) -> usize {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return at + 1;
                }
            }
            b'(' | b'[' => others += 1,
            b')' | b']' => others = others.saturating_sub(1),
            b';' if braces == 0 && others == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The name in `mod name;`.
fn module_name(item: &str) -> Option<&str> {
    let declaration = item.trim().strip_suffix(';')?;
    let (before, name) = declaration.rsplit_once(char::is_whitespace)?;
    (before == "mod" || before.ends_with(" mod")).then_some(name)
}

/// The numbers of the lines on which `word` stands as a word of its own.
pub fn lines_with<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let ends_in_word = word.bytes().next_back().is_some_and(is_word);
    let found = code.match_indices(word).filter(move |(at, _)| {
        let free_before = *at == 0 || !is_word(bytes[at - 1]);
        let after = bytes.get(at + word.len()).copied();
        free_before && !(ends_in_word && after.is_some_and(is_word))
    });
    found.map(|(at, _)| 1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count())
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn blank(code: &mut [u8], start: usize, end: usize) {
    let end = end.min(code.len());
    for byte in &mut code[start..end] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a text, without the spaces.
    fn words(text: &str) -> Vec<String> {
        without_prose(text)
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(words("a // b\nc"), ["a", "c"]);
        assert_eq!(words("a /* b /* c */ d */ e"), ["a", "e"]);
        assert_eq!(words(r#"a "b \" c" d"#), ["a", "d"]);
        assert_eq!(words(r###"a r#"b " c"# d"###), ["a", "d"]);
        assert_eq!(words(r#"a br"b\" c"#), ["a", "c"]);
        assert_eq!(words(r#"a b"b" c"#), ["a", "c"]);
        assert_eq!(words(r"a 'b' '\'' '\n' '\u{1F600}' '→' c"), ["a", "c"]);
        assert_eq!(words("a \"// not a comment\" b"), ["a", "b"]);
        assert_eq!(words("an \"unfinished → string"), ["an"]);
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(words("&'a str"), ["&'a", "str"]);
        assert_eq!(words("r#type = \"x\" y"), ["r#type", "=", "y"]);
        assert_eq!(words("for x in \"y\""), ["for", "x", "in"]);
    }

    #[test]
    fn lines_stay() {
        let code = without_prose("a\n/* →\n */ b \"\n\" c");
        assert_eq!(lines_with(&code, "b").collect::<Vec<_>>(), [3]);
        assert_eq!(lines_with(&code, "c").collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn only_whole_words_are_found() {
        let count = |code, word| lines_with(code, word).count();
        assert_eq!(count("eprintln!(); println!()", "println!"), 1);
        assert_eq!(count("unsafe_code unsafe", "unsafe"), 1);
        assert_eq!(count("Instant::nowhere Instant::now()", "Instant::now"), 1);
    }

    #[test]
    fn only_items_of_tests_are_blanked() {
        let kept = |code| without_tests(code).0.split_whitespace().collect::<String>();
        assert_eq!(
            kept("#[cfg(all(test, not(shuttle)))] mod tests { a } b"),
            "b"
        );
        assert_eq!(
            kept("#[cfg(not(test))] fn f() {}"),
            "#[cfg(not(test))]fnf(){}"
        );
        assert_eq!(
            kept("#[cfg(any(test, unix))] a;"),
            "#[cfg(any(test,unix))]a;"
        );
        assert_eq!(kept("#[cfg("), "#[cfg(");
    }

    #[test]
    fn test_items_are_blanked() {
        let code =
            "a #[cfg(test)] mod tests { fn f() { g } } b #[cfg(test)] fn x(y: [u8; 3]) { z } c";
        let (kept, modules) = without_tests(code);
        assert_eq!(kept.split_whitespace().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(modules, Vec::<String>::new());
        let (kept, modules) = without_tests("#[cfg(test)]\npub(crate) mod testing;\nuse b;");
        assert_eq!(kept.trim(), "use b;");
        assert_eq!(modules, ["testing"]);
    }
}
