//! The removal of messages of test agents, which a setting requests for each start.

use consign_engine::{Error, MessageFilter, MessagesOf, SeqPage};
use consign_kernel::command::{Command, Operate};
use consign_kernel::error::Refusal;
use consign_kernel::ids::Seq;
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};

use crate::service::Beam;

/// Rows of one commit.
const PIECE_ROWS: u32 = 500;

impl Beam {
    /// Removes the messages from and to agents of the organisations `test` and `demo`, if the settings say so. Their nonces
    /// stay used until they expire. Returns how many were removed.
    pub async fn remove_test_messages(&self) -> Result<usize, Error> {
        if !self.settings().bus.clean_test_data {
            return Ok(0);
        }
        let (mut after, mut removed) = (Seq(0), 0);
        loop {
            let filter = MessageFilter {
                profile: ProfileId::BeamBus,
                of: MessagesOf::All,
                page: SeqPage::After(after),
                limit: PIECE_ROWS,
            };
            let rows = self.engine().messages(filter).await?;
            let Some(last) = rows.last() else {
                return Ok(removed);
            };
            after = last.seq;
            let steps = rows.iter().filter(|row| is_of_test(row)).map(removal);
            for answer in self.engine().execute(None, steps.collect()).await? {
                match answer {
                    Ok(_) => removed += 1,
                    // Another node attempts it, or has removed it.
                    Err(Refusal::Held | Refusal::NotFound) => {}
                    Err(refusal) => return Err(Error::Refused(refusal)),
                }
            }
        }
    }
}

fn is_of_test(row: &Intent) -> bool {
    let sender = row.ties.sender.as_deref().unwrap_or_default();
    [sender, &row.owner].iter().any(|agent| {
        ["@test.", "@demo."]
            .iter()
            .any(|organisation| agent.contains(organisation))
    })
}

fn removal(row: &Intent) -> Command {
    Command::Remove(Operate {
        id: row.id,
        face: Face::Beam,
        reason: "test data".to_owned(),
    })
}
