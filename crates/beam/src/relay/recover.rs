//! The intents and messages that an earlier start of this node, or an import, left open.

use consign_engine::{Error, MessageFilter, MessagesOf, SeqPage};
use consign_kernel::command::{Advance, Command, Recover};
use consign_kernel::error::Refusal;
use consign_kernel::ids::Seq;
use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{State, Verb};
use serde_json::json;

use crate::bus::RECOVERED;
use crate::import::imported_leases;
use crate::lifecycle;
use crate::service::Beam;

/// Rows of one commit of the recovery.
const RECOVER_ROWS: u32 = 500;
/// Leases that are examined for those of an import, of any holder.
const IMPORTED_ROWS: u32 = 5_000;

/// Rows without a lease that only an import leaves: this version stores an intent or a message together with its dispatch. An
/// intent that is queued for another node is due, so it is not among the active rows.
const INTERRUPTED: [(ProfileId, State); 5] = [
    (ProfileId::BeamDirectory, State::Received),
    (ProfileId::BeamDirectory, State::Validated),
    (ProfileId::BeamDirectory, State::Queued),
    (ProfileId::BeamBus, State::Received),
    (ProfileId::BeamBus, State::Validated),
];

impl Beam {
    /// Fails intents that were not delivered, and queues messages of the bus again. A delivered intent stays open until its
    /// timeout; a late result may still end it.
    pub async fn recover(&self) -> Result<usize, Error> {
        let node = &self.inner.node;
        let recover = Recover {
            face: Face::Beam,
            node: node.name.clone(),
            start: self.inner.node.start_of_holder(),
            limit: RECOVER_ROWS,
        };
        let mut recovered = self.engine().recover(&recover).await?.len();
        let imported = imported_leases(IMPORTED_ROWS);
        recovered += self.engine().recover(&imported).await?.len();
        for (profile, state) in INTERRUPTED {
            recovered += self.recover_interrupted(profile, state).await?;
        }
        if plant::on(Plant::RecoveryFailsDelivered) {
            let verb = Verb::Fail;
            self.end_delivered(ProfileId::BeamDirectory, verb).await?;
        }
        if plant::on(Plant::RecoveryRequeuesDelivered) {
            self.end_delivered(ProfileId::BeamBus, Verb::Retry).await?;
        }
        Ok(recovered + self.recover_delivered().await?)
    }

    /// Fails the delivered intents of earlier starts whose timeout is over. The sweep fails the others at their timeout unless a
    /// result arrives before. Their leases last a little longer, for the relay that waited.
    async fn recover_delivered(&self) -> Result<usize, Error> {
        let (mut after, mut failed) = (Seq(0), 0);
        loop {
            let (profile, state) = (ProfileId::BeamDirectory, State::Delivered);
            let engine = self.engine();
            let rows = engine
                .active_rows(profile, state, after, RECOVER_ROWS)
                .await?;
            let Some(last) = rows.last() else {
                return Ok(failed);
            };
            after = last.seq;
            for row in rows.iter().filter(|row| self.is_of_earlier_start(row)) {
                let Some(end) = self.end_of_wait(row).await? else {
                    continue;
                };
                if end.at <= engine.now() {
                    let action = "timeout_after_restart";
                    self.time_out(row, end.timeout_ms, action).await?;
                    failed += 1;
                } else {
                    self.leave_to_sweep(row, end);
                }
            }
        }
    }

    /// Whether an earlier start of this node holds the row.
    fn is_of_earlier_start(&self, row: &Intent) -> bool {
        let own = Recover::holder(&self.inner.node.name, "");
        let holder = row.holder.as_deref().unwrap_or_default();
        holder.starts_with(&own) && holder != self.holder()
    }

    /// A planted defect: delivered rows do not stay as they are.
    async fn end_delivered(&self, profile: ProfileId, verb: Verb) -> Result<(), Error> {
        let engine = self.engine();
        // Messages that wait for an acknowledgement can be claimed, so they are not among the active rows.
        let filter = MessageFilter {
            profile,
            of: MessagesOf::All,
            page: SeqPage::NEWEST,
            limit: RECOVER_ROWS,
        };
        let rows = engine.messages(filter).await?.into_iter();
        for row in rows.filter(|row| row.state == State::Delivered) {
            let mut step = Advance::by_system(row.id, Face::Beam, verb);
            step.error = Some("DELIVERY_FAILED".to_owned());
            let _ = engine.apply(None, Command::Advance(Box::new(step))).await;
        }
        Ok(())
    }

    async fn recover_interrupted(&self, profile: ProfileId, state: State) -> Result<usize, Error> {
        let (mut after, mut recovered) = (Seq(0), 0);
        loop {
            let rows = self
                .engine()
                .active_rows(profile, state, after, RECOVER_ROWS)
                .await?;
            let Some(last) = rows.last() else {
                return Ok(recovered);
            };
            after = last.seq;
            let steps = rows.iter().filter(|row| row.lease_until.is_none());
            let steps: Vec<Command> = steps.map(recovery).collect();
            for answer in self.engine().execute(None, steps).await? {
                match answer {
                    Ok(_) => recovered += 1,
                    // Another node was faster.
                    Err(Refusal::IllegalState | Refusal::NotFound) => {}
                    Err(refusal) => return Err(Error::Refused(refusal)),
                }
            }
        }
    }
}

fn recovery(row: &Intent) -> Command {
    let mut step = Advance::by_system(row.id, Face::Beam, Verb::Recover);
    if row.profile == ProfileId::BeamBus {
        step.error = Some(RECOVERED.to_owned());
    } else {
        step.error = Some("DELIVERY_FAILED".to_owned());
        let details = json!({
            "transport": "recovery",
            "previousStatus": lifecycle::state_word(row.state),
            "recoveryAction": "fail_interrupted_intent",
            "recoveredOnBoot": true,
            "errorCode": "DELIVERY_FAILED",
        });
        step.detail = Some(details.to_string());
    }
    Command::Advance(Box::new(step))
}
