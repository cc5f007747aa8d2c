//! Messages that were received and never dispatched: an import leaves them, and the next start queues them.

use consign_engine::Error;
use consign_kernel::command::{Advance, Command};
use consign_kernel::error::Refusal;
use consign_kernel::ids::Seq;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{State, Verb};

use super::message::RECOVERED;
use crate::service::Beam;

/// Rows of one read.
const PAGE_ROWS: u32 = 100;

impl Beam {
    /// Queues received messages, due now. Messages of this version are dispatched by the commit that stores them, so none of
    /// these is being sent.
    pub(crate) async fn recover_received(&self) -> Result<usize, Error> {
        let mut recovered = 0;
        let mut after = Seq(0);
        loop {
            let read =
                self.engine()
                    .active_rows(ProfileId::BeamBus, State::Received, after, PAGE_ROWS);
            let rows = read.await?;
            let Some(last) = rows.last() else {
                return Ok(recovered);
            };
            after = last.seq;
            for row in &rows {
                let mut step = Advance::by_system(row.id, Face::Beam, Verb::Recover);
                step.error = Some(RECOVERED.to_owned());
                let step = Command::Advance(Box::new(step));
                match self.engine().apply(None, step).await {
                    Ok(_) => recovered += 1,
                    // Another node was faster.
                    Err(Error::Refused(Refusal::IllegalState | Refusal::NotFound)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
