//! `GET /admin/status`: the state of the whole server for operators, the same figures for a command, a live view and a page.

use axum::extract::{Request, State};
use axum::response::Response;
use consign_engine::{
    Engine, Error, FaceFigures, LedgerHealth, NodeInfo, NodeState, Operator, RowStepKind,
    StepCounter, StepCounts, StepFigures,
};
use consign_kernel::ids::Micros;
use consign_kernel::profile::Face;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::Shell;
use super::report::{ProblemLevel, ServerProblem};
use crate::json_out::json_response;
use crate::reject::Reject;

/// Labels in the response, those with the most steps first.
const LABELS_SHOWN_MAX: usize = 50;
/// A waiting queue longer than this makes clients wait noticeably.
const WRITER_WAITING_MANY: u64 = 4_096;

pub(super) async fn status(
    State(shell): State<Shell>,
    request: Request,
) -> Result<Response, Reject> {
    let operator = shell.operator(request).await?;
    let engine = &shell.inner.options.engine;
    let ledger = engine.ledger_health().await;
    if ledger == LedgerHealth::Unreadable {
        let mut response = json_response(unreadable(&shell, ledger).to_string());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return Ok(response);
    }
    let whole = shell.status(operator, ledger).await?;
    Ok(json_response(whole.to_string()))
}

fn unreadable(shell: &Shell, ledger: LedgerHealth) -> Value {
    let mut whole = shell.about_server(ledger);
    whole["healthy"] = false.into();
    whole["problems"] = json!([ledger_problem(ledger).json()]);
    whole
}

impl Shell {
    fn about_server(&self, ledger: LedgerHealth) -> Value {
        let options = &self.inner.options;
        let (engine, stats) = (&options.engine, options.engine.stats());
        json!({
            "at": engine.wall().seconds(),
            "version": env!("CARGO_PKG_VERSION"),
            "protocol_version": self.inner.root.version(),
            "draining": engine.claims_paused().is_some() || *options.draining.borrow(),
            "ledger": {
                "health": ledger.name(),
                "commits": stats.commits,
                "failed_commits": stats.failed_commits,
                "requests": stats.requests,
                "waiting_requests": stats.waiting,
                "refused_requests": stats.refused,
            },
            "clock": {"wrong": engine.has_wrong_clock()},
            "waiting_lanes": engine.waiters(),
        })
    }

    async fn status(&self, operator: Operator, ledger: LedgerHealth) -> Result<Value, Error> {
        let inner = &self.inner;
        let engine = &inner.options.engine;
        let mut whole = self.about_server(ledger);
        let mut problems = own_problems(engine, ledger);
        let steps = engine.step_figures();
        let faces = engine.face_figures(operator).await?;
        problems.extend(faces.iter().filter_map(dead_letters));
        let faces = faces.iter().map(|face| face_json(engine, face, &steps));
        whole["faces"] = faces.collect();
        whole["goals"] = goals_json(steps.labels);
        let nodes = engine.nodes(operator).await?;
        problems.extend(nodes.iter().filter_map(node_problem));
        whole["nodes"] = nodes.iter().map(node_json).collect();
        whole["last_fact"] = json!(engine.last_fact().await?.0);
        let cleaned = engine.last_cleanup(Face::Intent).await?;
        whole["last_cleanup_at"] = json!(cleaned.map(Micros::seconds));
        let mut parts = Map::new();
        for mount in &inner.mounts {
            if let Some((name, report)) = mount.report(operator).await? {
                parts.insert(name.to_owned(), report.figures.into());
                problems.extend(report.problems);
            }
        }
        for reporter in self.reporters() {
            let report = reporter.report(operator).await?;
            parts.insert(reporter.name().to_owned(), report.figures.into());
            problems.extend(report.problems);
        }
        whole["parts"] = parts.into();
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.level));
        let is_error = |problem: &ServerProblem| problem.level == ProblemLevel::Error;
        whole["healthy"] = (!problems.iter().any(is_error)).into();
        whole["problems"] = problems.iter().map(ServerProblem::json).collect();
        Ok(whole)
    }
}

fn ledger_problem(ledger: LedgerHealth) -> ServerProblem {
    ServerProblem {
        level: ProblemLevel::Error,
        id: "ledger",
        what: format!("the ledger is {}", ledger.name()),
        why: ledger.reason().to_owned(),
        next: "look at the log of the server; consign doctor checks the disk and the file"
            .to_owned(),
    }
}

