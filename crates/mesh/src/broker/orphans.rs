//! The check for ids whose message does not exist, and for deliveries of messages that do not exist.
//!
//! A commit of the ledger writes the id, the message and the deliveries, and its removal is noted with the id in one commit
//! too. So only an edit by hand, or a defect, leaves what this check finds.
//! Invariant: a repair only marks an id as without history. It never makes a record from a message.

use std::collections::BTreeMap;

use consign_engine::Operator;
use consign_kernel::command::Forget;

use super::counters::BrokerMetric;
use super::{Broker, BrokerError};

/// Ids per read.
const PAGE_IDS: u32 = 500;
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
        self.counters().count(BrokerMetric::ORPHAN_CHECKS, &[]);
        for (mesh, found) in by_mesh {
            tracing::error!(mesh_id = %mesh, found, "cm_broker_dedupe_orphan_found: ids without a message");
            self.counters().add(BrokerMetric::ORPHANS, &[&mesh], found);
        }
        Ok(report)
    }
}
