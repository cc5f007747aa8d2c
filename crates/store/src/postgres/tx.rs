//! The writer's transaction: commands work on the working set, which is written at the end.
//!
//! Invariant: a search that the working set cannot answer first writes the pending changes, so that the database has the
//! same state as the commands before it saw.

use std::collections::HashMap;

use consign_kernel::command::{Forget, ForgetFacts};
use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Series, Shelf};
use consign_kernel::lane::{Lanes, Probe};
use consign_kernel::limits;
use consign_kernel::once;
use consign_kernel::profile::Face;
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;
use tokio_postgres::types::ToSql;

use super::dedupe;
use super::flush::{DecidedWrites, EncodedWrites};
use super::load::{self, BLOCK, LockTimeout, Prefetch};
use super::rows::{self, intent_columns, signed, stored};
use super::session::Session;
use super::wire::{BoundStatement, Row, StatementResult};
use super::working_set::{ClaimRank, PendingWrite, WorkingSet};
use crate::Error;
use crate::ledger::{Counter, Position, Tx, profiles_of};

/// A value under a key, as this transaction sees it.
#[derive(Debug)]
struct KeyedEntry<T> {
    now: Option<T>,
    /// Whether the database has a row; if so, it is locked.
    stored: bool,
    changed: bool,
}

pub(super) struct PostgresTx<'a> {
    session: &'a mut Session,
    node: i64,
    shard: i16,
    working_set: WorkingSet,
    once: HashMap<once::OnceKey, KeyedEntry<once::FirstUse>>,
    records: HashMap<record::Key, KeyedEntry<Record>>,
    facts: Vec<Fact>,
    /// The last facts of rows that are removed together with their facts.
    facts_gone: Vec<FactSeq>,
    last_fact: FactSeq,
    counts: Vec<(Counter, i64)>,
    /// Messages that are removed, and the keys that remain of them.
    messages_gone: Vec<(once::OnceKey, IntentId)>,
}

impl<'a> PostgresTx<'a> {
    /// Begins a transaction and loads the prefetch. Its numbers come from blocks of its own.
    pub(super) fn begin(
        session: &'a mut Session,
        node: i64,
        shard: i16,
        prefetch: &Prefetch<'_>,
        lock_timeout: LockTimeout,
        position: &mut Position,
    ) -> Result<Self, Error> {
        let found = load::load(session, prefetch, lock_timeout)?;
        let mut open = Self {
            session,
            node,
            shard,
            working_set: WorkingSet::default(),
            once: HashMap::new(),
            records: HashMap::new(),
            facts: Vec::new(),
            facts_gone: Vec::new(),
            last_fact: FactSeq(0),
            counts: Vec::new(),
            messages_gone: Vec::new(),
        };
        let blocks = found.blocks.first().ok_or(Error::Closed)?;
        position.seq = rows::unsigned(blocks, 1)? * BLOCK;
        position.fact = rows::unsigned(blocks, 2)? * BLOCK;
        open.take_records(&found.records)?;
        open.take_once(&found.once)?;
        open.take_messages(&found.messages)?;
        for intent in found.named {
            open.working_set.load(intent);
        }
        for id in &prefetch.ids {
            open.working_set.mark_absent(*id);
        }
        for key in &prefetch.records {
            open.records
                .entry(key.clone())
                .or_insert_with(KeyedEntry::none);
        }
        for key in &prefetch.once {
            open.once
                .entry(key.clone())
                .or_insert_with(KeyedEntry::none);
        }
        let whole = found.due.len() < limits::SWEEP_ROWS_MAX as usize;
        for intent in found.due {
            open.working_set.load(intent);
        }
        for (shelf, until) in prefetch.shelves.iter().filter(|_| whole) {
            open.working_set.mark_searched(*shelf, *until);
        }
        let mut lanes = found.lanes;
        for (probe, wanted) in &prefetch.lanes {
            let intents = lanes.remove(probe).unwrap_or_default();
            let whole = intents.len() < *wanted as usize;
            open.working_set.load_lane(*probe, intents, whole);
        }
        Ok(open)
    }

