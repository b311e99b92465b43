//! Curves over the steps of a run, as SVG for the page.
//!
//! Colours are stand-ins that the page's style replaces by those of its theme.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

use super::ticks::Ticks;
use crate::error::{Error, Result};
use crate::numbers;

const INK: RGBColor = RGBColor(0, 0, 1);
const LINE: RGBColor = RGBColor(0, 0, 2);
/// Colours of the first run and of the second.
const RUNS: [RGBColor; 2] = [RGBColor(0, 0, 3), RGBColor(0, 0, 4)];
/// Of the lines where they were resumed.
const RESUMED: [RGBColor; 2] = [RGBColor(0, 0, 5), RGBColor(0, 0, 6)];
/// [`RESUMED`] in an SVG.
const RESUMED_STROKES: [&str; 2] = ["stroke=\"#000005\"", "stroke=\"#000006\""];

const SIZE: (u32, u32) = (560, 250);
/// Width of the labels of values.
const LEFT: u32 = 78;
/// The most points of a line: more cannot be told apart.
const MOST_POINTS: usize = 900;
/// The most steps of a curve that is not smoothed.
const MOST_UNSMOOTHED: usize = 200;
/// Points of the smoothed curve.
const MEANS: usize = 60;

/// The points of one run in a chart.
#[derive(Default)]
pub(crate) struct Series {
    /// Joined by a line.
    pub(crate) line: Vec<(f64, f64)>,
    /// Marked by a dot each.
    pub(crate) dots: Vec<(f64, f64)>,
    /// Steps after which the run was resumed, each with the sentence of its line.
    pub(crate) resumed: Vec<(f64, String)>,
}

/// A chart of one or two runs over their steps, or nothing if there is nothing to show. `unit` names the
/// vertical axis. Values that span more than one and a half decades get a logarithmic scale.
pub(crate) fn chart(caption: &str, unit: &str, mut runs: Vec<Series>) -> Result<String> {
    for run in &mut runs {
        run.line.retain(can_be_drawn);
        run.dots.retain(can_be_drawn);
    }
    let all = || runs.iter().flat_map(|run| run.line.iter().chain(&run.dots));
    if all().next().is_none() {
        return Ok(String::new());
    }
    let bounds = |of: fn(&(f64, f64)) -> f64| {
        all()
            .map(of)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
    };
    let (x, y) = (bounds(|point| point.0), bounds(|point| point.1));
    for run in &mut runs {
        run.resumed.retain(|&(step, _)| x.0 <= step && step < x.1);
    }
    let told: Vec<String> = runs
        .iter()
        .flat_map(|run| run.resumed.iter().map(|(_, words)| words.clone()))
        .collect();
    let logarithmic = y.0 > 0.0 && y.1 / y.0 > 30.0;
    let scale = |value: f64| if logarithmic { value.log10() } else { value };
    let (low, high) = (scale(y.0), scale(y.1));
    // A line at the very edge would be cut in half, and a constant has no extent of its own.
    let margin = match (0.06 * (high - low)).max(1e-3 * high.abs()) {
        // Zeros.
        margin if margin < 1e-30 => 1.0,
        margin => margin,
    };
    let mut svg = String::new();
    let axes = Axes {
        x,
        y: (low - margin, high + margin),
        unit,
        logarithmic,
    };
    draw(&mut svg, &runs, &axes).map_err(|error| Error::Curve {
        fault: error.to_string(),
    })?;
    // Within a page, an SVG needs no name space: nothing in the page looks like an address.
    let label = [&[caption.to_owned()], &told[..]].concat().join("; ");
    let svg = titled(&svg, &told).replace(
        " xmlns=\"http://www.w3.org/2000/svg\"",
        &format!(" role=\"img\" aria-label=\"{label}\""),
    );
    let scale = if logarithmic { ", logarithmic" } else { "" };
    Ok(format!(
        "<figure><figcaption>{caption}{scale}</figcaption>\n{svg}</figure>\n"
    ))
}

/// Gives the lines where runs were resumed their titles, in the order in which they were drawn.
fn titled(svg: &str, titles: &[String]) -> String {
    let mut titles = titles.iter();
    let parts = svg.split_inclusive("/>");
    parts.fold(String::with_capacity(svg.len()), |mut whole, part| {
        let is_resumed = RESUMED_STROKES.iter().any(|stroke| part.contains(stroke));
        match part.strip_suffix("/>").filter(|_| is_resumed) {
            Some(line) => {
                let title = titles.next().map_or("", String::as_str);
                whole += &format!("{line}><title>{title}</title></polyline>");
            }
            None => whole += part,
        }
        whole
    })
}

/// Whether a value is small enough for axes whose extent is finite.
fn can_be_drawn(point: &(f64, f64)) -> bool {
    point.1.abs() < 1e30
}

type Failed = Box<dyn std::error::Error>;

/// An axis whose marks are given.
struct Axis {
    bounds: Range<f64>,
    marks: Vec<f64>,
}

