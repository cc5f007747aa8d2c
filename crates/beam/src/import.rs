//! Import of a database of another Beam directory or message bus.
//!
//! Invariant: a second import adds nothing twice. Records that exist stay unchanged, and a row follows from its nonce or its
//! message id. Legacy words are translated; the ledger never holds one. A row that cannot be imported is reported and counted,
//! and the import continues.

mod agents;
mod instants;
mod intents;
mod lists;
mod messages;
#[cfg(test)]
mod tests;
mod walk;

use consign_engine::{BeamFile, Engine, Error, ForeignPage, UnreadableRow};
use consign_kernel::command::{Answer, Command, Recover, Restore};
use consign_kernel::error::Refusal;
use consign_kernel::ids::DAY_US;
use consign_kernel::record::Kind;

use crate::directory::records::{named, next_number};

/// Rows of one read and of one commit.
const PAGE: u32 = 200;
/// Skipped rows that are reported one by one; the rest is only counted.
const NAMED_MAX: usize = 50;
/// A longer cell is not imported.
const CELL_BYTES_MAX: usize = 1 << 20;
/// Until when an imported row that is in flight waits for the next start, which recovers it.
const WAITS_US: i64 = 3_650 * DAY_US;
/// The node that holds imported rows that were dispatched. No node has this name.
const IMPORTED_NODE: &str = "imported";

#[derive(Clone, Copy, Debug)]
pub struct BeamImportOptions {
    pub dry_run: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeamImportReport {
    pub agents_taken: u64,
    pub agents_present: u64,
    pub acls_taken: u64,
    pub acls_present: u64,
    pub delegations_taken: u64,
    pub delegations_present: u64,
    pub peers_taken: u64,
    pub peers_present: u64,
    pub intents_taken: u64,
    pub intents_present: u64,
    pub messages_taken: u64,
    pub messages_present: u64,
    pub skipped: u64,
    /// Why rows were skipped.
    pub reasons: Vec<String>,
}

impl BeamImportReport {
    fn skip(&mut self, reason: String) {
        self.skipped += 1;
        if self.reasons.len() < NAMED_MAX {
            self.reasons.push(reason);
        }
    }

    fn skip_unreadable(&mut self, what: &str, row: &UnreadableRow) {
        self.skip(format!("{what} in row {}: {}", row.rowid, row.reason));
    }
}

/// The earlier start that holds imported rows which were dispatched, for their recovery.
pub(crate) fn imported_leases(limit: u32) -> Recover {
    Recover {
        face: consign_kernel::profile::Face::Beam,
        node: IMPORTED_NODE.to_owned(),
        start: String::new(),
        limit,
    }
}

/// The holder of imported rows that were dispatched.
fn imported_holder() -> String {
    Recover::holder(IMPORTED_NODE, "upstream")
}

/// `progress` receives the rows done and the total.
pub async fn import_beam(
    engine: &Engine,
    file: &BeamFile,
    options: BeamImportOptions,
    progress: impl FnMut(u64, u64),
) -> Result<BeamImportReport, Error> {
    let rows = file.rows()?;
    let total = [
        rows.agents,
        rows.acls,
        rows.delegations,
        rows.peers,
        rows.intents,
        rows.messages,
    ];
    let numbers = file.numbers()?;
    let mut import = BeamImport {
        engine,
        file,
        options,
        report: BeamImportReport::default(),
        progress,
        done: 0,
        total: total.iter().sum(),
        keys: Numbers::reserve(engine, "keys", numbers.keys, options).await?,
        acls: Numbers::reserve(engine, "acl", numbers.acls, options).await?,
        delegations: Numbers::reserve(engine, "delegations", numbers.delegations, options).await?,
        peers: Numbers::reserve(engine, "peers", numbers.peers, options).await?,
    };
    import.import_agents().await?;
    import.import_acls().await?;
    import.import_delegations().await?;
    import.import_peers().await?;
    import.import_intents().await?;
    import.import_messages().await?;
    Ok(import.report)
}

struct BeamImport<'a, P> {
    engine: &'a Engine,
    file: &'a BeamFile,
    options: BeamImportOptions,
    report: BeamImportReport,
    progress: P,
    done: u64,
    total: u64,
    keys: Numbers,
    acls: Numbers,
    delegations: Numbers,
    peers: Numbers,
}