fn own_problems(engine: &Engine, ledger: LedgerHealth) -> Vec<ServerProblem> {
    let mut problems = Vec::new();
    if ledger != LedgerHealth::Healthy {
        problems.push(ledger_problem(ledger));
    }
    if engine.has_wrong_clock() {
        problems.push(ServerProblem {
            level: ProblemLevel::Error,
            id: "clock",
            what: "this server hands out no work".to_owned(),
            why: "its clock differs from the clock of the database by two seconds or more"
                .to_owned(),
            next: "set the clock of this machine, such as with: timedatectl set-ntp true"
                .to_owned(),
        });
    }
    let waiting = engine.stats().waiting;
    if waiting >= WRITER_WAITING_MANY {
        problems.push(ServerProblem {
            level: ProblemLevel::Warning,
            id: "writer",
            what: format!("{waiting} requests wait for the writer"),
            why: "more is sent than the disk or the database commits; beyond 8192 clients are refused"
                .to_owned(),
            next: "watch it with: consign top".to_owned(),
        });
    }
    problems
}

fn dead_letters(face: &FaceFigures) -> Option<ServerProblem> {
    let dead = face.dead();
    if dead == 0 {
        return None;
    }
    let (what, next) = match face.face {
        Face::Intent => (
            "dead letters of intents",
            "consign intent list --status dead",
        ),
        Face::Automation => (
            "dead jobs of the automation",
            "consign job list --status dead",
        ),
        // Permissions that ended unused are the ordinary end of a permission.
        Face::Transaction => return None,
        Face::Mesh => ("dead messages of the mesh", "consign mesh messages"),
        Face::Beam => (
            "dead intents or messages of Beam agents",
            "consign message errors",
        ),
    };
    Some(ServerProblem {
        level: ProblemLevel::Warning,
        id: "dead_letters",
        what: format!("{what}: {dead}"),
        why: "all their attempts failed, or somebody cancelled them".to_owned(),
        next: format!("see why with: {next}"),
    })
}

fn node_problem(node: &NodeInfo) -> Option<ServerProblem> {
    if !matches!(node.state, NodeState::Silent) {
        return None;
    }
    Some(ServerProblem {
        level: ProblemLevel::Warning,
        id: "node",
        what: format!("the node {} ({}) is silent", node.name, node.id),
        why: "its heartbeats are missing: it may have ended, or it does not reach the database"
            .to_owned(),
        next: "consign node list shows when it was seen; its leases end by themselves".to_owned(),
    })
}

fn face_json(engine: &Engine, face: &FaceFigures, steps: &StepFigures) -> Value {
    let states = face.states.iter();
    let states: Map<String, Value> = states
        .map(|(state, count)| (state.name().to_owned(), json!(count)))
        .collect();
    let age = face.oldest_since.map(|since| {
        let us = engine.now().0.saturating_sub(since.0).max(0);
        Micros(us).seconds()
    });
    json!({
        "face": face.face.name(),
        "waiting": face.waiting(),
        "held": face.held(),
        "dead": face.dead(),
        "states": states,
        "oldest_waiting_s": age,
        "counters": counters_json(&steps.of_face(face.face)),
    })
}

fn counters_json(counts: &StepCounts) -> Value {
    let kinds = RowStepKind::ALL.into_iter();
    let counters: Map<String, Value> = kinds
        .map(|kind| (kind.name().to_owned(), json!(counts.of(kind))))
        .collect();
    counters.into()
}

fn goals_json(mut labels: Vec<StepCounter>) -> Value {
    let sum = |label: &StepCounter| -> u64 {
        let kinds = RowStepKind::ALL.into_iter();
        kinds.map(|kind| label.counts.of(kind)).sum()
    };
    // The order of equal ones stays.
    labels.sort_by_key(|label| std::cmp::Reverse(sum(label)));
    labels.truncate(LABELS_SHOWN_MAX);
    let shown = labels.iter().map(|label| {
        json!({
            "face": label.face.name(),
            "namespace": label.namespace,
            "goal": label.goal,
            "counters": counters_json(&label.counts),
        })
    });
    shown.collect()
}

fn node_json(node: &NodeInfo) -> Value {
    json!({
        "id": node.id,
        "name": node.name,
        "address": node.address,
        "version": node.version,
        "state": node.state.name(),
        "leases": node.leases,
        "started_at": node.started_at.seconds(),
        "seen_at": node.seen_at.seconds(),
        "here": node.here,
    })
}
