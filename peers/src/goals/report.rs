//! The findings as a table.

use std::fmt::Write;

use super::table::Wanted;
use super::{Findings, Row, STOLEN_MAX, Verdict};

pub(super) fn text(findings: &Findings) -> String {
    let mut text = String::new();
    if findings.quick {
        text.push_str("QUICK: the figures mean nothing; this only shows that measuring works.\n\n");
    }
    let header = ["goal", "wanted", "found", "", "what"].map(str::to_owned);
    let rows = std::iter::once(header).chain(findings.rows.iter().map(cells));
    let rows: Vec<[String; 5]> = rows.collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..5).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text.push_str(&notes(findings));
    text
}

fn cells(row: &Row) -> [String; 5] {
    let unit = row.goal.unit;
    let wanted = match row.goal.wanted {
        Wanted::AtLeast(least) => format!("at least {least} {unit}"),
        Wanted::AtMost(most) => format!("at most {most} {unit}"),
    };
    let found = row.found.map_or_else(
        || "-".to_owned(),
        |found| {
            // Bytes have no hundredths.
            let digits = if found.median < 100.0 { 2 } else { 0 };
            format!(
                "{:.digits$} ({:.digits$} to {:.digits$}) {unit}",
                found.median, found.min, found.max
            )
        },
    );
    let verdict = match row.verdict {
        Verdict::Reached => "reached",
        Verdict::NotReached => "NOT REACHED",
        Verdict::NotJudged => "not judged",
    };
    let mut about = row.goal.about.to_owned();
    if row.stolen_rounds > 0 {
        let _ = write!(about, "; {} round(s) left out", row.stolen_rounds);
    }
    let cells = [row.goal.name, wanted.trim_end(), found.trim_end(), verdict];
    let [name, wanted, found, verdict] = cells.map(str::to_owned);
    [name, wanted, found, verdict, about]
}

fn notes(findings: &Findings) -> String {
    let mut text = format!(
        "\nMedian (least to most) of {} round(s), {} s each at full speed; both sides of a ratio in turn.\n",
        findings.rounds, findings.seconds
    );
    let left_out: usize = findings.rows.iter().map(|row| row.stolen_rounds).sum();
    let measured: usize = findings.rows.iter().map(|row| row.figures.len()).sum();
    let _ = writeln!(
        text,
        "Left out because the hypervisor took more than {:.1} % of the machine: {left_out} of {measured} figures.",
        STOLEN_MAX * 100.0
    );
    if !findings.failures.is_empty() {
        text.push_str("\nNot measured:\n");
        for failure in &findings.failures {
            let _ = writeln!(text, "  {failure}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Spread;
    use crate::goals::table;

    fn findings(quick: bool, verdict: Verdict) -> Findings {
        let goal = table::chosen(&["restart".to_owned()]).unwrap()[0][0];
        let found = Spread {
            median: 0.03,
            min: 0.02,
            max: 0.5,
        };
        Findings {
            quick,
            rounds: 3,
            seconds: 3.0,
            rows: vec![Row {
                goal,
                found: Some(found),
                figures: vec![Some(0.03), Some(0.02), Some(0.5)],
                stolen_rounds: 1,
                verdict,
            }],
            failures: vec!["Empty, round 1: gone".to_owned()],
        }
    }

    #[test]
    fn a_row_has_goal_figure_spread_and_verdict() {
        let text = text(&findings(false, Verdict::Reached));
        assert!(text.starts_with("goal"), "{text}");
        assert!(text.contains("restart  at most 1 s  0.03 (0.02 to 0.50) s  reached"));
        assert!(text.contains("1 round(s) left out") && text.contains("1 of 3 figures"));
        assert!(text.contains("Empty, round 1: gone"));
    }

    #[test]
    fn a_quick_run_says_first_that_it_means_nothing() {
        let text = text(&findings(true, Verdict::NotJudged));
        assert!(text.starts_with("QUICK: the figures mean nothing"));
        assert!(text.contains("not judged"));
    }
}
