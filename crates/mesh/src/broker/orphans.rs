//! The check for ids whose message does not exist, and for deliveries of messages that do not exist.
//!
//! A commit of the ledger writes the id, the message and the deliveries, and its removal is noted with the id in one commit
//! too. So only an edit by hand, or a defect, leaves what this check finds.
//! Invariant: a repair only marks an id as without history. It never makes a record from a message.

use std::collections::{BTreeMap, BTreeSet};

use consign_engine::{IntentFilter, Operator};
use consign_kernel::command::Forget;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State;

use super::counters::BrokerMetric;
use super::{Broker, BrokerError};
use crate::priority::MeshPriority;

/// Ids per read.
const PAGE_IDS: u32 = 500;
/// A delivery and its message end at the same time, and are removed one after the other.
const ENDS_SOON_US: i64 = 3_600 * SECOND_US;
/// More orphans are counted, and not listed.
const LISTED_MAX: usize = 1_000;

/// An id without its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedId {
    pub mesh_id: String,
    pub client_message_id: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanReport {
    /// How many ids were examined.
    pub checked: u64,
    /// How many of them have lost their message.
    pub found: u64,
    /// The first of them.
    pub orphans: Vec<OrphanedId>,
    /// How many were marked as without history.
    pub repaired: u64,
    /// Waiting deliveries of messages that do not exist.
    pub deliveries_without_message: u64,
}

impl Broker {
    /// Examines all ids. With `repair` those that have lost their message are marked as without history.
    pub async fn check_orphans(
        &self,
        operator: Operator,
        repair: bool,
    ) -> Result<OrphanReport, BrokerError> {
        let mut report = OrphanReport::default();
        let mut by_mesh: BTreeMap<String, i64> = BTreeMap::new();
        let mut after = (String::new(), String::new());
        loop {
            let engine = self.engine();
            let page = engine.lost_messages(operator, after, PAGE_IDS).await?;
            report.checked += page.checked;
            report.found += page.lost.len() as u64;
            for key in &page.lost {
                *by_mesh.entry(key.owner.clone()).or_default() += 1;
                if report.orphans.len() < LISTED_MAX {
                    report.orphans.push(OrphanedId {
                        mesh_id: key.owner.clone(),
                        client_message_id: key.key.clone(),
                    });
                }
            }
            if repair && !page.lost.is_empty() {
                let keys = page.lost;
                let forget = Forget::LostMessages { keys };
                report.repaired += engine.forget_piece(forget).await?;
            }
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        let lost = self.deliveries_without_message(operator).await?;
        report.deliveries_without_message = lost;
        if lost > 0 {
            tracing::error!(
                deliveries = lost,
                "cm_broker_atomicity_violation_found: deliveries of messages that do not exist"
            );
            let by = i64::try_from(lost).unwrap_or(i64::MAX);
            self.counters()
                .add(BrokerMetric::ATOMICITY_VIOLATIONS, &[], by);
        }
        self.counters().count(BrokerMetric::ORPHAN_CHECKS, &[]);
        for (mesh, found) in by_mesh {
            tracing::error!(mesh_id = %mesh, found, "cm_broker_dedupe_orphan_found: ids without a message");
            self.counters().add(BrokerMetric::ORPHANS, &[&mesh], found);
        }
        Ok(report)
    }

    /// Waiting deliveries whose message does not exist, except those that end soon: theirs may have ended just now.
    async fn deliveries_without_message(&self, operator: Operator) -> Result<u64, BrokerError> {
        let mut lost = 0;
        for mesh in self.meshes(operator).await? {
            // The goal of a delivery is its priority.
            for priority in MeshPriority::ALL {
                let mut filter = IntentFilter {
                    face: Face::Mesh,
                    owner: None,
                    namespace: Some(mesh.id.clone()),
                    goal: Some(priority.as_str().to_owned()),
                    state: Some(State::Queued),
                    before: None,
                    limit: PAGE_IDS,
                };
                loop {
                    let page = self.engine().intents(filter.clone()).await?;
                    lost += self.without_message(&page.intents).await?;
                    match page.next {
                        Some(next) => filter.before = Some(next),
                        None => break,
                    }
                }
            }
        }
        Ok(lost)
    }

    async fn without_message(&self, deliveries: &[Intent]) -> Result<u64, BrokerError> {
        let engine = self.engine();
        let soon = engine.now().plus(ENDS_SOON_US);
        let waiting = deliveries.iter().filter(|row| row.expires_at > soon);
        let parents: Vec<IntentId> = waiting.filter_map(|row| row.ties.parent).collect();
        let wanted: BTreeSet<[u8; 16]> = parents.iter().map(|id| id.0).collect();
        let ids = wanted.into_iter().map(IntentId).collect();
        let found = engine.intents_by_id(ids).await?;
        let found: BTreeSet<[u8; 16]> = found.iter().map(|row| row.id.0).collect();
        let lost = parents.iter().filter(|id| !found.contains(&id.0));
        Ok(lost.count() as u64)
    }
}
