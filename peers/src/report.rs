//! The findings as a table: rates, ours divided by each, latencies, and processor time.

use std::fmt::Write;

use crate::figures::Spread;
use crate::rounds::{Description, Findings, Sample, Series};
use crate::subject::OURS;

pub(crate) fn text(findings: &Findings) -> String {
    let mut text = String::from("Subjects\n");
    for subject in &findings.subjects {
        let Description {
            subject,
            version,
            settings,
            caveat,
        } = subject;
        line(&mut text, &format!("  {subject}: {version}; {settings}"));
        if let Some(caveat) = caveat {
            line(&mut text, &format!("    but {caveat}"));
        }
    }
    let Findings {
        seconds, rounds, ..
    } = findings;
    line(
        &mut text,
        &format!(
            "\nMedian (least - most) of {rounds} rounds of {seconds} s, in turn. Processor time is in processors; \
             connections are the most that were open at once; `other` is the share of the machine that neither side used, at its most."
        ),
    );
    let mut clients: Vec<usize> = findings
        .series
        .iter()
        .map(|series| series.clients)
        .collect();
    clients.dedup();
    for clients in clients {
        let group: Vec<&Series> = findings
            .series
            .iter()
            .filter(|series| series.clients == clients)
            .collect();
        let work = group.first().map_or("", |series| series.work.name());
        line(&mut text, &format!("\n{clients} clients, {work}\n"));
        text.push_str(&table(&group));
    }
    if !findings.failures.is_empty() {
        line(&mut text, "\nNot measured, or not to be trusted:");
        for failure in &findings.failures {
            line(
                &mut text,
                &format!("  {}: {}", failure.subject, failure.reason),
            );
        }
    }
    text
}

const COLUMNS: [&str; 10] = [
    "subject",
    "jobs/s",
    "published/s",
    "ours / it",
    "publish ms p50/p99",
    "claim ms",
    "ack ms",
    "connections",
    "cpu client/server",
    "other",
];

fn table(group: &[&Series]) -> String {
    let ours = group.iter().find(|series| series.subject == OURS);
    let ours = ours.map(|series| rates(series));
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    for series in group {
        rows.push(row(series, ours.as_deref()));
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        line(&mut text, padded.join("  ").trim_end());
    }
    text
}

fn row(series: &Series, ours: Option<&[Option<f64>]>) -> [String; 10] {
    let theirs = rates(series);
    let ratio = ours
        .filter(|_| series.subject != OURS)
        .and_then(|ours| Spread::of_ratios(ours, &theirs));
    let samples = || series.samples.iter().flatten();
    let published = Spread::of(samples().map(published_per_second));
    let other = Spread::of(samples().map(|sample| sample.shares.other_of_all));
    let generator = Spread::of(samples().map(|sample| sample.shares.busy.generator));
    let server = Spread::of(samples().map(|sample| sample.shares.busy.server));
    let processors = generator
        .zip(server)
        .map_or_else(dash, |(generator, server)| {
            format!("{:.2} / {:.2}", generator.median, server.median)
        });
    [
        series.subject.to_owned(),
        shown(Spread::of(theirs.iter().flatten().copied()), 0),
        published.map_or_else(dash, |published| format!("{:.0}", published.median)),
        shown(ratio, 2),
        latency(series, &["publish", "cycle", "sync"]),
        latency(series, &["claim"]),
        latency(series, &["ack"]),
        connections(series),
        processors,
        other.map_or_else(dash, |other| format!("{:.0}%", other.max * 100.0)),
    ]
}

fn rates(series: &Series) -> Vec<Option<f64>> {
    let samples = series.samples.iter();
    samples
        .map(|sample| sample.as_ref().map(|sample| sample.done.per_second()))
        .collect()
}

fn published_per_second(sample: &Sample) -> f64 {
    let whole = crate::load::RoundResult {
        jobs: sample.done.published,
        ..sample.done.clone()
    };
    whole.per_second()
}

/// Medians over the rounds of the first step that the subject has.
fn latency(series: &Series, names: &[&str]) -> String {
    let steps = series.samples.iter().flatten().filter_map(|sample| {
        let mut steps = sample.done.steps.iter();
        steps.find(|step| names.contains(&step.name.as_str()))
    });
    let half = Spread::of(steps.clone().map(|step| step.p50_ms));
    let late = Spread::of(steps.filter_map(|step| step.p99_ms));
    match (half, late) {
        (Some(half), Some(late)) => format!("{:.2}/{:.2}", half.median, late.median),
        (Some(half), None) => format!("{:.2} mean", half.median),
        (None, _) => dash(),
    }
}

fn connections(series: &Series) -> String {
    let samples = series.samples.iter().flatten();
    let most = samples.filter_map(|sample| sample.connections).max();
    most.map_or_else(dash, |most| most.to_string())
}

fn shown(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(dash, |spread| {
        let Spread { median, min, max } = spread;
        format!("{median:.digits$} ({min:.digits$} - {max:.digits$})")
    })
}

fn dash() -> String {
    "-".to_owned()
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Busy, RoundResult, Step, Work};
    use crate::machine::CpuShares;
    use crate::rounds::Failure;

    fn series(subject: &'static str, jobs: &[Option<u64>]) -> Series {
        let sample = |jobs: u64| Sample {
            done: RoundResult {
                jobs,
                published: jobs * 2,
                seconds: 2.0,
                steps: vec![Step {
                    name: "publish".to_owned(),
                    p50_ms: 1.0,
                    p99_ms: Some(3.0),
                }],
                problems: Vec::new(),
                busy: None,
            },
            shares: CpuShares {
                busy: Busy {
                    generator: 0.5,
                    server: 1.0,
                },
                other_of_all: 0.04,
            },
            busy_before: 0.0,
            connections: Some(65),
        };
        Series {
            subject,
            clients: 64,
            work: Work::Pairs,
            is_baseline: false,
            samples: jobs.iter().map(|jobs| jobs.map(sample)).collect(),
        }
    }

    #[test]
    fn ratios_and_failures_are_shown() {
        let findings = Findings {
            seconds: 2,
            rounds: 2,
            subjects: vec![Description {
                subject: "redis",
                version: "Redis 7.0.15".to_owned(),
                settings: "always".to_owned(),
                caveat: Some("not all is written"),
            }],
            series: vec![
                series(OURS, &[Some(400), Some(200)]),
                series("redis", &[Some(200), Some(50)]),
                series("nats", &[Some(100), None]),
            ],
            failures: vec![Failure {
                subject: "nats with 64 clients, round 2".to_owned(),
                reason: "gone".to_owned(),
            }],
        };
        let text = text(&findings);
        let row = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name));
            found
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(row("consign").starts_with("consign 150 (100 - 200) 300 - 1.00/3.00"));
        assert!(
            row("redis").contains("62 (25 - 100) 125 3.00 (2.00 - 4.00)"),
            "{text}"
        );
        assert!(row("nats").contains("50 (50 - 50) 100 4.00 (4.00 - 4.00)"));
        assert!(text.contains("nats with 64 clients, round 2: gone"));
        assert!(text.contains("65           0.50 / 1.00") && text.contains("4%"));
        assert!(text.contains("redis: Redis 7.0.15; always\n    but not all is written\n"));
    }
}
