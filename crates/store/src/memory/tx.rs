//! The model's transaction: every search reads every row.

use consign_kernel::command::{Forget, ForgetFacts};
use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Series, Shelf};
use consign_kernel::lane::{Lanes, Probe};
use consign_kernel::once;
use consign_kernel::profile::Face;
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

use super::{ModelData, ModelResult};
use crate::ledger::{Counter, Tx, UNCONSENTED};

impl Tx for ModelData {
    fn intent(&mut self, id: IntentId) -> ModelResult<Option<Intent>> {
        Ok(self
            .ids
            .get(&id)
            .and_then(|seq| self.intents.get(seq))
            .cloned())
    }

    fn pick(&mut self, probes: &[Probe], limit: u32) -> ModelResult<Vec<Intent>> {
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
    ) -> ModelResult<Vec<Intent>> {
        let due = |row: &&Intent| {
            row.shelf == shelf
                && row.wake_at <= until
                && face.is_none_or(|face| row.profile.profile().face == face)
        };
        let mut rows: Vec<&Intent> = self.intents.values().filter(due).collect();
        rows.sort_by_key(|row| (row.wake_at, row.seq));
        Ok(rows.into_iter().take(limit as usize).cloned().collect())
    }

    fn stop(&mut self, after: Seq, limit: u32) -> ModelResult<Option<Seq>> {
        let mut next = self.intents.keys().filter(|seq| **seq > after);
        Ok(next.nth(limit.saturating_sub(1) as usize).copied())
    }

    fn rows(
        &mut self,
        face: Face,
        namespace: Option<&str>,
        after: Seq,
        until: Seq,
    ) -> ModelResult<Vec<Intent>> {
        let wanted = |row: &&Intent| {
            (row.seq > after && row.seq <= until)
                && row.profile.profile().face == face
                && namespace.is_none_or(|namespace| row.namespace == namespace)
        };
        Ok(self.intents.values().filter(wanted).cloned().collect())
    }

    fn once(&mut self, key: &once::OnceKey) -> ModelResult<Option<once::FirstUse>> {
        Ok(self.once.get(key).cloned())
    }

    fn record(&mut self, key: &record::Key) -> ModelResult<Option<Record>> {
        Ok(self.records.get(key).cloned())
    }

    fn series(&mut self, name: &str, now: Micros) -> ModelResult<Series> {
        let own = || {
            let rows = self.intents.values();
            rows.filter(|row| row.ties.series.as_deref() == Some(name))
        };
        let set_back = |row: &&Intent| row.shelf == Shelf::Delayed && row.run_at <= now;
        let waiting = || own().filter(|row| row.state == State::Queued);
        Ok(Series {
            held: own()
                .filter(|row| row.state == State::Dispatched)
                .max_by_key(|row| row.lease_until)
                .cloned(),
            waiting: waiting().next().cloned(),
            behind: waiting().find(set_back).cloned(),
            completed: own()
                .filter(|row| row.state == State::Acked)
                .max_by_key(|row| (row.settled_at, row.seq))
                .cloned(),
        })
    }

    fn count(&mut self, counter: &Counter) -> ModelResult<i64> {
        Ok(self.counts.get(counter).copied().unwrap_or(0))
    }

