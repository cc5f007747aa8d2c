//! `GET /admin/dashboard`: the state of the queue on one page, without a script.

use std::fmt::Write as _;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{Count, IntentFilter, KeyInfo, NodeInfo, NodeState};
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State as IntentState;
use consign_web::html::escape;
use http::{HeaderValue, header};

use super::read::word;
use super::{API_VERSION, IntentFace};
use consign_web::reject::Reject;
use consign_web::shell::PAGE_POLICY;

/// Rows per table.
const ROWS: u32 = 12;
const STYLE: &str = include_str!("dashboard.css");
pub(super) async fn page(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _) = face.authenticate_operator(request).await?;
    let counts = face.engine.counts(operator, Face::Intent).await?;
    let recent = IntentFilter {
        face: Face::Intent,
        owner: None,
        namespace: None,
        goal: None,
        state: None,
        before: None,
        limit: ROWS,
    };
    let recent = face.engine.intents(recent).await?.intents;
    let mut keys = face.engine.keys(operator).await?;
    keys.sort_by_key(|key| std::cmp::Reverse(key.total_requests));
    keys.truncate(ROWS as usize);
    let dead = face.engine.dead(operator, Face::Intent, ROWS).await?;
    let nodes = face.engine.nodes(operator).await?;
    let data = DashboardData {
        counts: &counts,
        nodes: &nodes,
        recent: &recent,
        keys: &keys,
        dead: &dead,
    };
    let mut response = render(&data, face.engine.now()).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(PAGE_POLICY),
    );
    Ok(response)
}

/// The data of the page.
struct DashboardData<'a> {
    counts: &'a [Count],
    nodes: &'a [NodeInfo],
    recent: &'a [Intent],
    keys: &'a [KeyInfo],
    dead: &'a [Intent],
}

fn render(data: &DashboardData<'_>, now: Micros) -> String {
    let DashboardData {
        counts,
        nodes,
        recent,
        keys,
        dead,
    } = *data;
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Intent Bus Dashboard</title><style>{STYLE}</style></head><body><main>\
         <header><h1>Intent Bus Dashboard</h1><p>Consign {} · Intent Protocol 2.1 · API {API_VERSION} · dead letters: {}</p></header>",
        env!("CARGO_PKG_VERSION"),
        total(counts, IntentState::DeadLetter),
    );
    page.push_str("<section class=\"cards\" aria-label=\"Intents by status\">");
    for (name, state) in [
        ("Open", IntentState::Queued),
        ("Claimed", IntentState::Dispatched),
        ("Fulfilled", IntentState::Acked),
        ("Dead", IntentState::DeadLetter),
    ] {
        let _ = write!(
            page,
            "<div class=\"card {}\"><b>{}</b><span>{name}</span></div>",
            word(state, consign_kernel::state::Cause::None),
            total(counts, state)
        );
    }
    page.push_str("</section>");
    // A single serving node is not worth a table.
    if nodes.len() > 1 || nodes.iter().any(|node| node.state != NodeState::Serving) {
        nodes_table(&mut page, nodes, now);
    }
    table(
        &mut page,
        "Recent Intents",
        &[
            "ID",
            "Namespace",
            "Goal",
            "Status",
            "Priority",
            "Worker",
            "Capability",
            "Attempts",
        ],
        recent.iter().map(|intent| {
            let status = word(intent.state, intent.cause);
            vec![
                TableCell::Code(intent.id.to_string()),
                TableCell::Text(intent.namespace.clone()),
                TableCell::Text(intent.goal.clone()),
                TableCell::Status(status),
                TableCell::Number(intent.priority.to_string()),
                TableCell::Text(worker(intent).unwrap_or_default().to_owned()),
                TableCell::Text(intent.capability.clone().unwrap_or_default()),
                TableCell::Number(format!("{}/{}", intent.attempts, intent.attempts_max)),
            ]
        }),
        "Nothing was published yet.",
    );
    table(
        &mut page,
        "Tester Keys",
        &["Owner", "Requests", "Created"],
        keys.iter().map(|key| {
            vec![
                TableCell::Text(key.owner.clone()),
                TableCell::Number(key.total_requests.to_string()),
                TableCell::Number((key.created_at.0 / 1_000_000).to_string()),
            ]
        }),
        "No key was made yet; the main key is not listed.",
    );
    table(
        &mut page,
        "Dead Letters",
        &["Intent", "Namespace", "Goal", "Attempts", "Reason"],
        dead.iter().map(|intent| {
            vec![
                TableCell::Code(intent.id.to_string()),
                TableCell::Text(intent.namespace.clone()),
                TableCell::Text(intent.goal.clone()),
                TableCell::Number(intent.attempts.to_string()),
                TableCell::Text(intent.last_error.clone().unwrap_or_default()),
            ]
        }),
        "No dead letters.",
    );
    page.push_str("</main></body></html>");
    page
}

/// The one that claimed it last, or else the one that it is for.
fn worker(intent: &Intent) -> Option<&str> {
    intent.worker.as_deref().or(intent.target.as_deref())
}

fn nodes_table(page: &mut String, nodes: &[NodeInfo], now: Micros) {
    table(
        page,
        "Nodes",
        &["Name", "State", "Leases", "Seen", "Version", "Address"],
        nodes.iter().map(|node| {
            let ago_s = (now.0 - node.seen_at.0).max(0) / SECOND_US;
            vec![
                TableCell::Text(node.name.clone()),
                TableCell::Status(node.state.name()),
                TableCell::Number(node.leases.to_string()),
                TableCell::Number(format!("{ago_s} s ago")),
                TableCell::Number(node.version.clone()),
                TableCell::Code(node.address.clone()),
            ]
        }),
        "",
    );
}

fn total(counts: &[Count], state: IntentState) -> u64 {
    counts
        .iter()
        .filter(|count| count.state == state)
        .map(|count| count.count)
        .sum()
}

enum TableCell {
    Code(String),
    Text(String),
    Number(String),
    Status(&'static str),
}

fn table(
    page: &mut String,
    title: &str,
    columns: &[&str],
    rows: impl Iterator<Item = Vec<TableCell>>,
    none: &str,
) {
    let _ = write!(
        page,
        "<section><h2>{title}</h2><div class=\"scroll\" tabindex=\"0\"><table><thead><tr>"
    );
    for column in columns {
        let _ = write!(page, "<th scope=\"col\">{column}</th>");
    }
    page.push_str("</tr></thead><tbody>");
    let mut empty = true;
    for row in rows {
        empty = false;
        page.push_str("<tr>");
        for cell in row {
            let _ = match cell {
                TableCell::Code(text) => write!(page, "<td><code>{}</code></td>", escape(&text)),
                TableCell::Text(text) => write!(page, "<td>{}</td>", escape(&text)),
                TableCell::Number(text) => {
                    write!(page, "<td class=\"number\">{}</td>", escape(&text))
                }
                TableCell::Status(word) => {
                    write!(page, "<td><span class=\"status {word}\">{word}</span></td>")
                }
            };
        }
        page.push_str("</tr>");
    }
    if empty {
        let _ = write!(
            page,
            "<tr><td class=\"none\" colspan=\"{}\">{none}</td></tr>",
            columns.len()
        );
    }
    page.push_str("</tbody></table></div></section>");
}
