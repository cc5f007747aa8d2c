//! The model's transaction: every search looks at every row.

use consign_kernel::command::Forget;
use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::{Lanes, Probe};
use consign_kernel::once;
use consign_kernel::profile::Face;
use consign_kernel::record::{self, Record};

use super::{Data, Done};
use crate::ledger::{Counter, Tx};

impl Tx for Data {
    fn intent(&mut self, id: IntentId) -> Done<Option<Intent>> {
        Ok(self
            .ids
            .get(&id)
            .and_then(|seq| self.intents.get(seq))
            .cloned())
    }

    fn pick(&mut self, probes: &[Probe], limit: u32) -> Done<Vec<Intent>> {
        let offered = |lanes: &Lanes| {
            probes
                .iter()
                .any(|probe| lanes.get(probe.column) == Some(probe.lane))
        };
        let mut rows: Vec<&Intent> = self
            .lanes
            .iter()
            .filter(|(_, lanes)| offered(lanes))
            .map(|(seq, _)| &self.intents[seq])
            .collect();
        rows.sort_by_key(|row| (-i64::from(row.priority), row.run_at, row.attempts, row.seq));
        Ok(rows.into_iter().take(limit as usize).cloned().collect())
    }

    fn due(
        &mut self,
        shelf: Shelf,
        face: Option<Face>,
        until: Micros,
        limit: u32,
    ) -> Done<Vec<Intent>> {
        let due = |row: &&Intent| {
            row.shelf == shelf
                && row.wake_at <= until
                && face.is_none_or(|face| row.profile.profile().face == face)
        };
        let mut rows: Vec<&Intent> = self.intents.values().filter(due).collect();
        rows.sort_by_key(|row| (row.wake_at, row.seq));
        Ok(rows.into_iter().take(limit as usize).cloned().collect())
    }

    fn rows(
        &mut self,
        face: Face,
        namespace: Option<&str>,
        after: Seq,
        limit: u32,
    ) -> Done<Vec<Intent>> {
        let wanted = |row: &&Intent| {
            row.seq > after
                && row.profile.profile().face == face
                && namespace.is_none_or(|namespace| row.namespace == namespace)
        };
        Ok(self
            .intents
            .values()
            .filter(wanted)
            .take(limit as usize)
            .cloned()
            .collect())
    }

    fn once(&mut self, key: &once::Key) -> Done<Option<once::Row>> {
        Ok(self.once.get(key).cloned())
    }

    fn record(&mut self, key: &record::Key) -> Done<Option<Record>> {
        Ok(self.records.get(key).cloned())
    }

    fn count(&mut self, counter: &Counter) -> Done<i64> {
        Ok(self.counts.get(counter).copied().unwrap_or(0))
    }

    fn insert(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> Done<()> {
        self.ids.insert(intent.id, intent.seq);
        self.update(intent, lanes)
    }

    fn update(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> Done<()> {
        self.intents.insert(intent.seq, intent.clone());
        match lanes {
            Some(lanes) => self.lanes.insert(intent.seq, *lanes),
            None => self.lanes.remove(&intent.seq),
        };
        Ok(())
    }

    fn remove(&mut self, seq: Seq) -> Done<()> {
        if let Some(intent) = self.intents.remove(&seq) {
            self.ids.remove(&intent.id);
        }
        self.lanes.remove(&seq);
        Ok(())
    }

    fn append(&mut self, fact: Fact) -> Done<()> {
        self.facts.insert(fact.seq, fact);
        Ok(())
    }

    fn put_once(&mut self, row: once::Row) -> Done<()> {
        self.once.insert(row.key.clone(), row);
        Ok(())
    }

    fn put_record(&mut self, record: Record) -> Done<()> {
        self.records.insert(record.key.clone(), record);
        Ok(())
    }

    fn delete_record(&mut self, key: &record::Key) -> Done<()> {
        self.records.remove(key);
        Ok(())
    }

    fn add(&mut self, counter: &Counter, delta: i64) -> Done<()> {
        *self.counts.entry(counter.clone()).or_default() += delta;
        Ok(())
    }

    fn forget(&mut self, forget: &Forget, now: Micros) -> Done<u64> {
        match forget {
            Forget::Once { scope, limit } => {
                let mut over: Vec<(Micros, once::Key)> = self
                    .once
                    .values()
                    .filter(|row| row.key.scope == *scope && row.until <= now)
                    .map(|row| (row.until, row.key.clone()))
                    .collect();
                over.sort();
                over.truncate(*limit as usize);
                Ok(over
                    .iter()
                    .filter(|(_, key)| self.once.remove(key).is_some())
                    .count() as u64)
            }
            Forget::OnceOf { owner } => {
                Ok(drop_where(&mut self.once, |key, _| key.owner == *owner))
            }
            Forget::OnceOfFace { face } => Ok(drop_where(&mut self.once, |key, _| {
                key.scope.face() == *face
            })),
            Forget::Records { kind, limit } => {
                let mut over: Vec<(Micros, record::Key)> = self
                    .records
                    .values()
                    .filter(|record| record.key.kind == *kind)
                    .filter_map(|record| {
                        Some((
                            record.expires_at.filter(|until| *until <= now)?,
                            record.key.clone(),
                        ))
                    })
                    .collect();
                over.sort();
                over.truncate(*limit as usize);
                Ok(over
                    .iter()
                    .filter(|(_, key)| self.records.remove(key).is_some())
                    .count() as u64)
            }
            Forget::AllRecords { kind } => {
                Ok(drop_where(&mut self.records, |key, _| key.kind == *kind))
            }
            Forget::Facts {
                face,
                before,
                limit,
            } => {
                let over: Vec<FactSeq> = self
                    .facts
                    .values()
                    .filter(|fact| fact.face == *face)
                    .take(*limit as usize)
                    .filter(|fact| fact.at < *before)
                    .map(|fact| fact.seq)
                    .collect();
                Ok(over
                    .iter()
                    .filter(|seq| self.facts.remove(seq).is_some())
                    .count() as u64)
            }
        }
    }
}

fn drop_where<K: Ord, V>(
    map: &mut std::collections::BTreeMap<K, V>,
    mut over: impl FnMut(&K, &V) -> bool,
) -> u64 {
    let before = map.len();
    map.retain(|key, value| !over(key, value));
    (before - map.len()) as u64
}
