//! A report as text.

use std::fmt::Write;

use crate::report::{BenchReport, OperationReport, RoundSpread};
use crate::restart::RestartReport;

/// The report as lines; errors come last, where they are noticed.
pub fn table(report: &BenchReport) -> String {
    let mut text = String::new();
    let settings = &report.settings;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<15}{value}");
    };
    let loop_kind = match settings.rate {
        Some(rate) => format!("open loop, {rate} starts/s"),
        None => "closed loop".to_owned(),
    };
    line(
        "work",
        format!(
            "{}, {} clients on {} thread(s), {loop_kind}, {} byte payloads{}",
            report.work.name(),
            settings.clients,
            settings.threads,
            settings.payload_bytes,
            match (settings.signed, settings.nonces) {
                (false, _) => String::new(),
                (true, 0) => ", signed".to_owned(),
                (true, nonces) => format!(", signed, {nonces} nonces stored"),
            },
        ),
    );
    line(
        "measured",
        format!(
            "{} round(s) of {} s after {} s of warm-up; backlog {}{}, finished {}",
            settings.rounds,
            settings.seconds,
            settings.warmup_seconds,
            settings.backlog,
            if settings.backlog_mix { " (mixed)" } else { "" },
            settings.finished,
        ),
    );
    line("server", server(report));
    line(
        "requests/s",
        spread(&report.requests_per_s, report.rounds.len()),
    );
    if report.has_cycles() {
        line(
            "cycles/s",
            spread(&report.cycles_per_s, report.rounds.len()),
        );
    }
    for (name, value) in usage(report) {
        line(name, value);
    }
    if report.empty_claims > 0 {
        line("empty claims", report.empty_claims.to_string());
    }
    line("unfinished", unfinished(report));
    text.push('\n');
    text.push_str(&operations(&report.operations));
    if settings.rounds > 1 {
        text.push_str(&rounds(&report.operations));
    }
    text.push_str(&errors(report));
    text
}

fn server(report: &BenchReport) -> String {
    let server = &report.server;
    match (&server.dir, &server.filesystem) {
        (Some(dir), Some(filesystem)) => format!("{}, data in {dir} ({filesystem})", server.url),
        (Some(dir), None) => format!("{}, data in {dir}", server.url),
        (None, _) => server.url.clone(),
    }
}

fn spread(spread: &RoundSpread, rounds: usize) -> String {
    if rounds <= 1 {
        return format!("{:.0}", spread.median);
    }
    format!(
        "{:.0}  (median of {rounds} rounds, {:.0} to {:.0})",
        spread.median, spread.min, spread.max
    )
}

fn usage(report: &BenchReport) -> Vec<(&'static str, String)> {
    let usage = &report.usage;
    let server = &report.server;
    let mut lines = Vec::new();
    let cpu = |seconds: Option<f64>, share: Option<f64>| {
        let (seconds, share) = seconds.zip(share)?;
        Some(format!(
            "{seconds:.2} s ({:.0} % of {} cores)",
            share * 100.0,
            server.cores
        ))
    };
    let both = [
        (
            "cpu generator",
            cpu(usage.generator_cpu_s, usage.generator_share),
        ),
        ("cpu server", cpu(usage.server_cpu_s, usage.server_share)),
    ];
    lines.extend(
        both.into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    if let (Some(commits), Some(per_s)) = (usage.commits, usage.commits_per_s) {
        let each = usage.requests_per_commit.unwrap_or(0.0);
        lines.push((
            "commits",
            format!("{commits} ({per_s:.0}/s, {each:.1} requests each)"),
        ));
    }
    if let Some(share) = usage.stolen_share.filter(|share| *share > 0.0) {
        lines.push(("cpu stolen", format!("{:.1} %", share * 100.0)));
    }
    if let (Some(now), Some(most)) = (server.rss_bytes, server.rss_max_bytes) {
        let mut memory = format!("{} (at most {})", mebibytes(now), mebibytes(most));
        if let Some(start) = server.rss_start_bytes {
            let _ = write!(memory, ", {} before", mebibytes(start));
        }
        lines.push(("memory", memory));
    }
    if let Some(bytes) = server.disk_bytes {
        lines.push(("disk", mebibytes(bytes)));
    }
    lines
}

fn unfinished(report: &BenchReport) -> String {
    let unfinished = &report.unfinished;
    let mut text = format!(
        "{} requests at the end, the oldest {:.1} ms",
        unfinished.requests,
        unfinished.oldest_us / 1000.0
    );
    // The last start or two may have become due just before the end.
    if unfinished.not_started > 2 {
        let _ = write!(
            text,
            "; {} NOT STARTED, no client was free",
            unfinished.not_started
        );
    }
    text
}

fn operations(operations: &[OperationReport]) -> String {
    let mut text = format!(
        "{:<10}{:>10}{:>10}{:>11}{:>11}{:>11}{:>11}{:>11}\n",
        "operation", "count", "per s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"
    );
    for operation in operations {
        let _ = write!(
            text,
            "{:<10}{:>10}{:>10.0}",
            operation.name, operation.count, operation.per_s
        );
        for micros in [
            operation.p50_us,
            operation.p90_us,
            operation.p99_us,
            operation.p999_us,
            operation.max_us,
        ] {
            let _ = write!(text, "{:>11.3}", micros / 1000.0);
        }
        text.push('\n');
    }
    text
}

/// One slow round raises the percentile of the whole run; the list of rounds shows it.
fn rounds(operations: &[OperationReport]) -> String {
    let mut text = format!("\n{:<10}{:>10}  of each round\n", "p99 ms", "median");
    for operation in operations {
        let _ = write!(
            text,
            "{:<10}{:>10.3} ",
            operation.name,
            operation.p99_median_us / 1000.0
        );
        for micros in &operation.p99_rounds_us {
            let _ = write!(text, " {:.3}", micros / 1000.0);
        }
        text.push('\n');
    }
    text
}

fn errors(report: &BenchReport) -> String {
    let mut text = String::new();
    if report.errors.is_empty() {
        return text;
    }
    let count: u64 = report.errors.iter().map(|error| error.count).sum();
    let _ = writeln!(
        text,
        "\nERRORS: {count} requests failed and are not counted above"
    );
    for error in &report.errors {
        let _ = writeln!(
            text,
            "{:<10}{:>10}  {}  {}",
            error.operation,
            error.count,
            error.what,
            // A body is text from another program; it must not control the terminal.
            error.example.escape_debug()
        );
    }
    text
}

/// Restarts as lines.
pub fn restart_table(report: &RestartReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<15}{value}");
    };
    let server = &report.server;
    line(
        "work",
        format!(
            "restart after a kill, {} waiting, {} finished, {} nonces, {} byte payloads",
            report.backlog, report.finished, report.nonces, report.payload_bytes
        ),
    );
    line("first claim", {
        let (p50, max) = (report.p50_ms, report.max_ms);
        let rounds = report.first_claim_ms.len();
        format!("{p50:.1} ms after the start, at most {max:.1}, {rounds} round(s)")
    });
    let memory = [
        ("memory", server.rss_bytes, "loaded"),
        ("", server.rss_start_bytes, "before"),
        ("", report.rss_restarted_bytes, "started again"),
    ];
    for (name, bytes, when) in memory {
        if let Some(bytes) = bytes {
            line(name, format!("{} {when}", mebibytes(bytes)));
        }
    }
    if let Some(bytes) = server.disk_bytes {
        line("disk", mebibytes(bytes));
    }
    text
}

fn mebibytes(bytes: u64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "one digit behind the point is shown"
    )]
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    format!("{mebibytes:.1} MiB")
}
