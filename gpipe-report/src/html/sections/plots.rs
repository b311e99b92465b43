//! The section of the curves over the steps.

use super::common::MARKS;
use crate::error::Result;
use crate::html::curves::{Series, chart};
use crate::html::escape::escape;
use crate::run::{Run, RunStep};

/// The section of the curves: loss, gradient norm, speed, bubble, time and learning rate.
pub(crate) fn curves(runs: &[Run]) -> Result<String> {
    let several = runs.len() > 1;
    let words = |mark: &str, step: u64| match several {
        true => format!("{mark} was resumed after step {step}"),
        false => format!("resumed after step {step}"),
    };
    let marked = runs.iter().zip(MARKS);
    let resumed: Vec<Vec<_>> = marked
        .map(|(run, mark)| {
            let steps = run.resumptions.iter().map(|resumption| resumption.step);
            steps.map(|step| (step as f64, words(mark, step))).collect()
        })
        .collect();
    let line = |of: fn(&RunStep) -> Option<f64>| -> Vec<Series> {
        let series = |(run, resumed): (&Run, &Vec<_>)| Series {
            line: run
                .steps
                .iter()
                .filter_map(|step| Some((step.step as f64, of(step)?)))
                .collect(),
            dots: Vec::new(),
            resumed: resumed.clone(),
        };
        runs.iter().zip(&resumed).map(series).collect()
    };
    let mut losses = line(|step| step.loss);
    for (series, run) in losses.iter_mut().zip(runs) {
        series.dots = run
            .evaluations
            .iter()
            .map(|&(step, loss)| (step as f64, loss))
            .collect();
    }
    let dots = if runs.iter().any(|run| !run.evaluations.is_empty()) {
        "Loss over steps; dots: held out"
    } else {
        "Loss over steps"
    };
    let mut units: Vec<&str> = runs.iter().map(Run::unit).collect();
    units.dedup();
    let unit = units.join(" or ");
    let charts = [
        chart(dots, "nats", losses)?,
        chart(
            "Norm of the gradients, before clipping",
            "norm",
            line(|step| step.grad_norm),
        )?,
        chart(
            &format!("Speed in {unit} a second"),
            &format!("{unit} / s"),
            line(|step| step.tokens_per_second),
        )?,
        chart(
            "Bubble",
            "% of the devices' time",
            line(|step| Some(100.0 * step.bubble?)),
        )?,
        chart("Time of a step", "seconds", line(|step| step.step_seconds))?,
        chart("Learning rate", "rate", line(|step| step.lr))?,
    ]
    .concat();
    if charts.is_empty() {
        return Ok(String::new());
    }
    let key = if let [a, b] = runs {
        format!(
            "<div class=\"bar\"><span class=\"key\"><i class=\"first\"></i>A: {}</span>\
             <span class=\"key\"><i class=\"second\"></i>B: {}</span></div>\n",
            escape(&a.name),
            escape(&b.name)
        )
    } else {
        String::new()
    };
    let lines = match resumed.iter().all(Vec::is_empty) {
        true => "",
        false => "<p class=\"soft\">Dotted vertical lines: a run was resumed.</p>\n",
    };
    Ok(format!(
        "<h2>Curves</h2>\n{key}{lines}<div class=\"curves\">\n{charts}</div>\n"
    ))
}
