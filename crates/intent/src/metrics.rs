//! `GET /metrics` in the Prometheus text format.

use std::fmt::Write as _;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{Count, NodeInfo, NodeState, Operator, Stats};
use consign_kernel::error::Code;
use consign_kernel::profile::Face;
use consign_kernel::state::{Cause, State as IntentState};
use http::{HeaderMap, HeaderValue, header};

use super::IntentFace;
use super::read::word;
use super::reject::Reject;
use consign_web::credentials;

pub(super) async fn metrics(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, _) = request.into_parts();
    face.check_transport(&parts).await?;
    let operator = authorise(&face, &parts.headers)?;
    let counts = face.engine.counts(operator, Face::Intent).await?;
    let keys = face.engine.keys(operator).await?.len();
    let nodes = face.engine.nodes(operator).await?;
    let mut text = render(&counts, keys, face.engine.stats(), face.engine.waiters());
    render_nodes(&mut text, &nodes);
    let mut response = text.into_response();
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The bearer token if one is configured, or an operator.
fn authorise(face: &IntentFace, headers: &HeaderMap) -> Result<Operator, Reject> {
    let bearer = credentials::bearer(headers);
    let token = face.options.metrics_token.as_ref();
    if token
        .zip(bearer)
        .is_some_and(|(token, bearer)| token.matches(bearer))
    {
        return Ok(Operator::vouched());
    }
    face.operator(headers).map_err(|refused| {
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

fn render(counts: &[Count], keys: usize, stats: Stats, waiters: usize) -> String {
    let mut text = String::new();
    let dead: u64 = counts
        .iter()
        .filter(|count| count.state == IntentState::DeadLetter)
        .map(|count| count.count)
        .sum();
    family(
        &mut text,
        "intent_bus_intents_total",
        "gauge",
        "Total intents by status and namespace",
    );
    for count in counts {
        let status = word(count.state, Cause::None);
        let namespace = label_value(&count.namespace);
        let _ = writeln!(
            text,
            "intent_bus_intents_total{{status=\"{status}\",namespace=\"{namespace}\"}} {}",
            count.count
        );
    }
    single(
        &mut text,
        "intent_bus_dead_letters_total",
        "gauge",
        "Total dead-letter intents",
        dead,
    );
    single(
        &mut text,
        "intent_bus_tester_keys_total",
        "gauge",
        "Total active tester keys",
        keys as u64,
    );
    single(
        &mut text,
        "consign_commits_total",
        "counter",
        "Commits that wrote something, one sync each",
        stats.commits,
    );
    single(
        &mut text,
        "consign_requests_total",
        "counter",
        "Requests to the ledger",
        stats.requests,
    );
    single(
        &mut text,
        "consign_failed_commits_total",
        "counter",
        "Commits that failed",
        stats.failed_commits,
    );
    single(
        &mut text,
        "consign_writer_waiting",
        "gauge",
        "Requests waiting for the writer",
        stats.waiting,
    );
    single(
        &mut text,
        "consign_lanes_waited",
        "gauge",
        "Lanes that long polls wait for",
        waiters as u64,
    );
    text
}

/// This node by name, then leases and states of all nodes.
fn render_nodes(text: &mut String, nodes: &[NodeInfo]) {
    if let Some(here) = nodes.iter().find(|node| node.here) {
        family(text, "consign_node_info", "gauge", "This server");
        let (name, version) = (label_value(&here.name), label_value(&here.version));
        let _ = writeln!(
            text,
            "consign_node_info{{node=\"{}\",name=\"{name}\",version=\"{version}\"}} 1",
            here.id
        );
    }
    let about = "Leases that are out, by the server that gave them";
    family(text, "consign_node_leases", "gauge", about);
    for node in nodes {
        let (id, leases) = (node.id, node.leases);
        let _ = writeln!(text, "consign_node_leases{{node=\"{id}\"}} {leases}");
    }
    let about = "Servers of this ledger by what they are doing";
    family(text, "consign_nodes", "gauge", about);
    for state in NodeState::ALL {
        let count = nodes.iter().filter(|node| node.state == *state).count();
        let state = state.name();
        let _ = writeln!(text, "consign_nodes{{state=\"{state}\"}} {count}");
    }
}

fn single(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    family(text, name, kind, help);
    let _ = writeln!(text, "{name} {value}");
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
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
        let count = Count {
            namespace: "a\\b\"} 1\nc".to_owned(),
            state: IntentState::Queued,
            count: 2,
        };
        let text = render(&[count], 0, Stats::default(), 0);
        let expected = r#"intent_bus_intents_total{status="open",namespace="a\\b\"} 1\nc"} 2"#;
        assert!(text.lines().any(|line| line == expected), "{text}");
    }
}
