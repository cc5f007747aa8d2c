//! The writer's transaction: loads and writes, no rules.

use std::collections::{BTreeMap, BTreeSet};

use consign_kernel::command::{Forget, ForgetFacts};
use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Series, Shelf};
use consign_kernel::lane::{Column, Lanes, Probe};
use consign_kernel::once::{self, Scope};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;
use rusqlite::{OptionalExtension, params, params_from_iter};

use super::dedupe;
use super::nonces::Nonces;
use super::rows::{self, fact_columns, intent_columns, signed};
use super::schema;
use super::statements::StatementCache;
use crate::Error;
use crate::columns;
use crate::failpoint::{self, Failpoint};
use crate::ledger::{Counter, Tx, UNCONSENTED, profiles_of};

/// The open transaction of the one writer.
pub(super) struct SqliteTx<'a, 'c> {
    prepared: &'a mut StatementCache<'c>,
    nonces: &'a mut Nonces,
    /// The first and the last fact of each owner.
    news: BTreeMap<String, (FactSeq, FactSeq)>,
}

/// The order of claimable rows, smallest first.
type LaneRank = (i64, i64, i64, i64);

macro_rules! probe_sql {
    ($lane:literal) => {
        concat!(
            "SELECT priority, run_at, attempts, seq FROM intents WHERE ",
            $lane,
            " = ?1 ORDER BY priority DESC, run_at, attempts, seq LIMIT ?2"
        )
    };
}

fn probe_sql(column: Column) -> &'static str {
    match column {
        Column::Own => probe_sql!("own_lane"),
        Column::OwnGoal => probe_sql!("own_goal_lane"),
        Column::Public => probe_sql!("public_lane"),
        Column::PublicGoal => probe_sql!("public_goal_lane"),
    }
}

impl<'a, 'c> SqliteTx<'a, 'c> {
    pub(super) fn new(prepared: &'a mut StatementCache<'c>, nonces: &'a mut Nonces) -> Self {
        Self {
            prepared,
            nonces,
            news: BTreeMap::new(),
        }
    }

    /// Stores the fact ranges of the owners. Must be called once, before the commit.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.note_news()
    }

    /// Stores the current fact ranges, and starts new ones.
    pub(super) fn note_news(&mut self) -> Result<(), Error> {
        let sql = "INSERT INTO news (owner, last, first) VALUES (?1, ?2, ?3)";
        for (owner, (first, last)) in std::mem::take(&mut self.news) {
            let row = params![owner, signed(last.0), signed(first.0)];
            self.prepared.get(sql)?.execute(row)?;
        }
        Ok(())
    }

    fn by_seq(&mut self, seq: i64) -> Result<Intent, Error> {
        let sql = concat!("SELECT ", intent_columns!(), " FROM intents WHERE seq = ?1");
        Ok(self.prepared.get(sql)?.query_row([seq], rows::intent)?)
    }
}

impl Tx for SqliteTx<'_, '_> {
    fn intent(&mut self, id: IntentId) -> Result<Option<Intent>, Error> {
        let sql = concat!("SELECT ", intent_columns!(), " FROM intents WHERE id = ?1");
        Ok(self
            .prepared
            .get(sql)?
            .query_row([id.0], rows::intent)
            .optional()?)
    }

    fn pick(&mut self, probes: &[Probe], limit: u32) -> Result<Vec<Intent>, Error> {
        let mut heads: Vec<LaneRank> = Vec::with_capacity(probes.len());
        for probe in probes {
            let statement = self.prepared.get(probe_sql(probe.column))?;
            let mut found = statement.query(params![probe.lane, limit])?;
            while let Some(row) = found.next()? {
                let priority: i64 = row.get(0)?;
                heads.push((-priority, row.get(1)?, row.get(2)?, row.get(3)?));
            }
        }
        heads.sort_unstable();
        // A public row of the caller is in two of its lanes.
        heads.dedup();
        heads.truncate(limit as usize);
        heads
            .into_iter()
            .map(|(_, _, _, seq)| self.by_seq(seq))
            .collect()
    }

