//! How an agent answers its intents.

use consign_engine::{MessageFilter, MessagesOf, SeqPage};
use consign_kernel::profile::ProfileId;

use crate::problem::BeamProblem;
use crate::relay::IntentRow;
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
        let of = recipient.map_or(MessagesOf::All, |id| MessagesOf::Recipient(id.to_owned()));
        let filter = MessageFilter {
            profile: ProfileId::BeamDirectory,
            of,
            page: SeqPage::NEWEST,
            limit: ROWS_MAX,
        };
        let rows = self.engine().messages(filter).await?;
        let rows = rows.iter().filter_map(IntentRow::of);
        Ok(stats_of(rows.map(|row| row.latency_ms)))
    }
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