    fn take_records(&mut self, found: &[Row]) -> Result<(), Error> {
        for row in found {
            let record = rows::record(row)?;
            let key = record.key.clone();
            self.records.insert(key, KeyedEntry::found(record));
        }
        Ok(())
    }

    fn take_once(&mut self, found: &[Row]) -> Result<(), Error> {
        for row in found {
            let row = rows::once(row)?;
            self.once.insert(row.key.clone(), KeyedEntry::found(row));
        }
        Ok(())
    }

    fn take_messages(&mut self, found: &[Row]) -> Result<(), Error> {
        for row in found {
            let row = dedupe::row(row)?;
            self.once.insert(row.key.clone(), KeyedEntry::found(row));
        }
        Ok(())
    }

    /// The last fact of this transaction; zero if there is none.
    pub(super) fn last_fact(&self) -> FactSeq {
        self.last_fact
    }

    /// Writes all decisions so far.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.pending()?.send(self.session)?;
        self.working_set.mark_written();
        self.facts.clear();
        self.facts_gone.clear();
        self.counts.clear();
        self.messages_gone.clear();
        self.once.values_mut().for_each(KeyedEntry::written);
        self.records.values_mut().for_each(KeyedEntry::written);
        Ok(())
    }

    /// The decisions that are not written yet, to be written together with the commit.
    pub(super) fn into_writes(mut self) -> Result<EncodedWrites, Error> {
        self.pending()
    }

    fn pending(&mut self) -> Result<EncodedWrites, Error> {
        let (new, changed, removed) = self.working_set.take_pending();
        let mut decided = DecidedWrites {
            new,
            changed,
            removed,
            facts: &self.facts,
            facts_gone: &self.facts_gone,
            counts: &self.counts,
            messages_gone: &self.messages_gone,
            ..DecidedWrites::default()
        };
        for entry in self.once.values().filter(|entry| entry.changed) {
            let list = if entry.stored {
                &mut decided.once_again
            } else {
                &mut decided.once
            };
            list.extend(&entry.now);
        }
        // Sorted by key, so that transactions that wait for new keys of each other cannot deadlock.
        decided.once.sort_unstable_by_key(|row| &row.key);
        decided.new.sort_unstable_by_key(|row| row.intent.seq);
        for (key, entry) in self.records.iter().filter(|(_, entry)| entry.changed) {
            match (&entry.now, entry.stored) {
                (Some(record), true) => decided.records_again.push(record),
                (Some(record), false) => decided.records.push(record),
                (None, true) => decided.records_gone.push(key),
                (None, false) => {}
            }
        }
        decided.records.sort_unstable_by_key(|record| &record.key);
        decided.encode(self.node, self.shard)
    }

    fn search_lane(&mut self, probe: Probe, limit: u32) -> Result<(), Error> {
        self.flush()?;
        let found = self
            .session
            .query(load::lane(probe.column), &[&probe.lane, &i64::from(limit)])?;
        let intents = found
            .iter()
            .map(rows::intent)
            .collect::<Result<Vec<_>, _>>()?;
        let whole = intents.len() < limit as usize;
        self.working_set.load_lane(probe, intents, whole);
        Ok(())
    }
}

impl<T> KeyedEntry<T> {
    fn none() -> Self {
        Self {
            now: None,
            stored: false,
            changed: false,
        }
    }

    fn found(value: T) -> Self {
        Self {
            now: Some(value),
            stored: true,
            changed: false,
        }
    }

    fn set(&mut self, value: Option<T>) {
        self.now = value;
        self.changed = true;
    }

    fn written(&mut self) {
        if self.changed {
            self.stored = self.now.is_some();
            self.changed = false;
        }
    }
}

