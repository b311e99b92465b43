//! Regular expressions of a `tokenizer.json`: those alone that are matched without trying the same
//! text again and again, and of bounded size.

use regex_syntax::hir::{Class, Hir, HirKind};

use super::quiet::short;

/// The most bytes of an expression; the longest that is in use has 600.
const LONGEST: usize = 1 << 14;
/// What the expressions of a file may have together: ranges of characters, each as often as it is
/// repeated. Those in use have up to 8,000.
pub const ROOM: usize = 1 << 15;
/// The only way of looking around that is in use: spaces but for the one before a word (GPT-2 and all
/// that follow it).
const SPACES: &str = r"\s+(?!\S)";

/// The fewest bytes that an expression finds. Takes of `room` what the expression needs.
///
/// An expression without looking around and back-references is a finite automaton, whatever it says.
/// Others are matched by trying, which may take exponential time; of those, only [`SPACES`] is
/// accepted, as an alternative of its own.
pub fn shortest_match(pattern: &str, room: &mut usize) -> Result<usize, String> {
    if pattern.len() > LONGEST {
        return Err(format!(
            "has a pattern of {} bytes: {LONGEST} are the most that is read",
            pattern.len()
        ));
    }
    let Some((before, after)) = pattern.split_once(SPACES) else {
        return automaton(pattern, room);
    };
    // Each side is whole by itself, so this is no part of a larger expression.
    let mut shortest = 1;
    let sides = [before.strip_suffix('|'), after.strip_prefix('|')];
    for side in sides.into_iter().flatten() {
        shortest = shortest.min(automaton(side, room)?);
    }
    if !(before.is_empty() || before.ends_with('|'))
        || !(after.is_empty() || after.starts_with('|'))
    {
        return Err(format!("has a pattern with {SPACES} within another one"));
    }
    Ok(shortest)
}

fn automaton(pattern: &str, room: &mut usize) -> Result<usize, String> {
    let hir = regex_syntax::parse(pattern).map_err(|error| {
        // The last line says what is wrong; those before quote the pattern.
        let words = error.to_string();
        let words = words.lines().last().unwrap_or_default();
        format!("has a pattern that cannot be read: {}", short(words))
    })?;
    *room = room.checked_sub(size(&hir)).ok_or_else(|| {
        "has a pattern too many or too large: repeat less, and list fewer alternatives".to_owned()
    })?;
    Ok(hir.properties().minimum_len().unwrap_or(0))
}

/// Ranges of characters, each as often as it is repeated.
fn size(hir: &Hir) -> usize {
    let all = |parts: &[Hir]| parts.iter().map(size).fold(1, usize::saturating_add);
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(text) => text.0.len(),
        HirKind::Class(Class::Unicode(class)) => class.ranges().len().max(1),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len().max(1),
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or(repeated.min).max(1);
            size(&repeated.sub).saturating_mul(times as usize)
        }
        HirKind::Capture(group) => size(&group.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => all(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pieces::WORDS;
    use super::*;

    /// Of CLIP, BLOOM, Falcon and DeepSeek.
    const OTHERS: [&str; 5] = [
        r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        r" ?[^(\s|[.,!?…。，、।۔،])]+",
        r"[0-9][0-9][0-9]",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    ];

    #[test]
    fn what_is_in_use_is_read() {
        for pattern in OTHERS.into_iter().chain(WORDS) {
            let mut room = ROOM / 3;
            let shortest = shortest_match(pattern, &mut room);
            assert!(shortest.is_ok_and(|shortest| shortest >= 1), "{pattern}");
        }
    }

    #[test]
    fn what_would_take_time_or_memory_is_not() {
        let alternatives = "a|".repeat(200_000);
        let sizes = r"\w{200}|".repeat(100);
        for (pattern, word) in [
            (alternatives.as_str(), "400000 bytes"),
            (&sizes, "too large"),
            (r"(?:(?:\w{1000}){1000}){1000}", "too large"),
            (r"(a|a)*(?!x)b", "look-around"),
            (r"(?:x*x*\s+(?!\S)|y)*z", "pattern"),
            (r"x*x*\s+(?!\S)|y", "within another"),
            (r"(a*)\1", "backreferences"),
            ("(", "unclosed"),
        ] {
            let fault = shortest_match(pattern, &mut { ROOM }).unwrap_err();
            assert!(fault.contains(word) && fault.len() < 400, "{fault}");
        }
    }
}
