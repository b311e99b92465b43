//! Numbers as people read them, on pages and on the terminal.

use std::time::Duration;

/// Three digits and a letter for thousands, millions and so on; a power of ten for numbers that no letter suits and for
/// those below a hundredth.
///
/// ```
/// use gpipe_report::numbers::short;
///
/// assert_eq!([41_234.0, 3e-4, f64::INFINITY].map(short), ["41.2k", "3.00e-4", "inf"]);
/// ```
pub fn short(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string();
    }
    let mut scaled = number;
    let mut letter = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        // 999.5 would be printed as 1000.
        if scaled.abs() < 999.5 {
            break;
        }
        scaled /= 1000.0;
        letter = next;
    }
    if scaled.abs() >= 999.5 || (scaled != 0.0 && scaled.abs() < 0.01) {
        return format!("{number:.2e}");
    }
    let decimals = match scaled.abs() {
        _ if letter.is_empty() && scaled.fract() == 0.0 => 0,
        x if x < 9.995 => 2,
        x if x < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{letter}")
}

/// A number with this number of decimals, or as a power of ten where it would have more than seven
/// digits before them.
///
/// ```
/// use gpipe_report::numbers::figure;
///
/// assert_eq!(figure(2.456, 2), "2.46");
/// assert_eq!(figure(3.2e20, 2), "3.20e20");
/// ```
pub fn figure(number: f64, decimals: usize) -> String {
    match number.abs() < 1e7 || !number.is_finite() {
        true => format!("{number:.decimals$}"),
        false => format!("{number:.decimals$e}"),
    }
}

/// A speed of computing: `77.9 GFLOP/s`.
///
/// ```
/// assert_eq!(gpipe_report::numbers::flop_rate(7.79e10), "77.9 GFLOP/s");
/// ```
pub fn flop_rate(flops_per_second: f64) -> String {
    let speed = short(flops_per_second);
    // The letter belongs to the unit.
    let digits = match flops_per_second.is_finite() {
        true => speed.trim_end_matches(char::is_alphabetic),
        false => &speed,
    };
    format!("{digits} {}FLOP/s", &speed[digits.len()..])
}

/// Bytes in binary units.
///
/// ```
/// assert_eq!(gpipe_report::numbers::bytes(3_328_599_654), "3.1 GiB");
/// ```
pub fn bytes(bytes: u64) -> String {
    let mut scaled = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if scaled < 1023.95 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    match unit {
        "B" => format!("{bytes} B"),
        _ => format!("{scaled:.1} {unit}"),
    }
}

/// Bytes that training holds for a parameter that is trained, as `all` are or not: of its value, its gradient and the
/// optimizer's state. A value of fewer than four bytes has a master copy in that state.
pub fn parameter_bytes([value, gradient, optimizer]: [u64; 3], all: bool) -> String {
    let state = match value {
        4 => "optimizer",
        _ => "optimizer and a master copy",
    };
    format!(
        "{} (value {value}, gradient {gradient}, {state} {optimizer})",
        bytes_a_parameter([value, gradient, optimizer], all)
    )
}

/// The sum of [`parameter_bytes`] alone.
pub fn bytes_a_parameter(bytes: [u64; 3], all: bool) -> String {
    let sum = bytes.into_iter().fold(0, u64::saturating_add);
    match all {
        true => format!("{sum} bytes a parameter"),
        false => format!("{sum} bytes a trained parameter"),
    }
}

/// A number of parameters, and how many of them are trained if not all are.
pub fn parameters(all: u64, trained: u64) -> String {
    let parameters = format!("{} parameters", short(all as f64));
    match all == trained {
        true => parameters,
        false => format!("{parameters}, {} of them trained", short(trained as f64)),
    }
}

/// A count with its noun, in the singular or the plural.
///
/// ```
/// use gpipe_report::numbers::counted;
///
/// assert_eq!(counted(1, "step"), "1 step");
/// assert_eq!(counted(3, "micro-batch"), "3 micro-batches");
/// assert_eq!(counted(2, "class"), "2 classes");
/// ```
pub fn counted(count: u64, thing: &str) -> String {
    let ending = match thing {
        _ if count == 1 => "",
        thing
            if ["ch", "sh", "s", "x"]
                .iter()
                .any(|end| thing.ends_with(end)) =>
        {
            "es"
        }
        _ => "s",
    };
    format!("{count} {thing}{ending}")
}

