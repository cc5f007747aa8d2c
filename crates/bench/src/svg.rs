//! A report as a picture: latency by percentile, and throughput over time.
//!
//! Invariant: the file is self-contained, with no external script, font or image, and readable on
//! light and dark pages. It only draws; every number comes from the report.

mod axis;

use std::fmt::Write;

use self::axis::{Axis, PlotFrame};
use crate::report::{BenchReport, OperationReport};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 660.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 840.0;

/// Distinguishable with colour blindness.
const COLOURS: [&str; 7] = [
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888",
];
const STYLE: &str = "\
text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}\
.back{fill:#fff}.grid{stroke:#ddd}.line{fill:none;stroke-width:1.8}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.back{fill:#181818}.grid{stroke:#444}}";

/// The picture as the text of an SVG file.
pub fn svg(report: &BenchReport) -> String {
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\"><style>{STYLE}</style>\
         <rect class=\"back\" width=\"100%\" height=\"100%\"/>\n"
    );
    text(
        &mut picture,
        (LEFT, 26.0),
        "title",
        "start",
        &headline(report),
    );
    latencies(&mut picture, report);
    throughput(&mut picture, report);
    picture.push_str("</svg>\n");
    picture
}

fn headline(report: &BenchReport) -> String {
    let settings = &report.settings;
    let rate = match settings.rate {
        Some(rate) => format!(", {rate} starts/s"),
        None => String::new(),
    };
    let done = if report.has_cycles() {
        format!("{:.0} cycles/s", report.cycles_per_s.median)
    } else {
        format!("{:.0} requests/s", report.requests_per_s.median)
    };
    let errors: u64 = report.errors.iter().map(|error| error.count).sum();
    let trouble = if errors > 0 {
        format!(", {errors} ERRORS")
    } else {
        String::new()
    };
    format!(
        "consign bench: {}, {} clients{rate}: {done}{trouble}",
        report.work.name(),
        settings.clients
    )
}

/// Percentiles are drawn by their distance to 100, so that the slow end has room.
fn latencies(picture: &mut String, report: &BenchReport) {
    let all = || {
        report
            .operations
            .iter()
            .flat_map(|operation| &operation.distribution)
    };
    let highest = all().map(|(_, micros)| *micros).fold(1.0, f64::max);
    let lowest = all().map(|(_, micros)| *micros).fold(highest, f64::min);
    let most = report
        .operations
        .iter()
        .map(|operation| operation.count)
        .max();
    let frame = PlotFrame {
        across: Axis::linear((0.0, nines(most.unwrap_or(0))), (LEFT, RIGHT)),
        up: Axis::decades((lowest, highest), (300.0, 60.0)),
    };
    text(
        picture,
        (LEFT, 48.0),
        "label",
        "start",
        "latency (ms) by percentile",
    );
    for micros in frame.up.ticks() {
        let y = frame.up.place(micros);
        rule(picture, (LEFT, y), (RIGHT, y));
        text(
            picture,
            (LEFT - 6.0, y + 4.0),
            "tick",
            "end",
            &format!("{}", micros / 1000.0),
        );
    }
    for percentile in [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999] {
        let x = frame.across.place(distance(percentile));
        if x <= RIGHT + 0.5 {
            rule(picture, (x, 300.0), (x, 60.0));
            text(
                picture,
                (x, 316.0),
                "tick",
                "middle",
                &format!("{percentile}"),
            );
        }
    }
    for (index, operation) in report.operations.iter().enumerate() {
        let line = curve(operation).map(|(across, micros)| frame.at(across, micros));
        stroke(picture, line, COLOURS[index % COLOURS.len()]);
        let x = LEFT + 190.0 + 86.0 * whole(index);
        legend(
            picture,
            (x, 44.0),
            COLOURS[index % COLOURS.len()],
            operation.name,
        );
    }
}

