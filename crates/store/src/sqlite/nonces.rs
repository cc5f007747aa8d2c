//! The nonces of signed requests: once-keys of which only the use is stored.
//!
//! They are random, so an index of them would touch another page with every request, which costs more than the request
//! itself. They are appended, and the writer, which alone reads them, keeps them in memory.
//! Invariant: the memory equals the content of the file, as of the open transaction.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use consign_kernel::ids::Micros;
use consign_kernel::once;
use rusqlite::{Connection, params};

use super::rows;
use super::statements::StatementCache;
use crate::Error;

/// Passes over the oldest rows in one command, so that many duplicates do not make it long.
const PASSES_MAX: u32 = 4;
const DELETE: &str = "DELETE FROM nonces WHERE seq = ?1";

#[derive(Default)]
pub(super) struct Nonces {
    /// A keyed hash of sixty-four bits, which clients cannot predict, stands for a key.
    names: RandomState,
    until: HashMap<u64, Micros>,
    /// The values that the open transaction replaced.
    undo: Vec<(u64, Option<Micros>)>,
    /// The open transaction removed nonces, which are not undone one by one.
    forgot: bool,
    /// A transaction that removed nonces was rolled back, so everything must be read again.
    stale: bool,
}

impl Nonces {
    pub(super) fn load(connection: &Connection) -> Result<Self, Error> {
        let mut nonces = Self::default();
        nonces.reload(connection)?;
        Ok(nonces)
    }

    fn reload(&mut self, connection: &Connection) -> Result<(), Error> {
        self.until.clear();
        let mut statement = connection.prepare(concat!(rows::nonces!(), " ORDER BY seq"))?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let nonce = rows::nonce(row)?;
            self.until.insert(self.name(&nonce.key), nonce.until);
        }
        Ok(())
    }

    /// Must be called before a transaction reads nonces.
    pub(super) fn refresh(&mut self, connection: &Connection) -> Result<(), Error> {
        if self.stale {
            self.reload(connection)?;
            self.stale = false;
        }
        Ok(())
    }

    fn name(&self, key: &once::OnceKey) -> u64 {
        self.names.hash_one(key)
    }

    pub(super) fn get(&self, key: &once::OnceKey) -> Option<once::FirstUse> {
        let until = *self.until.get(&self.name(key))?;
        Some(once::FirstUse::bare(key.clone(), until))
    }

    pub(super) fn put(
        &mut self,
        prepared: &mut StatementCache<'_>,
        row: &once::FirstUse,
    ) -> Result<(), Error> {
        let sql = "INSERT INTO nonces (scope, owner, key, until) VALUES (?1, ?2, ?3, ?4)";
        let key = &row.key;
        let values = params![key.scope.code(), key.owner, key.key, row.until.0];
        prepared.get(sql)?.execute(values)?;
        let name = self.name(key);
        self.undo.push((name, self.until.insert(name, row.until)));
        Ok(())
    }

    /// Removes the oldest expired nonces, at most so many. A nonce that was used again is stored twice and counts once.
    pub(super) fn forget_over(
        &mut self,
        prepared: &mut StatementCache<'_>,
        scope: once::Scope,
        now: Micros,
        limit: u32,
    ) -> Result<usize, Error> {
        // First: if anything fails from here on, the memory is read again.
        self.forgot = true;
        let mut forgotten = 0;
        for _ in 0..PASSES_MAX {
            if forgotten == limit as usize {
                break;
            }
            let oldest = oldest(prepared, scope, limit as usize - forgotten)?;
            let over = oldest.iter().take_while(|(_, row)| row.until <= now);
            let over: Vec<_> = over.collect();
            if over.is_empty() {
                break;
            }
            for (seq, row) in over {
                prepared.get(DELETE)?.execute([seq])?;
                let name = self.name(&row.key);
                if self.until.get(&name).is_some_and(|until| *until <= now) {
                    self.until.remove(&name);
                    forgotten += 1;
                }
            }
        }
        if self.until.capacity() > 4 * self.until.len() {
            self.until.shrink_to(2 * self.until.len());
        }
        Ok(forgotten)
    }

    /// Removes the nonces of an owner. This is rare, so all rows are read.
    pub(super) fn forget_owner(
        &mut self,
        prepared: &mut StatementCache<'_>,
        scope: once::Scope,
        owner: &str,
    ) -> Result<usize, Error> {
        self.forgot = true;
        let sql = concat!(
            rows::nonces!(),
            " WHERE scope = ?1 AND owner = ?2 ORDER BY seq"
        );
        let statement = prepared.get(sql)?;
        let found = statement.query_map(params![scope.code(), owner], rows::nonce)?;
        let mut forgotten = 0;
        for row in found {
            let name = self.name(&row?.key);
            forgotten += usize::from(self.until.remove(&name).is_some());
        }
        let sql = "DELETE FROM nonces WHERE scope = ?1 AND owner = ?2";
        let statement = prepared.get(sql)?;
        statement.execute(params![scope.code(), owner])?;
        Ok(forgotten)
    }

    /// Removes the oldest nonces of a scope, expired or not, at most so many.
    pub(super) fn forget_first(
        &mut self,
        prepared: &mut StatementCache<'_>,
        scope: once::Scope,
        limit: usize,
    ) -> Result<usize, Error> {
        self.forgot = true;
        let oldest = oldest(prepared, scope, limit)?;
        for (seq, row) in &oldest {
            prepared.get(DELETE)?.execute([seq])?;
            let name = self.name(&row.key);
            // A nonce that was used again has another row, and is removed with its last row.
            if self.until.get(&name) == Some(&row.until) {
                self.until.remove(&name);
            }
        }
        Ok(oldest.len())
    }

    pub(super) fn committed(&mut self) {
        self.undo.clear();
        self.forgot = false;
    }

    pub(super) fn rolled_back(&mut self) {
        for (name, before) in self.undo.drain(..).rev() {
            match before {
                Some(until) => self.until.insert(name, until),
                None => self.until.remove(&name),
            };
        }
        self.stale |= std::mem::take(&mut self.forgot);
    }
}

fn oldest(
    prepared: &mut StatementCache<'_>,
    scope: once::Scope,
    limit: usize,
) -> Result<Vec<(i64, once::FirstUse)>, Error> {
    let sql = concat!(rows::nonces!(), " WHERE scope = ?1 ORDER BY seq LIMIT ?2");
    let statement = prepared.get(sql)?;
    let found = statement.query_map(params![scope.code(), rows::signed(limit as u64)], |row| {
        Ok((row.get::<_, i64>(0)?, rows::nonce(row)?))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