/// A share in whole percent: `11 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// The difference of two shares in whole percent, with its sign: `+11`, and `+0` from below too.
pub(crate) fn signed_percent(difference: f64) -> String {
    format!("{:+.0}", (100.0 * difference).round() + 0.0)
}

/// A share in tenths of percent: `11.2 %`.
pub fn per_mille(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Whole seconds in words: `2m 10s`.
pub fn duration(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds.max(0.0).round()).unwrap_or(Duration::MAX);
    humantime::format_duration(whole).to_string()
}

/// The length of one step: `83.1 ms`, `2.4 s`.
///
/// ```
/// use gpipe_report::numbers::step_time;
///
/// assert_eq!([2.4e-3, 0.0831, 0.99996].map(step_time), ["2.4 ms", "83.1 ms", "1.0 s"]);
/// assert_eq!([999.4e-6, 999.6e-6].map(step_time), ["999 µs", "1.0 ms"]);
/// ```
pub fn step_time(seconds: f64) -> String {
    match seconds {
        // 999.5 µs would be printed as 1000.
        s if s < 999.5e-6 => format!("{:.0} µs", s * 1e6),
        s if s < 0.99995 => format!("{:.1} ms", s * 1e3),
        s => format!("{} s", figure(s, 1)),
    }
}

/// What a run measured of its steps, without the first two, which warm up caches and pools; the last one where there are no more.
pub fn after_warm_up<T>(steps: &[T]) -> &[T] {
    const WARM_UP: usize = 2;
    &steps[WARM_UP.min(steps.len().saturating_sub(1))..]
}

/// The median, for an even number of values the mean of the middle two; 0 of no values. Sorts them.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1, "step"), "1 step");
        assert_eq!(counted(0, "step"), "0 steps");
        assert_eq!(counted(8, "micro-batch"), "8 micro-batches");
    }

    #[test]
    fn three_digits_whatever_the_size() {
        let cases = [
            (0.0, "0"),
            (7.0, "7"),
            (0.5, "0.50"),
            (0.0123, "0.01"),
            (0.00123, "1.23e-3"),
            (-2e-5, "-2.00e-5"),
            (999.4, "999"),
            (999.9, "1.00k"),
            (41_234.0, "41.2k"),
            (123_456.0, "123k"),
            (2.5e9, "2.50G"),
            (9.994e20, "999E"),
            (1e25, "1.00e25"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn bytes_are_binary() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (3_328_599_654, "3.1 GiB"),
        ];
        for (number, text) in cases {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn times_and_shares() {
        assert_eq!(duration(130.4), "2m 10s");
        assert_eq!(duration(0.0), "0s");
        assert_eq!([-1.0, f64::NAN].map(duration), ["0s", "0s"]);
        assert!(duration(f64::INFINITY).contains("years"));
        assert_eq!(percent(0.1149), "11 %");
        let signed = [0.1149, -0.026, -0.001, -0.0].map(signed_percent);
        assert_eq!(signed, ["+11", "-3", "+0", "+0"]);
        assert_eq!(step_time(0.0831), "83.1 ms");
        assert_eq!(step_time(2.4), "2.4 s");
        assert_eq!(step_time(8.78e11), "8.8e11 s");
    }

    #[test]
    fn a_parameter_takes_16_bytes_or_18() {
        assert_eq!(
            parameter_bytes([4, 4, 8], true),
            "16 bytes a parameter (value 4, gradient 4, optimizer 8)"
        );
        assert_eq!(parameters(1500, 1500), "1.50k parameters");
        assert_eq!(parameters(1500, 20), "1.50k parameters, 20 of them trained");
        assert_eq!(
            parameter_bytes([2, 4, 12], true),
            "18 bytes a parameter (value 2, gradient 4, optimizer and a master copy 12)"
        );
        assert_eq!(
            parameter_bytes([4, 4, 8], false),
            "16 bytes a trained parameter (value 4, gradient 4, optimizer 8)"
        );
    }

    #[test]
    fn the_first_two_steps_warm_up_unless_there_are_no_others() {
        let rest = [0, 1, 2, 3, 4].map(|steps| after_warm_up(&[7, 8, 9, 10][..steps]).to_vec());
        assert_eq!(rest, [vec![], vec![7], vec![8], vec![9], vec![9, 10]]);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