/// 100 percent is infinitely far away; it is drawn at the last request.
fn curve(operation: &OperationReport) -> impl Iterator<Item = (f64, f64)> + '_ {
    let end = nines(operation.count);
    let steps = operation.distribution.iter();
    steps.map(move |(percentile, micros)| (distance(*percentile).min(end), *micros))
}

/// The number of decimal places by which a percentile differs from 100: 1 for 90, 2 for 99, 3 for
/// 99.9.
fn distance(percentile: f64) -> f64 {
    let rest = 1.0 - percentile / 100.0;
    if rest > 0.0 { -rest.log10() } else { f64::MAX }
}

/// The resolution of the percentiles of `count` requests.
fn nines(count: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "it is drawn on a few hundred points"
    )]
    let count = count as f64;
    count.log10().clamp(1.0, 6.0)
}

fn throughput(picture: &mut String, report: &BenchReport) {
    let timeline = &report.timeline;
    let lines = [
        ("requests/s", &timeline.requests_per_s),
        ("cycles/s", &timeline.cycles_per_s),
    ];
    let shown = if report.has_cycles() { 2 } else { 1 };
    let highest = timeline.requests_per_s.iter().chain(&timeline.cycles_per_s);
    let highest = highest.copied().fold(1.0, f64::max);
    let seconds = timeline.step_seconds * whole(timeline.requests_per_s.len());
    let frame = PlotFrame {
        across: Axis::linear((0.0, seconds), (LEFT, RIGHT)),
        up: Axis::linear((0.0, highest), (610.0, 370.0)),
    };
    text(
        picture,
        (LEFT, 356.0),
        "label",
        "start",
        "throughput (per second) over time (s)",
    );
    for value in frame.up.ticks() {
        let y = frame.up.place(value);
        rule(picture, (LEFT, y), (RIGHT, y));
        text(
            picture,
            (LEFT - 6.0, y + 4.0),
            "tick",
            "end",
            &format!("{value}"),
        );
    }
    for value in frame.across.ticks() {
        let x = frame.across.place(value);
        text(picture, (x, 628.0), "tick", "middle", &format!("{value}"));
    }
    for (index, (name, values)) in lines.into_iter().enumerate().take(shown) {
        let points = values.iter().enumerate();
        let line = points.map(|(step, value)| {
            let middle = (whole(step) + 0.5) * timeline.step_seconds;
            frame.at(middle, *value)
        });
        stroke(picture, line, COLOURS[index]);
        let x = LEFT + 260.0 + 110.0 * whole(index);
        legend(picture, (x, 352.0), COLOURS[index], name);
    }
    for (step, errors) in timeline.errors.iter().enumerate() {
        if *errors > 0 {
            let (x, y) = frame.at((whole(step) + 0.5) * timeline.step_seconds, 0.0);
            let _ = writeln!(
                picture,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"#cc0000\"><title>{errors} errors</title></circle>"
            );
        }
    }
}

fn legend(picture: &mut String, (x, y): (f64, f64), colour: &str, name: &str) {
    stroke(picture, [(x, y), (x + 18.0, y)].into_iter(), colour);
    text(picture, (x + 24.0, y + 4.0), "label", "start", name);
}

fn stroke(picture: &mut String, points: impl Iterator<Item = (f64, f64)>, colour: &str) {
    let _ = write!(
        picture,
        "<polyline class=\"line\" stroke=\"{colour}\" points=\""
    );
    for (x, y) in points {
        let _ = write!(picture, "{x:.1},{y:.1} ");
    }
    picture.push_str("\"/>\n");
}

fn rule(picture: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        picture,
        "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// All text is generated here (names and numbers), so nothing needs escaping.
fn text(picture: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, words: &str) {
    let _ = writeln!(
        picture,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

fn whole(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_spread_by_their_distance_to_a_hundred() {
        assert!((distance(90.0) - 1.0).abs() < 1e-9);
        assert!((distance(99.9) - 3.0).abs() < 1e-9);
        assert!(distance(0.0).abs() < 1e-9);
        assert!(distance(100.0) > 1e9);
        assert!((nines(10_000) - 4.0).abs() < 1e-9);
    }
}
