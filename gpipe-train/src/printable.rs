//! Text from files and flags, made safe for a terminal.

/// The most characters of a line: arguments and names in files can be megabytes long.
const LONGEST: usize = 580;

/// Of them, the characters of the end, which has the remedy.
const END: usize = 200;

/// Makes a message safe for a terminal: one line of limited length, with control characters and
/// characters that change the text direction escaped. Messages contain names from files and flags.
pub fn printable(text: &str) -> String {
    let escaped = |character: char| -> String {
        match character {
            '\n' => "; ".to_owned(),
            c if is_unprintable(c) => c.escape_default().to_string(),
            c => c.to_string(),
        }
    };
    let text = text.trim_end();
    // No character becomes shorter.
    let short = |characters: &mut dyn Iterator<Item = char>, most: usize| -> Vec<String> {
        let mut length = 0;
        let pieces = characters.map(escaped).take_while(|piece| {
            length += piece.chars().count();
            length <= most
        });
        pieces.collect()
    };
    let whole = short(&mut text.chars(), LONGEST);
    if whole.len() == text.chars().count() {
        return whole.concat();
    }
    let start = short(&mut text.chars(), LONGEST - END - 1).concat();
    let mut end = short(&mut text.chars().rev(), END);
    end.reverse();
    format!("{start}…{}", end.concat())
}

/// Whether a character controls a terminal, is invisible or changes the text direction.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Lines without control characters, but for these `styles`. They are written out as in JSON, of which the meaning stays.
pub fn harmless(text: &str, styles: &[String]) -> String {
    let (mut rest, mut harmless) = (text, String::with_capacity(text.len()));
    while let Some(next) = rest.chars().next() {
        let styled = styles.iter().find(|style| rest.starts_with(style.as_str()));
        let length = styled.map_or(next.len_utf8(), String::len);
        match styled.is_none() && next != '\n' && next.is_control() {
            true => harmless += &format!("\\u{:04x}", u32::from(next)),
            false => harmless += &rest[..length],
        }
        rest = &rest[length..];
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_or_bidirectional_argument_keeps_the_line_readable() {
        let typed = format!("{}\u{202e}\u{1b}[2J", "x".repeat(1 << 20));
        let line = printable(&format!("--model {typed}: unknown; use gpt2"));
        assert!(line.starts_with("--model xxx") && line.chars().count() <= LONGEST);
        assert!(
            line.ends_with("x\\u{202e}\\u{1b}[2J: unknown; use gpt2"),
            "{line}"
        );
    }

    #[test]
    fn a_line_of_escapes_is_as_short() {
        let line = printable(&("\u{202e}".repeat(500) + ": use another"));
        assert!((500..=LONGEST).contains(&line.chars().count()), "{line}");
        assert!(line.ends_with(": use another"), "{line}");
        let fits = "x".repeat(LONGEST);
        assert_eq!(printable(&fits), fits);
    }
}
