//! Charts of any values, whose labels do not touch each other.

use super::*;

fn line(points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series {
        line: points.into_iter().collect(),
        ..Series::default()
    }
}

#[test]
fn a_chart_is_one_svg_in_stand_in_colours() {
    let runs = [
        line([(1.0, 5.0), (2.0, 3.0)]),
        line([(1.0, 4.0), (3.0, 2.0)]),
    ];
    let svg = chart("loss", "nats", runs.into()).unwrap();
    assert_eq!(svg.matches("<svg").count(), 1);
    assert!(svg.contains("#000003") && svg.contains("#000004"));
    assert_eq!(chart("loss", "nats", vec![line([])]).unwrap(), "");
    assert_eq!(
        chart("loss", "nats", vec![line([(1.0, f64::MAX)])]).unwrap(),
        ""
    );
}

#[test]
fn a_line_with_a_title_stands_where_a_run_was_resumed() {
    let mut run = line((1..=9).map(|step| (f64::from(step), 2.0)));
    run.resumed = vec![(4.0, "resumed after step 4".into()), (9.0, "later".into())];
    let svg = chart("loss", "nats", vec![run]).unwrap();
    let title = "<title>resumed after step 4</title></polyline>";
    assert_eq!(svg.matches("<title>").count(), 1, "{svg}");
    assert!(
        svg.contains(title) && svg.matches("#000005").count() == 1,
        "{svg}"
    );
    assert!(
        svg.contains(" aria-label=\"loss; resumed after step 4\""),
        "{svg}"
    );
}

#[test]
fn any_values_can_be_drawn() {
    for points in [
        vec![(1.0, 0.0)],
        vec![(1.0, -3.0), (2.0, -3.0)],
        vec![(1.0, 1e-300), (2.0, 1e29)],
        vec![(1.0, 1e29), (u64::MAX as f64, -1e29)],
    ] {
        assert!(
            chart("any", "", vec![line(points)])
                .unwrap()
                .contains("<svg")
        );
    }
}

#[test]
fn one_step_is_a_dot_over_its_number() {
    let svg = chart("loss", "nats", vec![line([(7.0, 5.586)])]).unwrap();
    assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
    let labels: Vec<&str> = texts(&svg);
    assert!(labels.contains(&"7") && labels.contains(&"step") && labels.contains(&"nats"));
    assert_eq!(
        labels.iter().filter(|label| label.starts_with('6')).count(),
        0,
        "{labels:?}"
    );
}

#[test]
fn no_two_ticks_have_the_same_label() {
    for points in [
        vec![(1.0, 5.5861), (2.0, 5.5858), (3.0, 5.5833)],
        vec![(12_345.0, 1.0), (12_347.0, 1.001)],
        vec![(1.0, 4670.0), (2.0, 4690.0)],
        // A rate that warms up, small losses, and any that are logarithmic.
        vec![(1.0, 3e-6), (2.0, 3e-4)],
        vec![(1.0, 1e-3), (2.0, 0.5)],
        vec![(3.0, 1e-12), (4.0, 1e28)],
    ] {
        let svg = chart("loss", "nats", vec![line(points)]).unwrap();
        let labels = texts(&svg);
        let mut distinct = labels.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), labels.len(), "{labels:?}");
    }
}

/// As of a run that was resumed in a new folder, and of losses that leave all bounds.
#[test]
fn no_label_is_cut_off_or_touches_another() {
    for (first, value) in [
        (1_u64, 2.0),
        (12_345, 0.0),
        (1_000_000, 1e29),
        (999_999_998, 3.0),
        (1 << 53, 1e-9),
    ] {
        for last in [0, 1, 4, 99, 1000, 1 << 20] {
            let points = [first, first + last].map(|step| (step as f64, value));
            let svg = chart("loss", "nats", vec![line(points)]).unwrap();
            let mut below = f64::NEG_INFINITY;
            for part in svg.split("<text").skip(1) {
                let number = |name: &str| -> f64 {
                    let (_, rest) = part.split_once(&format!(" {name}=\"")).unwrap();
                    rest.split('"').next().unwrap().parse().unwrap()
                };
                let text = part.split_once('>').unwrap().1.split('<').next().unwrap();
                // Digits of common fonts are 0.55 to 0.64 of their size wide.
                let wide = 0.64 * number("font-size") * text.trim().len() as f64;
                let x = number("x");
                if part.contains("\"end\"") {
                    assert!(x - wide > 0.0, "{text}");
                } else if part.contains("\"middle\"") && !part.contains("transform") {
                    assert!(x + wide / 2.0 <= 560.0, "{text} {x}");
                    let is_step = text.trim().starts_with(|c: char| c.is_ascii_digit());
                    assert!(!is_step || x - wide / 2.0 > below, "{text} {x} {below}");
                    below = if is_step { x + wide / 2.0 } else { below };
                }
            }
        }
    }
}

#[test]
fn a_constant_of_0_stands_between_round_numbers() {
    let svg = chart("bubble", "%", vec![line([(1.0, 0.0), (2.0, 0.0)])]).unwrap();
    assert!(texts(&svg).contains(&"0.0"), "{svg}");
    assert!(texts(&svg).iter().all(|text| !text.contains("e-")), "{svg}");
    assert!(svg.contains(" role=\"img\" aria-label=\"bubble\""), "{svg}");
}

/// The texts of an SVG.
fn texts(svg: &str) -> Vec<&str> {
    let parts = svg.split("<text").skip(1);
    let inside = parts.filter_map(|part| part.split_once('>')?.1.split_once('<'));
    inside.map(|(text, _)| text.trim()).collect()
}

#[test]
fn many_points_keep_their_extremes() {
    let mut points: Vec<(f64, f64)> = (0..50_000).map(|i| (f64::from(i), 1.0)).collect();
    points[31_234].1 = 9.0;
    points[44].1 = -9.0;
    let kept = thinned(&points);
    assert!(kept.len() <= MOST_POINTS + 2);
    assert!(kept.contains(&(31_234.0, 9.0)) && kept.contains(&(44.0, -9.0)));
    assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
}
