//! What the worker prints: a line for each intent that ended, and what the operator must know of the server.

use std::time::Duration;

use consign_client::Claimed;
use serde::Serialize;

use super::attempt::AttemptVerdict;
use crate::{out, render};

const SUMMARY_CHARS_MAX: usize = 100;

/// How the attempt of an intent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IntentEnd {
    Fulfilled,
    Failed,
    /// Another worker may have it; what this one did is not recorded.
    LeaseLost,
}

#[derive(Serialize)]
struct IntentLine<'a> {
    id: &'a str,
    goal: &'a str,
    namespace: &'a str,
    attempt: u32,
    end: IntentEnd,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// The line of one intent, after the server has answered.
pub(super) fn ended(
    json: bool,
    claimed: &Claimed,
    verdict: &AttemptVerdict,
    elapsed: Duration,
) -> anyhow::Result<()> {
    let (end, error) = match verdict {
        AttemptVerdict::Succeeded(_) => (IntentEnd::Fulfilled, None),
        AttemptVerdict::Failed { error, .. } => (IntentEnd::Failed, Some(error.as_str())),
        AttemptVerdict::LeaseLost(why) => (IntentEnd::LeaseLost, Some(why.as_str())),
    };
    let seconds = (elapsed.as_secs_f64() * 1e3).round() / 1e3;
    if json {
        return out::json(&IntentLine {
            id: &claimed.id,
            goal: &claimed.goal,
            namespace: &claimed.namespace,
            attempt: claimed.claim_attempts,
            end,
            seconds,
            error,
        });
    }
    let what = match end {
        IntentEnd::Fulfilled => "fulfilled",
        IntentEnd::Failed => "failed",
        IntentEnd::LeaseLost => "lost",
    };
    let why = error.map(|error| format!(": {}", summary(error)));
    out::note(&format!(
        "{}  attempt {}  {what} after {seconds:.1} s{}",
        render::safe(&claimed.id),
        claimed.claim_attempts,
        why.unwrap_or_default()
    ));
    Ok(())
}

/// How the command ended, and its last line, which tells most.
fn summary(error: &str) -> String {
    let mut lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let how = first.split(';').next().unwrap_or(first);
    match lines.next_back() {
        Some(last) => render::summary(&format!("{how}: {last}"), SUMMARY_CHARS_MAX),
        None => render::summary(first, SUMMARY_CHARS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_summed_up_by_its_cause_and_its_last_line() {
        assert_eq!(
            summary("exit status 3\nTrace\n  x\nKeyError: 'a'\n"),
            "exit status 3: KeyError: 'a'"
        );
        assert_eq!(
            summary("exit status 3; the end of its standard error, which has 9 bytes:\nlast"),
            "exit status 3: last"
        );
        assert_eq!(
            summary("exit status 1; it wrote nothing to standard error"),
            "exit status 1; it wrote nothing to standard error"
        );
    }
}