impl Axis {
    fn new((low, high): (f64, f64), marks: Vec<f64>) -> Self {
        Self {
            bounds: low..high,
            marks,
        }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value - self.bounds.start) / (self.bounds.end - self.bounds.start);
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.bounds.clone()
    }
}

/// The axes of a chart.
struct Axes<'a> {
    /// First and last step.
    x: (f64, f64),
    /// Bounds of the values, or of their logarithms.
    y: (f64, f64),
    unit: &'a str,
    logarithmic: bool,
}

fn draw(svg: &mut String, runs: &[Series], axes: &Axes<'_>) -> std::result::Result<(), Failed> {
    let Axes {
        x,
        y,
        unit,
        logarithmic,
    } = *axes;
    let scaled =
        |&(step, value): &(f64, f64)| (step, if logarithmic { value.log10() } else { value });
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    // Steps are whole numbers; a single one stands in the middle.
    let (steps, half) = ticks_of_steps(x);
    let x = if x.1 > x.0 { x } else { (x.0 - 1.0, x.0 + 1.0) };
    let values = Ticks::new(y, 5, 0.0);
    let marks = match logarithmic {
        true => Ticks::logarithmic(y),
        false => values.at.clone(),
    };
    let mut chart = ChartBuilder::on(&area)
        .margin_right(half.max(12))
        .margin_top(6)
        .x_label_area_size(40)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(Axis::new(x, steps.at.clone()), Axis::new(y, marks))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(LINE)
        .axis_style(INK)
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .axis_desc_style(("sans-serif", 13).into_font().color(&INK))
        .x_desc("step")
        .y_desc(unit)
        .x_label_formatter(&|step| steps.label(*step))
        .y_label_formatter(&|value| match logarithmic {
            true => numbers::short(10_f64.powf(*value)),
            false => values.label(*value),
        })
        .draw()?;
    let bottom_and_top = [axes.y.0, axes.y.1];
    for (run, colour) in runs.iter().zip(RESUMED) {
        // Between the last step before and the first one after.
        let line = |(step, _): &(f64, String)| {
            let points = bottom_and_top.map(|y| (step + 0.5, y));
            PathElement::new(points, colour.stroke_width(1))
        };
        chart.draw_series(run.resumed.iter().map(line))?;
    }
    for (place, (run, colour)) in runs.iter().zip(RUNS).enumerate() {
        // The first of two lines shows beside the second where both run together.
        let width = if place + 1 < runs.len() { 4 } else { 2 };
        let line = thinned(&run.line);
        let many = run.line.len() > MOST_UNSMOOTHED;
        // Many steps make a thin and pale line, with their means as a clear one over it.
        let style = if many {
            colour.mix(0.4).stroke_width(1)
        } else {
            colour.stroke_width(width)
        };
        chart.draw_series(LineSeries::new(line.iter().map(scaled), style))?;
        if many {
            let means = means(&run.line);
            let style = colour.stroke_width(width);
            chart.draw_series(LineSeries::new(means.iter().map(scaled), style))?;
        }
        let dot = |point| Circle::new(scaled(point), 4, colour.filled());
        let mut dots = thinned(&run.dots);
        // A line of one point would not be seen.
        dots.extend(run.line.iter().filter(|_| run.line.len() == 1));
        chart.draw_series(dots.iter().map(dot))?;
    }
    area.present()?;
    Ok(())
}

/// Ticks of steps whose labels do not touch, and half the width of the widest label, which stands beyond the last tick.
fn ticks_of_steps(x: (f64, f64)) -> (Ticks, u32) {
    /// Of a character, in pixels, at most.
    const WIDTH: usize = 7;
    let mut count = 7;
    loop {
        let ticks = Ticks::new(x, count, 1.0);
        let labels = ticks.at.iter().map(|&step| ticks.label(step).len());
        let widest = WIDTH * labels.max().unwrap_or(0);
        if count == 1 || (widest + WIDTH) * ticks.at.len() < (SIZE.0 - LEFT) as usize - widest / 2 {
            return (ticks, widest as u32 / 2);
        }
        count -= 1;
    }
}

/// The means of equally many neighbours.
fn means(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |group: &[(f64, f64)]| {
        let count = group.len() as f64;
        let sum = |of: fn(&(f64, f64)) -> f64| group.iter().map(of).sum::<f64>();
        (sum(|point| point.0) / count, sum(|point| point.1) / count)
    };
    let size = points.len().div_ceil(MEANS);
    points.chunks(size.max(1)).map(mean).collect()
}

/// Of many points, the lowest and the highest of each of equally many neighbours.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(MOST_POINTS);
    for group in points.chunks(points.len().div_ceil(MOST_POINTS / 2)) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [group.iter().min_by(by_value), group.iter().max_by(by_value)];
        let mut ends: Vec<(f64, f64)> = ends.into_iter().flatten().copied().collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends.dedup();
        kept.extend(ends);
    }
    kept
}

#[cfg(test)]
mod tests;
