//! Plain-text tables.

/// Formats rows under a heading, each column as wide as its widest cell: columns named in `text` are
/// left-aligned, others right-aligned.
pub fn table(heading: &[&str], text: &[&str], rows: &[Vec<String>]) -> String {
    let heading: Vec<String> = heading.iter().map(|&name| name.to_owned()).collect();
    let all = || std::iter::once(&heading).chain(rows);
    let cell =
        |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let width = |column| all().map(|row| cell(row, column)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut lines = String::new();
    for row in all() {
        let mut line = String::new();
        for ((name, width), cell) in heading.iter().zip(&widths).zip(row) {
            line += &match text.contains(&name.as_str()) {
                true => format!("{cell:<width$}  "),
                false => format!("{cell:>width$}  "),
            };
        }
        lines += line.trim_end();
        lines.push('\n');
    }
    lines
}

/// [`table`] within `width` characters, where possible, by replacing the middle of long texts by `…`.
pub fn table_within(width: usize, heading: &[&str], text: &[&str], rows: &[Vec<String>]) -> String {
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    let mut rows = rows.to_vec();
    loop {
        let drawn = table(heading, text, &rows);
        let over = widest(&drawn).unwrap_or(0).saturating_sub(width);
        let longest = (0..heading.len())
            .filter(|&column| text.contains(&heading[column]))
            .map(|column| {
                let cells = rows.iter().filter_map(|row| row.get(column));
                (cells.map(|cell| cell.chars().count()).max(), column)
            })
            .max();
        let Some((Some(length), column)) = longest.filter(|_| over > 0) else {
            return drawn;
        };
        let to = length.saturating_sub(over).max(LEAST);
        if to >= length {
            return drawn;
        }
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *cell = shortened(cell, to);
        }
    }
}

/// Breaks a sentence at spaces into lines of at most `width` characters, but for longer words.
pub fn wrapped(width: usize, sentence: &str) -> String {
    let mut text = String::new();
    let mut used = 0;
    for word in sentence.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            text.push('\n');
            used = 0;
        } else if used > 0 {
            text.push(' ');
            used += 1;
        }
        text += word;
        used += length;
    }
    text
}

/// Minimum length of a shortened text.
const LEAST: usize = 9;

/// Shortens a text in the middle.
fn shortened(text: &str, length: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= length {
        return text.to_owned();
    }
    let first = length / 2;
    let last = all.len() - (length - first - 1);
    let [first, last]: [String; 2] = [all[..first].iter().collect(), all[last..].iter().collect()];
    format!("{first}…{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_break_at_spaces() {
        assert_eq!(
            wrapped(9, "the cut é a four-stage one"),
            "the cut é\na\nfour-stage\none"
        );
        assert_eq!(wrapped(9, ""), "");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["cpu", "5"], ["cuda:0", "12345"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            table(&["device", "load"], &["device"], &rows),
            "device   load\ncpu         5\ncuda:0  12345\n"
        );
    }

    #[test]
    fn long_texts_lose_their_middle() {
        let rows = [["a", "0123456789abcdefghij", "1"], ["b", "short", "22"]]
            .map(|row| row.map(str::to_owned).to_vec());
        let heading = ["one", "two", "n"];
        let drawn = |width| table_within(width, &heading, &["one", "two"], &rows);
        assert_eq!(drawn(80), table(&heading, &["one", "two"], &rows));
        assert_eq!(
            drawn(20),
            "one  two           n\na    01234…fghij   1\nb    short        22\n"
        );
        // No further than can be read.
        assert_eq!(drawn(1), drawn(18));
    }
}