    fn insert(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> ModelResult<()> {
        self.ids.insert(intent.id, intent.seq);
        self.update(intent, lanes)
    }

    fn update(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> ModelResult<()> {
        self.intents.insert(intent.seq, intent.clone());
        match lanes {
            Some(lanes) => self.lanes.insert(intent.seq, *lanes),
            None => self.lanes.remove(&intent.seq),
        };
        Ok(())
    }

    fn remove(&mut self, seq: Seq) -> ModelResult<()> {
        if let Some(intent) = self.intents.remove(&seq) {
            self.ids.remove(&intent.id);
        }
        self.lanes.remove(&seq);
        Ok(())
    }

    fn append(&mut self, fact: Fact) -> ModelResult<()> {
        self.facts.insert(fact.seq, fact);
        Ok(())
    }

    fn remove_facts(&mut self, _owner: &str, last: FactSeq) -> ModelResult<()> {
        let mut next = Some(last);
        while let Some(fact) = next.and_then(|seq| self.facts.remove(&seq)) {
            next = fact.previous;
        }
        Ok(())
    }

    fn put_once(&mut self, row: once::FirstUse) -> ModelResult<()> {
        self.once.insert(row.key.clone(), row);
        Ok(())
    }

    fn message_gone(&mut self, key: &once::OnceKey, message: IntentId) -> ModelResult<()> {
        if let Some(row) = self.once.get_mut(key)
            && row.intent == Some(message)
        {
            row.forget_history();
        }
        Ok(())
    }

    fn put_record(&mut self, record: Record) -> ModelResult<()> {
        self.records.insert(record.key.clone(), record);
        Ok(())
    }

    fn delete_record(&mut self, key: &record::Key) -> ModelResult<()> {
        self.records.remove(key);
        Ok(())
    }

    fn add(&mut self, counter: &Counter, delta: i64) -> ModelResult<()> {
        let count = self.counts.entry(counter.clone()).or_default();
        *count += delta;
        if *count == 0 && counter.key().0 >= UNCONSENTED {
            self.counts.remove(counter);
        }
        Ok(())
    }

    fn forget(&mut self, forget: &Forget, now: Micros) -> ModelResult<u64> {
        match forget {
            Forget::Once { scope, limit } => Ok(self.forget_over(*scope, now, *limit)),
            Forget::OnceEnding {
                scope,
                ahead_us,
                limit,
            } => Ok(self.forget_over(*scope, now.plus(*ahead_us), *limit)),
            Forget::LostMessages { keys } => {
                let mut lost = 0;
                for key in keys {
                    let row = self.once.get(key);
                    if row.is_some_and(|row| self.has_lost_message(row)) {
                        lost += 1;
                        self.once.get_mut(key).map(once::FirstUse::forget_history);
                    }
                }
                Ok(lost)
            }
            Forget::OnceOf { owner } => {
                let all = u32::MAX;
                Ok(drop_where(&mut self.once, all, |key| key.owner == *owner))
            }
            Forget::OnceOfFace { face, limit } => Ok(drop_where(&mut self.once, *limit, |key| {
                once::Scope::purged(*face).any(|scope| scope == key.scope)
            })),
            Forget::Records {
                kind,
                ahead_us,
                limit,
            } => {
                let over_by = now.plus(*ahead_us);
                let mut over: Vec<(Micros, record::Key)> = self
                    .records
                    .values()
                    .filter(|record| record.key.kind == *kind)
                    .filter_map(|record| {
                        Some((
                            record.expires_at.filter(|until| *until <= over_by)?,
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
            Forget::AllRecords { kind, limit } => {
                Ok(drop_where(&mut self.records, *limit, |key| {
                    key.kind == *kind
                }))
            }
        }
    }

    fn forget_facts(&mut self, forget: &ForgetFacts) -> ModelResult<(u64, Option<FactSeq>)> {
        let next = self
            .facts
            .values()
            .filter(|fact| fact.seq > forget.after)
            .take(forget.limit as usize);
        let old: Vec<(FactSeq, Face)> = next
            .filter(|fact| fact.at < forget.before)
            .map(|fact| (fact.seq, fact.face))
            .collect();
        let all_old = old.len() == forget.limit as usize;
        let last = old.last().map(|(seq, _)| *seq).filter(|_| all_old);
        let rows = old
            .into_iter()
            .filter(|(seq, face)| *face == forget.face && self.facts.remove(seq).is_some())
            .count();
        Ok((rows as u64, last))
    }
}

impl ModelData {
    fn forget_over(&mut self, scope: once::Scope, until: Micros, limit: u32) -> u64 {
        let mut over: Vec<(Micros, once::OnceKey)> = self
            .once
            .values()
            .filter(|row| row.key.scope == scope && row.until <= until)
            .map(|row| (row.until, row.key.clone()))
            .collect();
        over.sort();
        over.truncate(limit as usize);
        let removed = over
            .iter()
            .filter(|(_, key)| self.once.remove(key).is_some());
        removed.count() as u64
    }
}

/// Removes the first entries that match, at most so many.
fn drop_where<K: Ord, V>(
    map: &mut std::collections::BTreeMap<K, V>,
    limit: u32,
    over: impl Fn(&K) -> bool,
) -> u64 {
    let before = map.len();
    let mut room = limit as usize;
    map.retain(|key, _| {
        let drop = room > 0 && over(key);
        room -= usize::from(drop);
        !drop
    });
    (before - map.len()) as u64
}
