//! Reads of stored intents.

use consign_engine::{Error, MessageFilter, MessagesOf, SeqPage};
use consign_kernel::profile::ProfileId;

use crate::http::IntentReader;
use crate::relay::IntentRow;
use crate::service::Beam;

impl Beam {
    /// The newest intents that the reader may see.
    pub(crate) async fn recent_intents(
        &self,
        reader: &IntentReader,
        limit: u32,
    ) -> Result<Vec<IntentRow>, Error> {
        let of = match reader {
            IntentReader::All => vec![MessagesOf::All],
            IntentReader::Only(agent) => vec![
                MessagesOf::Sender(agent.beam_id.clone()),
                MessagesOf::Recipient(agent.beam_id.clone()),
            ],
        };
        let mut rows = Vec::new();
        for of in of {
            let filter = MessageFilter {
                profile: ProfileId::BeamDirectory,
                of,
                page: SeqPage::NEWEST,
                limit,
            };
            rows.extend(self.engine().messages(filter).await?);
        }
        if let IntentReader::Only(agent) = reader {
            rows.retain(|row| !self.is_before(row, agent.since_us));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.seq));
        rows.dedup_by_key(|row| row.seq);
        rows.truncate(limit as usize);
        Ok(rows.iter().filter_map(IntentRow::of).collect())
    }
}
