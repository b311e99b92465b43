//! The section on how runs were resumed: after which steps, and what differed from then on.

use super::common::MARKS;
use crate::html::escape::escape;
use crate::run::Run;

/// The section on resumptions; nothing if no run was resumed.
pub(crate) fn resumptions(runs: &[Run]) -> String {
    let several = runs.len() > 1;
    let mut rows = String::new();
    for (run, mark) in runs.iter().zip(MARKS) {
        let mark = if several {
            format!("{mark}: ")
        } else {
            String::new()
        };
        for resumption in &run.resumptions {
            rows += &format!("<dt>{mark}after step {}</dt>\n", resumption.step);
            let warnings = resumption.warnings.iter();
            rows += &warnings
                .map(|warning| format!("<dd>{}</dd>\n", escape(warning)))
                .collect::<String>();
            if resumption.warnings.is_empty() {
                rows += "<dd>without changes</dd>\n";
            }
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Resumptions</h2>\n<p>Configuration and plan below are those after the last one.</p>\n\
         <dl class=\"resumptions\">\n{rows}</dl>\n"
    )
}
