//! The intents and messages that an earlier start of this node, or an import, left open.

use std::time::Duration;

use consign_engine::{Error, MessageFilter, MessagesOf, SeqPage};
use consign_kernel::command::{Advance, Command, Recover};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{State, Verb};
use serde_json::json;

use super::RelayError;
use super::begin::LEASE_MARGIN_US;
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
            start: node.start.clone(),
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

    /// Fails the delivered intents of earlier starts whose timeout is over, and the others at their timeout unless a result
    /// arrives before. Their leases last a little longer, for the relay that waited.
    async fn recover_delivered(&self) -> Result<usize, Error> {
        let (mut after, mut failed, mut waiting) = (Seq(0), 0, Vec::new());
        loop {
            let (profile, state) = (ProfileId::BeamDirectory, State::Delivered);
            let engine = self.engine();
            let rows = engine
                .active_rows(profile, state, after, RECOVER_ROWS)
                .await?;
            let Some(last) = rows.last() else { break };
            after = last.seq;
            for row in rows {
                let Some(end) = self.end_of_earlier_wait(&row) else {
                    continue;
                };
                if end <= engine.now() {
                    self.time_out(&row, end, "timeout_after_restart").await?;
                    failed += 1;
                } else {
                    waiting.push((end, row));
                }
            }
        }
        waiting.sort_by_key(|(end, row)| (*end, row.seq));
        if !waiting.is_empty() {
            let beam = self.clone();
            tokio::spawn(async move { beam.time_out_in_turn(waiting).await });
        }
        Ok(failed)
    }

    /// When the result of a row was due for which an earlier start of this node waited.
    fn end_of_earlier_wait(&self, row: &Intent) -> Option<Micros> {
        let node = &self.inner.node;
        let holder = row.holder.as_deref()?;
        let is_earlier =
            holder.starts_with(&Recover::holder(&node.name, "")) && holder != self.holder();
        let end = row.lease_until?.minus(LEASE_MARGIN_US);
        is_earlier.then_some(end)
    }

    async fn time_out_in_turn(&self, waiting: Vec<(Micros, Intent)>) {
        for (end, row) in waiting {
            let left_us = end.0.saturating_sub(self.engine().now().0);
            let left = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
            tokio::time::sleep(left).await;
            if let Err(error) = self.time_out(&row, end, "timeout_without_waiter").await {
                tracing::warn!(%error, intent = %row.id, "an intent stays open until its lease ends");
            }
        }
    }

    async fn time_out(&self, row: &Intent, end: Micros, action: &str) -> Result<(), Error> {
        let waited_us = end.0 - row.claimed_at.unwrap_or(row.created_at).0;
        let ms = u64::try_from(waited_us / 1_000).unwrap_or(0);
        let mut details = json!({
            "transport": "recovery",
            "previousStatus": lifecycle::state_word(row.state),
            "recoveryAction": action,
            "timeoutMs": ms,
            "errorCode": "TIMEOUT",
        });
        if action == "timeout_after_restart" {
            details["recoveredOnBoot"] = json!(true);
        }
        match self
            .fail_delivered(row, &details, &RelayError::Timeout { ms })
            .await
        {
            Ok(()) => Ok(()),
            Err(error) => Err(Error::Internal(error.to_string())),
        }
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
