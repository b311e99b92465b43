//! Tables for terminals and for Markdown.

/// The first row is the heading; columns are as wide as their widest cell.
pub fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]], markdown: bool) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        if markdown {
            text += &format!("| {} |\n", cells.join(" | "));
            if index == 0 {
                text += &format!("|{}\n", "---|".repeat(COLUMNS));
            }
        } else {
            text += cells.join("  ").trim_end();
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_in_both_forms() {
        let rows = [["a", "b"], ["long", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows, false), "a     b\nlong\n");
        assert_eq!(
            table(&rows, true),
            "| a    | b |\n|---|---|\n| long |   |\n"
        );
    }
}
