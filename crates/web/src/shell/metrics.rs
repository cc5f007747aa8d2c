//! `GET /metrics` in the Prometheus text format: the metrics of each mount, then those of the server.

use std::fmt::{self, Write as _};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{
    Engine, Error, NodeInfo, NodeState, Operator, RowStepKind, Stats, StepFigures, WaitKind,
};
use consign_kernel::error::Code;
use consign_kernel::ids::Micros;
use http::request::Parts;
use http::{HeaderValue, header};

use super::{Options, Shell};
use crate::credentials;
use crate::operator::AdminRight;
use crate::reject::Reject;

pub(super) async fn metrics(
    State(shell): State<Shell>,
    request: Request,
) -> Result<Response, Reject> {
    let inner = &shell.inner;
    let (parts, _) = request.into_parts();
    inner.root.check_transport(&parts).await?;
    let operator = authorise(&inner.options, &parts).await?;
    let engine = &inner.options.engine;
    let mut text = MetricsText::default();
    inner.root.metrics(operator, &mut text).await?;
    for mount in &inner.mounts {
        mount.metrics(operator, &mut text).await?;
    }
    for reporter in shell.reporters() {
        reporter.metrics(operator, &mut text).await?;
    }
    render(&mut text, engine.stats(), engine.waiters());
    render_nodes(&mut text, &engine.nodes(operator).await?);
    render_faces(&mut text, engine, operator).await?;
    render_steps(&mut text, &engine.step_figures());
    inner.meter.write(&mut text);
    let mut response = text.0.into_response();
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The bearer token if one is configured, or an operator.
async fn authorise(options: &Options, parts: &Parts) -> Result<Operator, Reject> {
    let bearer = credentials::bearer(&parts.headers);
    let token = options.operators.metrics_token.as_ref();
    if token
        .zip(bearer)
        .is_some_and(|(token, bearer)| token.matches(bearer))
    {
        return Ok(Operator::vouched());
    }
    let Options {
        operators, engine, ..
    } = options;
    let caller = operators.require(engine, parts, AdminRight::Read).await;
    caller.map(|caller| caller.operator).map_err(|refused| {
        if refused.code != Code::Unauthorized {
            return refused;
        }
        let reject = Reject::new(
            Code::Unauthorized,
            "Send the metrics token as a Bearer token, or admin credentials.",
        );
        if refused.is_of_wrong_credential() {
            reject.of_wrong_credential()
        } else {
            reject
        }
    })
}

/// Metrics in the Prometheus text format.
#[derive(Debug, Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    /// One sample. Each label is a name and a value.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        let _ = self.0.write_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", label_value(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.line(format_args!("{end} {value}"));
    }

    /// A family with one sample without labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The samples of one histogram: how many values are in each bucket and in no earlier one, their sum, and their number.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (f64, u64)>,
        sum_us: u64,
        count: u64,
    ) {
        let (bucket, mut sum) = (format!("{name}_bucket"), 0);
        let bounded = |le: &str, value: u64, text: &mut Self| {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", le)]).collect();
            text.sample(&bucket, &labels, value);
        };
        for (bound, more) in buckets {
            sum += more;
            bounded(&bound.to_string(), sum, self);
        }
        bounded("+Inf", count, self);
        let sum_s = Duration::from_micros(sum_us).as_secs_f64();
        self.sample(&format!("{name}_sum"), labels, sum_s);
        self.sample(&format!("{name}_count"), labels, count);
    }

    /// What was written so far.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{text}");
    }
}

fn render(text: &mut MetricsText, stats: Stats, waiters: usize) {
    text.single(
        "consign_commits_total",
        "counter",
        "Commits that wrote something, one sync each",
        stats.commits,
    );
    text.single(
        "consign_requests_total",
        "counter",
        "Requests to the ledger",
        stats.requests,
    );
    text.single(
        "consign_failed_commits_total",
        "counter",
        "Commits that failed",
        stats.failed_commits,
    );
    text.single(
        "consign_refused_busy_total",
        "counter",
        "Requests that were refused because too many wait for the writer",
        stats.refused,
    );
    text.single(
        "consign_writer_waiting",
        "gauge",
        "Requests waiting for the writer",
        stats.waiting,
    );
    text.single(
        "consign_lanes_waited",
        "gauge",
        "Lanes that long polls wait for",
        waiters as u64,
    );
}

