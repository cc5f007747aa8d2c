//! How an agent answers its intents, by the clock of this server. Payloads and results are not read: anyone may ask.

use consign_engine::{IntentFilter, Outline};
use consign_kernel::profile::Face;
use consign_kernel::state::State;

use crate::problem::BeamProblem;
use crate::relay::{NAMESPACE, relay_code};
use crate::retryable::repeated_nonce_restarts;
use crate::service::Beam;

/// How many of the newest intents count.
const ROWS_MAX: u32 = 500;

/// Counts of the newest intents to an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerStats {
    pub(crate) received: u64,
    /// Those with a result of the recipient.
    pub(crate) responded: u64,
    pub(crate) avg_response_time_ms: Option<i64>,
}

impl Beam {
    /// Without a recipient, of all intents.
    pub(crate) async fn answer_stats(
        &self,
        recipient: Option<&str>,
    ) -> Result<AnswerStats, BeamProblem> {
        let filter = IntentFilter {
            face: Face::Beam,
            owner: recipient.map(str::to_owned),
            namespace: Some(NAMESPACE.to_owned()),
            goal: None,
            state: None,
            before: None,
            limit: ROWS_MAX,
        };
        let page = self.engine().outlines(filter).await?;
        Ok(stats_of(page.outlines.iter().map(response_time_ms)))
    }
}

/// The time from the admission of an intent to its result. `None` without a result of the recipient.
fn response_time_ms(outline: &Outline) -> Option<i64> {
    let is_answered = match outline.state {
        State::Acked => true,
        State::Failed => {
            let code = outline.last_error.as_deref().map(relay_code);
            code.is_some() && !repeated_nonce_restarts(code)
        }
        State::Received
        | State::Validated
        | State::Queued
        | State::Dispatched
        | State::Delivered
        | State::DeadLetter => false,
    };
    let settled = outline.settled_at.filter(|_| is_answered)?;
    Some((settled.0 - outline.created_at.0).max(0) / 1_000)
}

/// The latencies of intents; one without a result has none.
fn stats_of(latencies: impl Iterator<Item = Option<i64>>) -> AnswerStats {
    let (mut received, mut responded, mut sum_ms) = (0, 0, 0_i128);
    for latency in latencies {
        received += 1;
        if let Some(ms) = latency {
            responded += 1;
            sum_ms += i128::from(ms);
        }
    }
    let average = (responded > 0).then(|| sum_ms / i128::from(responded));
    AnswerStats {
        received,
        responded,
        avg_response_time_ms: average.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intents_without_a_result_do_not_change_the_average() {
        let stats = stats_of([Some(10), None, Some(30), None].into_iter());
        let expected = AnswerStats {
            received: 4,
            responded: 2,
            avg_response_time_ms: Some(20),
        };
        assert_eq!(stats, expected);
        assert_eq!(stats_of([None].into_iter()).avg_response_time_ms, None);
        let extreme = stats_of([Some(i64::MAX), Some(i64::MAX)].into_iter());
        assert_eq!(extreme.avg_response_time_ms, Some(i64::MAX));
    }
}