impl Tx for PostgresTx<'_> {
    fn reserve(&mut self, position: &mut Position) -> Result<(), Error> {
        let left = |last: u64| BLOCK - last % BLOCK;
        // More than any one command can use.
        let few = BLOCK / 4;
        let above = self.working_set.last_fact() <= position.fact;
        if above && left(position.seq) > few && left(position.fact) > few {
            return Ok(());
        }
        let found = self.session.query(load::BLOCKS, &[])?;
        let blocks = found.first().ok_or(Error::Closed)?;
        position.seq = rows::unsigned(blocks, 1)? * BLOCK;
        position.fact = rows::unsigned(blocks, 2)? * BLOCK;
        Ok(())
    }

    fn intent(&mut self, id: IntentId) -> Result<Option<Intent>, Error> {
        if !self.working_set.is_known(id) {
            let ids = vec![&id.0[..]];
            for row in &self.session.query(load::INTENTS, &[&ids])? {
                self.working_set.load(rows::intent(row)?);
            }
            self.working_set.mark_absent(id);
        }
        Ok(self.working_set.by_id(id).cloned())
    }

    fn pick(&mut self, probes: &[Probe], limit: u32) -> Result<Vec<Intent>, Error> {
        let mut heads: Vec<ClaimRank> = Vec::with_capacity(probes.len());
        for probe in probes {
            if self.working_set.heads(*probe, limit as usize).is_none() {
                self.search_lane(*probe, limit)?;
            }
            heads.extend(
                self.working_set
                    .heads(*probe, limit as usize)
                    .into_iter()
                    .flatten(),
            );
        }
        heads.sort_unstable();
        // A public row of the caller is in two of its lanes.
        heads.dedup();
        heads.truncate(limit as usize);
        let rows = heads
            .into_iter()
            .map(|(_, _, _, seq)| self.working_set.get(Seq(seq)));
        Ok(rows.flatten().cloned().collect())
    }

    fn due(
        &mut self,
        shelf: Shelf,
        face: Option<Face>,
        until: Micros,
        limit: u32,
    ) -> Result<Vec<Intent>, Error> {
        let of_face =
            |intent: &&Intent| face.is_none_or(|face| intent.profile.profile().face == face);
        if let Some(due) = self.working_set.due(shelf, until) {
            let wanted = due.into_iter().filter(of_face).take(limit as usize);
            return Ok(wanted.cloned().collect());
        }
        self.flush()?;
        let profiles: Option<Vec<i16>> =
            face.map(|face| profiles_of(face).map(|id| id.code().into()).collect());
        let sql = concat!(
            "SELECT ",
            intent_columns!(),
            " FROM intents i WHERE i.shelf = $1 AND i.wake_at <= $2 AND ($3::smallint[] IS NULL OR i.profile = ANY($3)) \
             ORDER BY i.wake_at, i.seq LIMIT $4 FOR UPDATE SKIP LOCKED"
        );
        let (code, limit) = (i16::from(shelf.code()), i64::from(limit));
        let found = self
            .session
            .query_anew(sql, &[&code, &until.0, &profiles, &limit])?;
        self.hold(&found)
    }

    fn stop(&mut self, after: Seq, limit: u32) -> Result<Option<Seq>, Error> {
        self.flush()?;
        let sql = "SELECT seq FROM intents WHERE seq > $1 ORDER BY seq OFFSET $2 LIMIT 1";
        let (after, before) = (signed(after.0), i64::from(limit) - 1);
        let found = self.session.query_anew(sql, &[&after, &before.max(0)])?;
        let last = found.first().map(|row| rows::unsigned(row, 0));
        Ok(last.transpose()?.map(Seq))
    }

    fn rows(
        &mut self,
        face: Face,
        namespace: Option<&str>,
        after: Seq,
        until: Seq,
    ) -> Result<Vec<Intent>, Error> {
        self.flush()?;
        let sql = concat!(
            "SELECT ",
            intent_columns!(),
            " FROM intents i WHERE i.seq > $1 AND i.seq <= $2 AND i.profile = ANY($3::smallint[]) \
             AND ($4::text IS NULL OR i.namespace = $4) ORDER BY i.seq FOR UPDATE"
        );
        let profiles: Vec<i16> = profiles_of(face).map(|id| id.code().into()).collect();
        let (after, until) = (signed(after.0), signed(until.0));
        let namespace = namespace.map(stored);
        let found = self
            .session
            .query_anew(sql, &[&after, &until, &profiles, &namespace])?;
        self.hold(&found)
    }

    fn once(&mut self, key: &once::OnceKey) -> Result<Option<once::FirstUse>, Error> {
        if !self.once.contains_key(key) {
            if key.scope == once::Scope::MeshMessage {
                let keys = dedupe::keys(std::iter::once(key));
                let found = self.session.query(dedupe::LOAD, &[&keys.0, &keys.1])?;
                self.take_messages(&found)?;
            } else {
                let keys = load::keys([(key.scope.code(), &key.owner, &key.key)].into_iter());
                let found = self
                    .session
                    .query(load::ONCE, &[&keys.0, &keys.1, &keys.2])?;
                self.take_once(&found)?;
            }
        }
        let entry = self
            .once
            .entry(key.clone())
            .or_insert_with(KeyedEntry::none);
        Ok(entry.now.clone())
    }

    fn record(&mut self, key: &record::Key) -> Result<Option<Record>, Error> {
        if !self.records.contains_key(key) {
            let keys = load::keys([(key.kind.code(), &key.owner, &key.name)].into_iter());
            let found = self
                .session
                .query(load::RECORDS, &[&keys.0, &keys.1, &keys.2])?;
            self.take_records(&found)?;
        }
        let entry = self
            .records
            .entry(key.clone())
            .or_insert_with(KeyedEntry::none);
        Ok(entry.now.clone())
    }

    fn series(&mut self, name: &str, now: Micros) -> Result<Series, Error> {
        self.flush()?;
        let name = stored(name);
        self.session.query(load::LOCK_SERIES, &[&name])?;
        let of_state = |state: State| i16::from(state.code());
        let (held, waiting) = (of_state(State::Dispatched), of_state(State::Queued));
        let (completed, delayed) = (of_state(State::Acked), i16::from(Shelf::Delayed.code()));
        let asked = |text, parameters| BoundStatement { text, parameters };
        let answers = self.session.ask(&[
            asked(load::HELD_OF_SERIES, vec![&name, &held]),
            asked(load::WAITING_OF_SERIES, vec![&name, &waiting]),
            asked(load::COMPLETED_OF_SERIES, vec![&name, &completed]),
            asked(
                load::BEHIND_OF_SERIES,
                vec![&name, &waiting, &delayed, &now.0],
            ),
        ])?;
        // Only the last one is locked, so only that one joins the working set.
        let [held, waiting, completed, behind] =
            <[StatementResult; 4]>::try_from(answers).map_err(|_| Error::Closed)?;
        let first = |answer: &StatementResult| answer.rows.first().map(rows::intent).transpose();
        Ok(Series {
            held: first(&held)?,
            waiting: first(&waiting)?,
            completed: first(&completed)?,
            behind: self.hold(&behind.rows)?.pop(),
        })
    }

    fn count(&mut self, counter: &Counter) -> Result<i64, Error> {
        load::count(self.session, counter)
    }

    fn insert(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> Result<(), Error> {
        self.working_set
            .put(intent.clone(), lanes.copied(), PendingWrite::Insert);
        Ok(())
    }

    fn update(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> Result<(), Error> {
        self.working_set
            .put(intent.clone(), lanes.copied(), PendingWrite::Update);
        Ok(())
    }

    fn remove(&mut self, seq: Seq) -> Result<(), Error> {
        self.working_set.remove(seq);
        Ok(())
    }

    fn append(&mut self, fact: Fact) -> Result<(), Error> {
        self.last_fact = fact.seq;
        self.facts.push(fact);
        Ok(())
    }

    fn remove_facts(&mut self, _owner: &str, last: FactSeq) -> Result<(), Error> {
        self.facts_gone.push(last);
        Ok(())
    }

    fn put_once(&mut self, row: once::FirstUse) -> Result<(), Error> {
        let entry = self
            .once
            .entry(row.key.clone())
            .or_insert_with(KeyedEntry::none);
        entry.set(Some(row));
        Ok(())
    }

    fn message_gone(&mut self, key: &once::OnceKey, message: IntentId) -> Result<(), Error> {
        // The statement that notes it finds the row; the later commands of this transaction see it here.
        let known = self.once.get_mut(key).and_then(|entry| entry.now.as_mut());
        if let Some(row) = known.filter(|row| row.intent == Some(message)) {
            row.forget_history();
        }
        self.messages_gone.push((key.clone(), message));
        Ok(())
    }

    fn put_record(&mut self, record: Record) -> Result<(), Error> {
        let entry = self.records.entry(record.key.clone());
        entry.or_insert_with(KeyedEntry::none).set(Some(record));
        Ok(())
    }

    fn delete_record(&mut self, key: &record::Key) -> Result<(), Error> {
        // Only a row that was found, and is therefore locked, is deleted.
        if !self.records.contains_key(key) {
            self.record(key)?;
        }
        let entry = self.records.entry(key.clone());
        entry.or_insert_with(KeyedEntry::none).set(None);
        Ok(())
    }

    fn add(&mut self, counter: &Counter, delta: i64) -> Result<(), Error> {
        self.counts.push((counter.clone(), delta));
        Ok(())
    }

    fn forget(&mut self, forget: &Forget, now: Micros) -> Result<u64, Error> {
        self.flush()?;
        let forgotten = self.forget_stored(forget, now)?;
        self.once.clear();
        self.records.clear();
        Ok(forgotten)
    }

    fn forget_facts(&mut self, forget: &ForgetFacts) -> Result<(u64, Option<FactSeq>), Error> {
        self.flush()?;
        // An array, and no join: the planner must look up each number.
        let sql = "WITH looked AS MATERIALIZED \
                   (SELECT seq, face, at < $3 AS old FROM facts WHERE seq > $1 ORDER BY seq LIMIT $2), \
                   gone AS (DELETE FROM facts WHERE seq = ANY (ARRAY(SELECT seq FROM looked WHERE old AND face = $4)) \
                   RETURNING seq) \
                   SELECT (SELECT count(*) FROM gone), count(*) FILTER (WHERE old), coalesce(max(seq), 0) FROM looked";
        let (after, face) = (signed(forget.after.0), i16::from(forget.face.code()));
        let limit = i64::from(forget.limit);
        let parameters: [&(dyn ToSql + Sync); 4] = [&after, &limit, &forget.before.0, &face];
        let found = self.session.query_anew(sql, &parameters)?;
        let counts = found.first().ok_or(Error::Closed)?;
        let all_old = rows::unsigned(counts, 1)? == u64::from(forget.limit);
        let last = FactSeq(rows::unsigned(counts, 2)?);
        Ok((rows::unsigned(counts, 0)?, all_old.then_some(last)))
    }

    fn left(&self) -> Vec<Probe> {
        self.working_set.unchanged_lanes().collect()
    }
}

impl PostgresTx<'_> {
    fn hold(&mut self, found: &[Row]) -> Result<Vec<Intent>, Error> {
        let mut intents = Vec::with_capacity(found.len());
        for row in found {
            let intent = rows::intent(row)?;
            self.working_set.load(intent.clone());
            intents.push(intent);
        }
        Ok(intents)
    }

    fn forget_over(&mut self, scope: once::Scope, until: Micros, limit: u32) -> Result<u64, Error> {
        let limit = i64::from(limit);
        if scope == once::Scope::MeshMessage {
            let sql = dedupe::FORGET_OVER;
            return self.session.execute_anew(sql, &[&until.0, &limit]);
        }
        let sql = "DELETE FROM once WHERE (scope, owner, key) IN (SELECT scope, owner, key FROM once \
                   WHERE scope = $1 AND until <= $2 ORDER BY until, owner, key LIMIT $3 FOR UPDATE SKIP LOCKED)";
        let scope = i16::from(scope.code());
        self.session.execute_anew(sql, &[&scope, &until.0, &limit])
    }

    /// Rows that another transaction has locked are left for the next call.
    fn forget_stored(&mut self, forget: &Forget, now: Micros) -> Result<u64, Error> {
        match forget {
            Forget::Once { scope, limit } => self.forget_over(*scope, now, *limit),
            Forget::OnceEnding {
                scope,
                ahead_us,
                limit,
            } => self.forget_over(*scope, now.plus(*ahead_us), *limit),
            Forget::LostMessages { keys } => {
                let keys = dedupe::keys(keys.iter());
                self.session
                    .execute_anew(dedupe::NOTE_LOST, &[&keys.0, &keys.1])
            }
            Forget::OnceOf { owner } => {
                // With all scopes listed, the index of the key is used.
                let scopes: Vec<i16> = once::Scope::ALL
                    .iter()
                    .map(|scope| scope.code().into())
                    .collect();
                let sql = "DELETE FROM once WHERE scope = ANY($1::smallint[]) AND owner = $2";
                let others = self.session.execute_anew(sql, &[&scopes, &stored(owner)])?;
                let messages = dedupe::FORGET_OWNER;
                Ok(others + self.session.execute_anew(messages, &[&stored(owner)])?)
            }
            // Scope by scope, so that the first rows are found by the key. None may remain, so this waits for locks.
            Forget::OnceOfFace { face, limit } => {
                let sql = "DELETE FROM once WHERE (scope, owner, key) IN (SELECT scope, owner, key FROM once \
                           WHERE scope = $1 ORDER BY owner, key LIMIT $2 FOR UPDATE)";
                let mut forgotten = 0;
                for scope in once::Scope::purged(*face) {
                    let room = i64::from(*limit) - i64::try_from(forgotten).unwrap_or(i64::MAX);
                    if scope == once::Scope::MeshMessage {
                        let sql = dedupe::FORGET_FIRST;
                        forgotten += self.session.execute_anew(sql, &[&room])?;
                        continue;
                    }
                    let scope = i16::from(scope.code());
                    forgotten += self.session.execute_anew(sql, &[&scope, &room])?;
                }
                Ok(forgotten)
            }
            Forget::Records {
                kind,
                ahead_us,
                limit,
            } => {
                let until = now.plus(*ahead_us).0;
                let sql = "DELETE FROM records WHERE (kind, owner, name) IN (SELECT kind, owner, name FROM records \
                           WHERE kind = $1 AND expires_at <= $2 ORDER BY expires_at, owner, name LIMIT $3 \
                           FOR UPDATE SKIP LOCKED)";
                let (kind, limit) = (i16::from(kind.code()), i64::from(*limit));
                self.session.execute_anew(sql, &[&kind, &until, &limit])
            }
            Forget::AllRecords { kind, limit } => {
                let sql = "DELETE FROM records WHERE (kind, owner, name) IN (SELECT kind, owner, name FROM records \
                           WHERE kind = $1 ORDER BY owner, name LIMIT $2 FOR UPDATE)";
                let (kind, limit) = (i16::from(kind.code()), i64::from(*limit));
                self.session.execute_anew(sql, &[&kind, &limit])
            }
        }
    }
}
