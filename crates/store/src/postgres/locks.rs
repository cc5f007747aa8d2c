//! Rows that other transactions keep locked, so that only the requests that need them wait.
//!
//! This is only a hint: a request that is missing here, or listed wrongly, is still executed, apart from the others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use consign_kernel::command::Request;
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::{once, record};

use super::load::{Prefetch, keys};
use super::rows::{self, stored};
use super::session::Session;
use super::wire::Row;
use crate::Error;

/// How long other requests do not wait for a row that was found locked. Requests that wait already retry more often.
const KNOWN: Duration = Duration::from_secs(1);

/// The rows that exist and cannot be locked now.
const INTENTS: &str = "SELECT k.n FROM unnest($1::bytea[]) WITH ORDINALITY AS k (id, n) \
    WHERE EXISTS (SELECT 1 FROM intents WHERE id = k.id) \
    AND NOT EXISTS (SELECT 1 FROM intents WHERE id = k.id FOR UPDATE SKIP LOCKED)";

const ONCE: &str = "SELECT k.n FROM unnest($1::smallint[], $2::text[], $3::text[]) \
    WITH ORDINALITY AS k (scope, owner, key, n) \
    WHERE EXISTS (SELECT 1 FROM once WHERE scope = k.scope AND owner = k.owner AND key = k.key) \
    AND NOT EXISTS (SELECT 1 FROM once WHERE scope = k.scope AND owner = k.owner AND key = k.key \
    FOR UPDATE SKIP LOCKED)";

const RECORDS: &str = "SELECT k.n FROM unnest($1::smallint[], $2::text[], $3::text[]) \
    WITH ORDINALITY AS k (kind, owner, name, n) \
    WHERE EXISTS (SELECT 1 FROM records WHERE kind = k.kind AND owner = k.owner AND name = k.name) \
    AND NOT EXISTS (SELECT 1 FROM records WHERE kind = k.kind AND owner = k.owner AND name = k.name \
    FOR UPDATE SKIP LOCKED)";

const OWNERS: &str = "SELECT k.n FROM unnest($1::text[]) WITH ORDINALITY AS k (owner, n) \
    WHERE NOT pg_try_advisory_xact_lock(17230, hashtext(k.owner))";

/// A row or key that a request locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LockTarget {
    Intent(IntentId),
    Once(once::OnceKey),
    Record(record::Key),
    Owner(String),
}

/// What was found locked recently, and until when that is assumed.
#[derive(Debug, Default)]
pub(super) struct KnownLocks(Mutex<HashMap<LockTarget, Instant>>);

impl KnownLocks {
    fn known(&self) -> MutexGuard<'_, HashMap<LockTarget, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nearly always true.
    pub(super) fn is_empty(&self) -> bool {
        let mut known = self.known();
        if !known.is_empty() {
            let now = Instant::now();
            known.retain(|_, until| *until > now);
        }
        known.is_empty()
    }

    pub(super) fn note(&self, found: Vec<LockTarget>) {
        let until = Instant::now() + KNOWN;
        let found = found.into_iter().map(|thing| (thing, until));
        self.known().extend(found);
    }

    /// Whether a request needs any of them.
    pub(super) fn block(&self, request: &Request, now: Micros) -> bool {
        let known = self.known();
        let prefetch = Prefetch::of(std::iter::once(request), now);
        lock_targets(&prefetch).any(|thing| known.contains_key(&thing))
    }
}

fn lock_targets<'f>(prefetch: &'f Prefetch<'_>) -> impl Iterator<Item = LockTarget> + 'f {
    let intents = prefetch.ids.iter().map(|id| LockTarget::Intent(*id));
    let once = prefetch
        .once
        .iter()
        .map(|key| LockTarget::Once(key.clone()));
    let records = prefetch.records.iter().cloned().map(LockTarget::Record);
    let owners = prefetch.capped.iter();
    let owners = owners.map(|owner| LockTarget::Owner((*owner).to_owned()));
    intents.chain(once).chain(records).chain(owners)
}

/// What the requests will lock and another transaction has locked already. Takes the free locks, and releases them.
pub(super) fn find<'r>(
    session: &mut Session,
    requests: impl Iterator<Item = &'r Request>,
    now: Micros,
) -> Result<Vec<LockTarget>, Error> {
    let prefetch = Prefetch::of(requests, now);
    let ids: Vec<&[u8]> = prefetch.ids.iter().map(|id| &id.0[..]).collect();
    let once = keys(
        prefetch
            .once
            .iter()
            .map(|key| (key.scope.code(), &key.owner, &key.key)),
    );
    let records = keys(
        prefetch
            .records
            .iter()
            .map(|key| (key.kind.code(), &key.owner, &key.name)),
    );
    let owners: Vec<_> = prefetch.capped.iter().map(|owner| stored(owner)).collect();
    session.ready()?;
    session.run("BEGIN")?;
    let intents = session.query_anew(INTENTS, &[&ids])?;
    let once = session.query_anew(ONCE, &[&once.0, &once.1, &once.2])?;
    let records = session.query_anew(RECORDS, &[&records.0, &records.1, &records.2])?;
    let owners = session.query_anew(OWNERS, &[&owners])?;
    session.run("ROLLBACK")?;
    // In the order of [`lock_targets`].
    let counts = [
        (prefetch.ids.len(), intents),
        (prefetch.once.len(), once),
        (prefetch.records.len(), records),
        (prefetch.capped.len(), owners),
    ];
    let mut locked = Vec::new();
    for (count, rows) in &counts {
        locked.extend(marked(*count, rows)?);
    }
    let found = lock_targets(&prefetch).zip(locked);
    Ok(found
        .filter(|(_, locked)| *locked)
        .map(|(thing, _)| thing)
        .collect())
}

/// Which of `count` items the rows name; the numbers start at one.
fn marked(count: usize, rows: &[Row]) -> Result<Vec<bool>, Error> {
    let mut marked = vec![false; count];
    for row in rows {
        let number = usize::try_from(rows::unsigned(row, 0)?).unwrap_or(0);
        if let Some(mark) = number.checked_sub(1).and_then(|n| marked.get_mut(n)) {
            *mark = true;
        }
    }
    Ok(marked)
}
