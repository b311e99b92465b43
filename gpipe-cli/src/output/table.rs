//! Text in columns.

/// Rows under a heading, each column as wide as its widest cell: the columns named in `text` to the
/// left, numbers to the right.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["cpu", "5"], ["cuda:0", "12345"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            table(&["device", "load"], &["device"], &rows),
            "device   load\ncpu         5\ncuda:0  12345\n"
        );
    }
}
