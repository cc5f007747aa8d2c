//! The query of a claim, and the worker's id and capabilities from query or headers.

use std::time::Duration;

use consign_kernel::error::Code;
use consign_kernel::limits;

use super::QueryParams;
use crate::wire;
use consign_web::reject::Reject;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimQuery {
    pub namespace: String,
    pub goal: Option<String>,
    /// The requested maximum; `None` for a single claim.
    pub max: Option<u32>,
    pub wait: Duration,
    pub publisher: Option<String>,
    pub worker_id: Option<String>,
    /// As sent: used only if the headers contain no capabilities.
    pub capabilities: Option<String>,
}

impl ClaimQuery {
    pub fn of(params: &QueryParams) -> Result<Self, Reject> {
        let text = |name: &str| params.get(name).map(str::to_owned);
        Ok(Self {
            namespace: wire::namespace(Some(params.get("namespace").unwrap_or("default")))?,
            max: params.get("max").map(whole).transpose()?,
            wait: params.get("wait").map_or(Ok(Duration::ZERO), wait)?,
            goal: params
                .get("goal")
                .map(|goal| goal.trim().to_owned())
                .filter(|goal| !goal.is_empty()),
            publisher: text("publisher"),
            worker_id: params.get("worker_id").and_then(worker_id),
            capabilities: text("capabilities").or_else(|| text("capability")),
        })
    }
}

pub fn worker_id(text: &str) -> Option<String> {
    let id: String = text
        .trim()
        .chars()
        .take(limits::WORKER_ID_CHARS_MAX)
        .collect();
    (!id.is_empty()).then_some(id)
}

/// Each capability is another lane to search, so their number is limited.
pub fn capabilities(text: &str) -> Result<Vec<String>, Reject> {
    let text: String = text.chars().take(limits::CAPABILITIES_CHARS_MAX).collect();
    let mut tokens: Vec<String> = text
        .split(',')
        .map(str::trim)
        .filter(|token| !token.is_empty())
        .map(str::to_owned)
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    if tokens.len() > limits::CAPABILITIES_MAX {
        return Err(Reject::new(
            Code::InvalidRequest,
            "A worker may advertise at most 32 capabilities.",
        ));
    }
    Ok(tokens)
}

fn whole(text: &str) -> Result<u32, Reject> {
    text.parse()
        .ok()
        .filter(|max| (1..=limits::CLAIM_BATCH_MAX).contains(max))
        .ok_or_else(|| Reject::new(Code::InvalidMax, "max must be an integer from 1 to 100."))
}

fn wait(text: &str) -> Result<Duration, Reject> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.0..=limits::CLAIM_WAIT_MAX_S).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            Reject::new(
                Code::InvalidWait,
                "wait must be a number of seconds from 0 to 30.",
            )
        })
}
