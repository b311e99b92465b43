//! Bars of measured and predicted times, as an SVG.

/// Width and height of the picture, and the edges of the plot within it.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 350.0;

/// Of measured and of predicted times.
const SERIES: [(&str, &str); 2] = [("measured", "#2b6cb0"), ("predicted", "#d69e2e")];

/// Draws a pair of bars for each name: measured and predicted seconds of a step.
pub fn picture(bars: &[(String, [f64; 2])]) -> String {
    let most = bars.iter().flat_map(|(_, seconds)| seconds).copied();
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let tick = tick(most);
    let top = (most / tick).ceil() * tick;
    let y = |seconds: f64| BOTTOM - (BOTTOM - TOP) * seconds / top;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">Seconds of a training step of ResNet-50, two workers</text>\n"
    );
    for i in 0..=(top / tick).round() as usize {
        let (seconds, right) = (i as f64 * tick, WIDTH - 20.0);
        let at = y(seconds);
        svg += &format!(
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{seconds:.2}</text>\n",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let step = (WIDTH - 20.0 - LEFT) / bars.len().max(1) as f64;
    let width = 0.36 * step;
    for (i, (name, seconds)) in bars.iter().enumerate() {
        let middle = LEFT + (i as f64 + 0.5) * step;
        for (side, (seconds, (_, colour))) in seconds.iter().zip(SERIES).enumerate() {
            let (x, at) = (middle + (side as f64 - 1.0) * width, y(*seconds));
            svg += &format!(
                "<rect x=\"{x:.1}\" y=\"{at:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\">{seconds:.2}</text>\n",
                width - 2.0,
                BOTTOM - at,
                x + width / 2.0,
                at - 4.0
            );
        }
        svg += &format!(
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>\n",
            BOTTOM + 20.0
        );
    }
    for (i, (name, colour)) in SERIES.iter().enumerate() {
        let x = LEFT + 110.0 * i as f64;
        svg += &format!(
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n\
             <text x=\"{}\" y=\"{:.1}\">{name}</text>\n",
            HEIGHT - 22.0,
            x + 18.0,
            HEIGHT - 11.0
        );
    }
    svg + "</svg>\n"
}

/// A round distance of lines: at least four of them below `most`.
fn tick(most: f64) -> f64 {
    let power = 10.0_f64.powf((most / 4.0).log10().floor());
    let fits = |tick: &f64| most / tick >= 4.0;
    let ticks = [5.0, 2.0, 1.0].map(|n| n * power);
    ticks.into_iter().find(fits).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_at_round_numbers() {
        for (most, expected) in [(4.0, 1.0), (9.9, 2.0), (0.3, 0.05), (25.0, 5.0)] {
            assert!(
                (tick(most) - expected).abs() < 1e-12,
                "{most}: {}",
                tick(most)
            );
        }
    }
}
