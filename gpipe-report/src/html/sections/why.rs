//! "Why this cut": the cut in use beside the best and Lingvo's.

use super::common::MARKS;
use crate::html::escape::{escape, table};
use crate::run::Run;

/// The section: a table and a sentence for each run that recorded its cuts.
pub(crate) fn why(runs: &[Run]) -> String {
    let mut html = String::new();
    for (run, mark) in runs.iter().zip(MARKS) {
        let cuts = run.record.as_ref().and_then(|record| record.cuts.as_ref());
        let Some(cuts) = cuts else { continue };
        let of = match runs.len() {
            1 => String::new(),
            _ => format!(" of {mark}"),
        };
        let rows = cuts.rows().into_iter();
        let rows: Vec<Vec<String>> = rows
            .map(|row| row.iter().map(|cell| escape(cell)).collect())
            .collect();
        let heading = [
            "cut",
            "layers of each stage",
            "most expensive stage",
            "beyond the best",
        ];
        html += &format!(
            "<h2>Why this cut{of}</h2>\n{}<p class=\"soft\">{}</p>\n",
            table(&heading, 2, &rows),
            escape(&cuts.explanation())
        );
    }
    html
}