impl<P: FnMut(u64, u64)> BeamImport<'_, P> {
    fn advance<T>(&mut self, page: &ForeignPage<T>) {
        self.done += page.rows.len() as u64;
        (self.progress)(self.done.min(self.total), self.total);
    }

    /// Stores rows in one commit. Returns how many were new and how many existed; a row whose nonce belongs to a different one
    /// is skipped.
    async fn restore(&mut self, rows: Vec<(String, Restore)>) -> Result<(u64, u64), Error> {
        let (mut taken, mut present) = (0, 0);
        if rows.is_empty() {
            return Ok((taken, present));
        }
        if self.options.dry_run {
            for (name, row) in rows {
                match self.is_stored(&row).await? {
                    Some(true) => present += 1,
                    Some(false) => self.report.skip(conflict(&name)),
                    None => taken += 1,
                }
            }
            return Ok((taken, present));
        }
        let (names, rows): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let steps = rows
            .into_iter()
            .map(|row| Command::Restore(Box::new(row)))
            .collect();
        let answers = self.engine.execute(None, steps).await?;
        for (name, answer) in names.into_iter().zip(answers) {
            match answer {
                Ok(Answer::Restored) => taken += 1,
                Ok(_) => return Err(Error::Internal("an import got another answer".to_owned())),
                Err(Refusal::Exists) => present += 1,
                Err(Refusal::OnceConflict { .. }) => self.report.skip(conflict(&name)),
                Err(refusal) => return Err(Error::Refused(refusal)),
            }
        }
        Ok((taken, present))
    }

    /// Whether the ledger has the row; false if its nonce belongs to a different one.
    async fn is_stored(&self, row: &Restore) -> Result<Option<bool>, Error> {
        if self.engine.stored_intent(row.intent.id).await?.is_some() {
            return Ok(Some(true));
        }
        let Some(guard) = &row.once else {
            return Ok(None);
        };
        let used = self.engine.first_use(guard.key.clone()).await?;
        Ok(used.map(|used| used.fingerprint == guard.fingerprint))
    }
}

fn conflict(name: &str) -> String {
    format!("{name}: its nonce belongs to a different one in this ledger")
}

/// The numbers of a sequence. A number of the file is kept unless this ledger has assigned it before.
struct Numbers {
    sequence: &'static str,
    /// The last number that this ledger had assigned before the import.
    last: u64,
}

impl Numbers {
    /// Continues the sequence after the numbers of the file, so that no number is assigned twice.
    async fn reserve(
        engine: &Engine,
        sequence: &'static str,
        file_max: u64,
        options: BeamImportOptions,
    ) -> Result<Self, Error> {
        let key = named(Kind::BeamNumber, sequence);
        let last = engine.load_or_default::<u64>(key.clone()).await?.value;
        if !options.dry_run && file_max > last {
            engine
                .update(key, |last: &mut u64| -> Result<(), Error> {
                    *last = (*last).max(file_max);
                    Ok(())
                })
                .await?;
        }
        Ok(Self { sequence, last })
    }

    async fn assign(&self, engine: &Engine, number: i64) -> Result<u64, Error> {
        match u64::try_from(number) {
            Ok(number) if number > self.last => Ok(number),
            _ => next_number(engine, self.sequence).await,
        }
    }
}

/// Refuses cells that are too long.
fn bounded(cells: &[Option<&str>]) -> Result<(), String> {
    let longest = cells.iter().flatten().map(|cell| cell.len()).max();
    if longest.unwrap_or(0) > CELL_BYTES_MAX {
        return Err(format!("a value has more than {CELL_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// The beginning of a text of the file, short enough for a line.
fn shown(text: &str) -> &str {
    const SHOWN_CHARS_MAX: usize = 64;
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}