    fn due(
        &mut self,
        shelf: Shelf,
        face: Option<Face>,
        until: Micros,
        limit: u32,
    ) -> Result<Vec<Intent>, Error> {
        let sql = concat!(
            "SELECT ",
            intent_columns!(),
            " FROM intents WHERE shelf = ?1 AND wake_at <= ?2 ORDER BY wake_at, seq"
        );
        let statement = self.prepared.get(sql)?;
        let mut found = statement.query(params![shelf.code(), until.0])?;
        let mut due = Vec::new();
        while due.len() < limit as usize
            && let Some(row) = found.next()?
        {
            let intent = rows::intent(row)?;
            if face.is_none_or(|face| intent.profile.profile().face == face) {
                due.push(intent);
            }
        }
        Ok(due)
    }

    fn stop(&mut self, after: Seq, limit: u32) -> Result<Option<Seq>, Error> {
        let sql = "SELECT seq FROM intents WHERE seq > ?1 ORDER BY seq LIMIT 1 OFFSET ?2";
        let before = limit.saturating_sub(1);
        let last = self
            .prepared
            .get(sql)?
            .query_row(params![signed(after.0), before], |row| {
                rows::unsigned(row, 0)
            });
        Ok(last.optional()?.map(Seq))
    }

    fn rows(
        &mut self,
        face: Face,
        namespace: Option<&str>,
        after: Seq,
        until: Seq,
    ) -> Result<Vec<Intent>, Error> {
        let mut all = Vec::new();
        for profile in profiles_of(face) {
            let sql = concat!(
                "SELECT ",
                intent_columns!(),
                " FROM intents WHERE seq > ?1 AND seq <= ?2 AND profile = ?3 AND (?4 IS NULL OR namespace = ?4)"
            );
            let (after, until) = (signed(after.0), signed(until.0));
            let statement = self.prepared.get(sql)?;
            let wanted = params![after, until, profile.code(), namespace];
            for intent in statement.query_map(wanted, rows::intent)? {
                all.push(intent?);
            }
        }
        all.sort_by_key(|intent: &Intent| intent.seq);
        Ok(all)
    }

    fn once(&mut self, key: &once::OnceKey) -> Result<Option<once::FirstUse>, Error> {
        if key.scope.is_bare() {
            return Ok(self.nonces.get(key));
        }
        if key.scope == Scope::MeshMessage {
            return dedupe::get(self.prepared, key);
        }
        let sql = "SELECT scope, owner, key, fingerprint, intent, answer, until FROM once \
                   WHERE scope = ?1 AND owner = ?2 AND key = ?3";
        let wanted = params![key.scope.code(), key.owner, key.key];
        if plant::on(Plant::DedupeByLook) {
            let path = self.prepared.connection().path().unwrap_or_default();
            let beside = schema::read_only(path.as_ref(), false)?;
            return Ok(beside.query_row(sql, wanted, rows::once).optional()?);
        }
        let statement = self.prepared.get(sql)?;
        Ok(statement.query_row(wanted, rows::once).optional()?)
    }

    fn record(&mut self, key: &record::Key) -> Result<Option<Record>, Error> {
        let sql = "SELECT kind, owner, name, version, value, expires_at FROM records \
                   WHERE kind = ?1 AND owner = ?2 AND name = ?3";
        let statement = self.prepared.get(sql)?;
        Ok(statement
            .query_row(params![key.kind.code(), key.owner, key.name], rows::record)
            .optional()?)
    }