/// This node by name, then leases and states of all nodes.
fn render_nodes(text: &mut MetricsText, nodes: &[NodeInfo]) {
    if let Some(here) = nodes.iter().find(|node| node.here) {
        text.family("consign_node_info", "gauge", "This server");
        let id = here.id.to_string();
        let labels = [
            ("node", id.as_str()),
            ("name", &here.name),
            ("version", &here.version),
        ];
        text.sample("consign_node_info", &labels, 1);
    }
    let about = "Leases that are out, by the server that gave them";
    text.family("consign_node_leases", "gauge", about);
    for node in nodes {
        let id = node.id.to_string();
        text.sample("consign_node_leases", &[("node", &id)], node.leases);
    }
    let about = "Servers of this ledger by what they are doing";
    text.family("consign_nodes", "gauge", about);
    for state in NodeState::ALL {
        let count = nodes.iter().filter(|node| node.state == *state).count();
        text.sample("consign_nodes", &[("state", state.name())], count);
    }
}

/// The work of all protocols, in canonical states.
async fn render_faces(
    text: &mut MetricsText,
    engine: &Engine,
    operator: Operator,
) -> Result<(), Error> {
    let faces = engine.face_figures(operator).await?;
    let name = "consign_rows";
    text.family(name, "gauge", "Rows of each protocol by state");
    for face in &faces {
        for (state, count) in &face.states {
            let labels = [("face", face.face.name()), ("state", state.name())];
            text.sample(name, &labels, count);
        }
    }
    let name = "consign_oldest_waiting_seconds";
    let about =
        "For how long the oldest claimable row of each protocol has been due; 0 if none waits";
    text.family(name, "gauge", about);
    for face in &faces {
        let since = face.oldest_since.unwrap_or(engine.now());
        let age = Micros(engine.now().0.saturating_sub(since.0).max(0));
        text.sample(name, &[("face", face.face.name())], age.seconds());
    }
    Ok(())
}

/// What this process has committed; Prometheus adds up the processes.
fn render_steps(text: &mut MetricsText, figures: &StepFigures) {
    for kind in RowStepKind::ALL {
        let name = format!("consign_{}_total", kind.name());
        text.family(&name, "counter", about_steps(kind));
        for label in &figures.labels {
            let labels = [
                ("face", label.face.name()),
                ("namespace", label.namespace.as_str()),
                ("goal", label.goal.as_str()),
            ];
            text.sample(&name, &labels, label.counts.of(kind));
        }
    }
    for (wanted, name, about) in [
        (
            WaitKind::Claim,
            "consign_claim_wait_seconds",
            "Time from when a row was due to its first claim",
        ),
        (
            WaitKind::Settlement,
            "consign_settle_wait_seconds",
            "Time from the last claim of a row to its settlement",
        ),
    ] {
        text.family(name, "histogram", about);
        for (face, kind, waits) in &figures.waits {
            if *kind == wanted {
                let labels = [("face", face.name())];
                text.histogram(name, &labels, waits.buckets(), waits.sum_us, waits.count);
            }
        }
    }
}

const fn about_steps(kind: RowStepKind) -> &'static str {
    match kind {
        RowStepKind::Published => "Rows that were admitted",
        RowStepKind::Claimed => "Claims",
        RowStepKind::Fulfilled => "Rows that were completed",
        RowStepKind::Failed => "Attempts that were reported as failed",
        RowStepKind::Retried => "Rows that were queued again",
        RowStepKind::Expired => "Leases and lives that ran out",
        RowStepKind::Dead => "Rows that were given up or cancelled",
    }
}

/// Operators choose the names of nodes. Valid namespaces need no escape, but one bad row must not break the whole
/// scrape.
fn label_value(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_value_cannot_break_out_of_its_quotes() {
        let mut text = MetricsText::default();
        let labels = [("status", "open"), ("namespace", "a\\b\"} 1\nc")];
        text.sample("intent_bus_intents_total", &labels, 2);
        let expected = r#"intent_bus_intents_total{status="open",namespace="a\\b\"} 1\nc"} 2"#;
        assert!(text.0.lines().any(|line| line == expected), "{text:?}");
    }
}