    fn series(&mut self, name: &str, now: Micros) -> Result<Series, Error> {
        macro_rules! of_series {
            ($which:literal) => {
                concat!(
                    "SELECT ",
                    intent_columns!(),
                    " FROM intents WHERE series = ?1 AND state = ?2",
                    $which,
                    " LIMIT 1"
                )
            };
        }
        let mut first = |sql: &'static str, state: State| {
            let statement = self.prepared.get(sql)?;
            let wanted = params![name, state.code()];
            let found = statement.query_row(wanted, rows::intent).optional()?;
            Ok::<_, Error>(found)
        };
        let held = first(of_series!(" ORDER BY lease_until DESC"), State::Dispatched)?;
        let waiting = first(of_series!(" ORDER BY settled_at, seq"), State::Queued)?;
        let completed = first(
            of_series!(" ORDER BY settled_at DESC, seq DESC"),
            State::Acked,
        )?;
        let mut behind = None;
        if waiting.is_some() {
            let sql = of_series!(" AND shelf = ?3 AND run_at <= ?4 ORDER BY settled_at, seq");
            let delayed = Shelf::Delayed.code();
            let wanted = params![name, State::Queued.code(), delayed, now.0];
            let statement = self.prepared.get(sql)?;
            behind = statement.query_row(wanted, rows::intent).optional()?;
        }
        Ok(Series {
            held,
            waiting,
            behind,
            completed,
        })
    }

    fn count(&mut self, counter: &Counter) -> Result<i64, Error> {
        let (kind, face, name, state) = counter.key();
        let sql =
            "SELECT count FROM counts WHERE kind = ?1 AND face = ?2 AND name = ?3 AND state = ?4";
        let statement = self.prepared.get(sql)?;
        Ok(statement
            .query_row(params![kind, face, name, state], |row| row.get(0))
            .optional()?
            .unwrap_or(0))
    }

    fn insert(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> Result<(), Error> {
        let sql = concat!(
            "INSERT INTO intents (",
            column_list!(write name ""),
            ") VALUES (",
            column_list!(write parameter),
            ")"
        );
        let cells = params_from_iter(columns::without_node(intent, lanes));
        self.prepared.get(sql)?.execute(cells)?;
        Ok(())
    }

    /// Writes only what a step can change. Writing a row that is gone is an error.
    ///
    /// If a constraint fails, the whole transaction is undone and not only this statement: for that, SQLite would keep a copy
    /// of each page that the statement changes, because the table has a trigger.
    fn update(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> Result<(), Error> {
        let sql = concat!(
            "UPDATE OR ROLLBACK intents SET ",
            column_list!(change set parameter),
            " WHERE seq = ?"
        );
        let cells = columns::all(intent, lanes, None);
        let (key, changed) = columns::unfixed(&cells).split_at(1);
        let changed = changed.iter().filter(|cell| columns::is_not_node(cell));
        let cells = params_from_iter(changed.chain(key));
        let written = self.prepared.get(sql)?.execute(cells)?;
        if written == 1 {
            return Ok(());
        }
        Err(Error::Corrupt(format!(
            "intent {} vanished inside its transaction",
            intent.id
        )))
    }

    fn remove(&mut self, seq: Seq) -> Result<(), Error> {
        self.prepared
            .get("DELETE FROM intents WHERE seq = ?1")?
            .execute([signed(seq.0)])?;
        Ok(())
    }

    fn append(&mut self, fact: Fact) -> Result<(), Error> {
        let sql = concat!(
            "INSERT INTO facts (",
            fact_columns!(),
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
        );
        self.prepared.get(sql)?.execute(params![
            signed(fact.seq.0),
            signed(fact.intent.0),
            fact.at.0,
            fact.verb.code(),
            fact.from.map(consign_kernel::state::State::code),
            fact.to.code(),
            fact.cause.code(),
            fact.attempt,
            fact.actor,
            fact.detail,
            fact.owner,
            fact.face.code(),
            fact.previous.map(|seq| signed(seq.0)),
            (fact.wall_offset_us != 0).then_some(fact.wall_offset_us),
            fact.worker,
        ])?;
        if let Some((_, last)) = self.news.get_mut(&fact.owner) {
            *last = fact.seq;
        } else {
            self.news.insert(fact.owner, (fact.seq, fact.seq));
        }
        Ok(())
    }

    fn remove_facts(&mut self, owner: &str, last: FactSeq) -> Result<(), Error> {
        let mut next = Some(signed(last.0));
        while let Some(seq) = next {
            let found = "SELECT previous FROM facts WHERE seq = ?1";
            let found = self
                .prepared
                .get(found)?
                .query_row([seq], |row| row.get::<_, Option<i64>>(0));
            next = found.optional()?.flatten();
            self.prepared
                .get("DELETE FROM facts WHERE seq = ?1")?
                .execute([seq])?;
            // The range that contained it may be empty now.
            let sql = "DELETE FROM news WHERE owner = ?1 AND last = \
                       (SELECT min(last) FROM news WHERE owner = ?1 AND last >= ?2) AND NOT EXISTS \
                       (SELECT 1 FROM facts WHERE seq BETWEEN news.first AND news.last AND owner = ?1)";
            self.prepared.get(sql)?.execute(params![owner, seq])?;
        }
        Ok(())
    }

    fn put_once(&mut self, row: once::FirstUse) -> Result<(), Error> {
        if row.key.scope.is_bare() {
            return self.nonces.put(self.prepared, &row);
        }
        if row.key.scope == Scope::MeshMessage {
            return dedupe::put(self.prepared, &row);
        }
        // The kernel saw no valid row under this key; an expired row is replaced.
        let sql = "INSERT OR REPLACE INTO once (scope, owner, key, fingerprint, intent, answer, until) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        self.prepared.get(sql)?.execute(params![
            row.key.scope.code(),
            row.key.owner,
            row.key.key,
            row.fingerprint,
            row.intent.map(|id| id.0),
            row.answer,
            row.until.0,
        ])?;
        if plant::on(Plant::OnceApart) {
            self.prepared
                .connection()
                .execute_batch("COMMIT; BEGIN IMMEDIATE")?;
            // Otherwise a campaign would rarely end the process between the two commits.
            failpoint::hit(Failpoint::AfterWrite);
        }
        Ok(())
    }

    fn message_gone(&mut self, key: &once::OnceKey, message: IntentId) -> Result<(), Error> {
        dedupe::message_gone(self.prepared, key, message)
    }

    fn put_record(&mut self, record: Record) -> Result<(), Error> {
        // Not REPLACE, which bypasses the guard triggers.
        let sql = "INSERT INTO records (kind, owner, name, version, value, expires_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (kind, owner, name) DO UPDATE SET \
                   version = excluded.version, value = excluded.value, expires_at = excluded.expires_at";
        self.prepared.get(sql)?.execute(params![
            record.key.kind.code(),
            record.key.owner,
            record.key.name,
            signed(record.version),
            record.value,
            record.expires_at.map(|at| at.0),
        ])?;
        Ok(())
    }

    fn delete_record(&mut self, key: &record::Key) -> Result<(), Error> {
        let sql = "DELETE FROM records WHERE kind = ?1 AND owner = ?2 AND name = ?3";
        self.prepared
            .get(sql)?
            .execute(params![key.kind.code(), key.owner, key.name])?;
        Ok(())
    }

    fn add(&mut self, counter: &Counter, delta: i64) -> Result<(), Error> {
        let (kind, face, name, state) = counter.key();
        let sql = "INSERT INTO counts (kind, face, name, state, count) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT DO UPDATE SET count = count + excluded.count";
        self.prepared
            .get(sql)?
            .execute(params![kind, face, name, state, delta])?;
        if kind >= UNCONSENTED && delta <= 0 {
            let sql = "DELETE FROM counts WHERE kind = ?1 AND face = ?2 AND name = ?3 AND state = ?4 AND count = 0";
            let statement = self.prepared.get(sql)?;
            statement.execute(params![kind, face, name, state])?;
        }
        Ok(())
    }

    fn forget(&mut self, forget: &Forget, now: Micros) -> Result<u64, Error> {
        let changed = match forget {
            Forget::Once { scope, limit } => self.forget_over(*scope, now, *limit)?,
            Forget::OnceEnding {
                scope,
                ahead_us,
                limit,
            } => self.forget_over(*scope, now.plus(*ahead_us), *limit)?,
            Forget::LostMessages { keys } => dedupe::note_lost(self.prepared, keys)?,
            // Scope by scope, so that the primary key finds the rows.
            Forget::OnceOf { owner } => {
                let mut changed = 0;
                for scope in Scope::ALL {
                    changed += self.forget_owner(*scope, owner)?;
                }
                changed
            }
            Forget::OnceOfFace { face, limit } => {
                let mut changed = 0;
                for scope in Scope::purged(*face) {
                    changed += self.forget_scope(scope, *limit as usize - changed)?;
                }
                changed
            }
            Forget::Records {
                kind,
                ahead_us,
                limit,
            } => {
                let until = now.plus(*ahead_us).0;
                let sql = "DELETE FROM records WHERE (kind, owner, name) IN (SELECT kind, owner, name FROM records \
                           WHERE kind = ?1 AND expires_at <= ?2 ORDER BY expires_at, owner, name LIMIT ?3)";
                self.prepared
                    .get(sql)?
                    .execute(params![kind.code(), until, limit])?
            }
            Forget::AllRecords { kind, limit } => {
                let sql = "DELETE FROM records WHERE (kind, owner, name) IN (SELECT kind, owner, name FROM records \
                           WHERE kind = ?1 ORDER BY owner, name LIMIT ?2)";
                self.prepared
                    .get(sql)?
                    .execute(params![kind.code(), limit])?
            }
        };
        Ok(changed as u64)
    }

    fn forget_facts(&mut self, forget: &ForgetFacts) -> Result<(u64, Option<FactSeq>), Error> {
        let sql = "SELECT seq, face, at, owner FROM facts WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        let statement = self.prepared.get(sql)?;
        let mut found = statement.query(params![signed(forget.after.0), forget.limit])?;
        let (mut over, mut owners) = (Vec::new(), BTreeSet::new());
        let (mut old, mut last) = (0, FactSeq(0));
        while let Some(row) = found.next()? {
            last = FactSeq(rows::unsigned(row, 0)?);
            if row.get::<_, i64>(2)? < forget.before.0 {
                old += 1;
                if row.get::<_, u8>(1)? == forget.face.code() {
                    over.push(signed(last.0));
                    owners.insert(row.get::<_, String>(3)?);
                }
            }
        }
        drop(found);
        for seq in &over {
            let sql = "DELETE FROM facts WHERE seq = ?1";
            self.prepared.get(sql)?.execute([seq])?;
        }
        for owner in owners {
            // Other faces may keep their facts longer.
            let sql = "DELETE FROM news WHERE owner = ?1 AND last <= ?2 AND NOT EXISTS \
                       (SELECT 1 FROM facts WHERE seq BETWEEN news.first AND news.last AND owner = ?1)";
            let statement = self.prepared.get(sql)?;
            statement.execute(params![owner, over.last()])?;
        }
        Ok((over.len() as u64, (old == forget.limit).then_some(last)))
    }
}

impl SqliteTx<'_, '_> {
    fn forget_over(&mut self, scope: Scope, until: Micros, limit: u32) -> Result<usize, Error> {
        if scope.is_bare() {
            return self.nonces.forget_over(self.prepared, scope, until, limit);
        }
        if scope == Scope::MeshMessage {
            return dedupe::forget_over(self.prepared, until, limit);
        }
        let sql = "DELETE FROM once WHERE (scope, owner, key) IN (SELECT scope, owner, key FROM once \
                   WHERE scope = ?1 AND until <= ?2 ORDER BY until, owner, key LIMIT ?3)";
        let statement = self.prepared.get(sql)?;
        Ok(statement.execute(params![scope.code(), until.0, limit])?)
    }

    fn forget_owner(&mut self, scope: Scope, owner: &str) -> Result<usize, Error> {
        if scope.is_bare() {
            return self.nonces.forget_owner(self.prepared, scope, owner);
        }
        if scope == Scope::MeshMessage {
            return dedupe::forget_owner(self.prepared, owner);
        }
        let sql = "DELETE FROM once WHERE scope = ?1 AND owner = ?2";
        let statement = self.prepared.get(sql)?;
        Ok(statement.execute(params![scope.code(), owner])?)
    }

    /// Removes once-keys of all owners, at most so many.
    fn forget_scope(&mut self, scope: Scope, limit: usize) -> Result<usize, Error> {
        if scope.is_bare() {
            return self.nonces.forget_first(self.prepared, scope, limit);
        }
        if scope == Scope::MeshMessage {
            return dedupe::forget_first(self.prepared, limit);
        }
        let sql = "DELETE FROM once WHERE (scope, owner, key) IN \
                   (SELECT scope, owner, key FROM once WHERE scope = ?1 ORDER BY owner, key LIMIT ?2)";
        let statement = self.prepared.get(sql)?;
        Ok(statement.execute(params![scope.code(), signed(limit as u64)])?)
    }
}
