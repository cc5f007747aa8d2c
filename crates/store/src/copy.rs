//! Copies the whole content of a ledger from one database to another, of either kind.
//!
//! Invariant: the first transaction of a copy marks the target, and the last one removes the mark, after the rows of both
//! sides were counted and hashed. In between no server starts on the target, and the same copy, run again, resumes: its
//! progress is written together with the rows.

mod digest;
mod ends;
mod rows;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::failpoint::{self, Failpoint};
use crate::ledger::Position;
use crate::postgres::DatabaseAddress;
use crate::{Error, sqlite};
use digest::Digest;

pub use ends::CopyEnd;
pub use rows::LedgerTable;

pub(crate) use ends::{CopySource, CopyTarget, MarkedSource};
pub(crate) use rows::{CopyMark, Cursor, RowPage, TableRows, lanes};

/// Rows in one batch: some dozen megabytes at most.
pub const BATCH_ROWS_DEFAULT: u32 = 2_000;

#[derive(Clone, Debug)]
pub struct Options {
    pub from: CopyEnd,
    pub to: CopyEnd,
    /// Discards what an interrupted copy has left in the target.
    pub anew: bool,
    pub batch_rows: u32,
    /// The time of the wall clock, stored in the target.
    pub now_us: i64,
}

/// The stage of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStage {
    Copying,
    Verifying,
}

#[derive(Clone, Copy, Debug)]
pub struct CopyProgress {
    pub stage: CopyStage,
    pub table: LedgerTable,
    pub done: u64,
    pub all: u64,
}

/// The result of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// The copy resumed an interrupted one.
    pub resumed: bool,
    pub tables: Vec<Copied>,
    /// The time of the last commit in the source, in microseconds.
    pub last_time_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub table: LedgerTable,
    pub rows: u64,
    /// Equal on both sides.
    pub digest: String,
}

/// The content of a target before a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetContent {
    /// No database, or one without a ledger.
    Nothing,
    /// A ledger without content.
    Empty,
    /// A ledger with content.
    Ledger,
    /// An incomplete copy of this source.
    Part,
    /// An incomplete copy of another source, named here, or of an earlier state of this one.
    OtherPart(String),
}

/// What a copy would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    pub tables: Vec<(LedgerTable, u64)>,
    pub found: TargetContent,
    /// Why the copy would be refused.
    pub obstacles: Vec<String>,
}

/// Examines both ends and changes nothing.
pub fn plan(from: &CopyEnd, to: &CopyEnd, anew: bool) -> Result<CopyPlan, Error> {
    let mut source = from.source()?;
    let mut obstacles = Vec::new();
    if source.others()? > 0 {
        obstacles.push(in_use(from));
    }
    let content = LedgerContent::of(&mut *source)?;
    let mut found = TargetContent::Nothing;
    if let Some(mut target) = to.existing()? {
        let checked = TargetCheck::at(&mut *target, &mut *source, &content, (from, to), anew)?;
        found = checked.found;
        obstacles.extend(checked.obstacles);
    } else {
        obstacles.extend(to.obstacle()?);
    }
    Ok(CopyPlan {
        tables: content.counts,
        found,
        obstacles,
    })
}

/// The content of a target, and why a copy is refused.
struct TargetCheck {
    found: TargetContent,
    mark: Option<CopyMark>,
    obstacles: Vec<String>,
}

impl TargetCheck {
    fn at<T: MarkedSource + ?Sized>(
        target: &mut T,
        source: &mut dyn CopySource,
        content: &LedgerContent,
        (from, to): (&CopyEnd, &CopyEnd),
        anew: bool,
    ) -> Result<Self, Error> {
        if target.identity()? == source.identity()? {
            return Ok(Self {
                found: TargetContent::Nothing,
                mark: None,
                obstacles: vec![same(from)],
            });
        }
        let mut obstacles = Vec::new();
        if target.others()? > 0 {
            obstacles.push(in_use(to));
        }
        let (found, mark) = find(target, &content.fingerprint)?;
        obstacles.extend(refusal(&found, to, anew));
        Ok(Self {
            found,
            mark,
            obstacles,
        })
    }

    fn unless_refused(self) -> Result<Self, Error> {
        match self.obstacles.into_iter().next() {
            Some(obstacle) => Err(Error::Copy(obstacle)),
            None => Ok(Self {
                obstacles: Vec::new(),
                ..self
            }),
        }
    }
}

/// Copies everything, and verifies it. Blocks until the end.
pub fn copy(options: &Options, progress: impl FnMut(CopyProgress)) -> Result<CopyReport, Error> {
    let Options { from, to, anew, .. } = options;
    // Taken before the source is opened, and released after it is closed.
    let _hold = from.hold()?;
    let mut source = from.source()?;
    if source.others()? > 0 {
        return Err(Error::Copy(in_use(from)));
    }
    let content = LedgerContent::of(&mut *source)?;
    // Opening the target for writing migrates it, and a refused target must not change.
    if let Some(mut target) = to.existing()? {
        TargetCheck::at(&mut *target, &mut *source, &content, (from, to), *anew)?
            .unless_refused()?;
    }
    let mut target = to.target(options.now_us)?;
    // The target may have changed meanwhile; from here on the lock excludes other copies.
    let checked = TargetCheck::at(&mut *target, &mut *source, &content, (from, to), *anew)?;
    let TargetCheck { found, mark, .. } = checked.unless_refused()?;
    let resumed = mark.filter(|_| found == TargetContent::Part && !anew);
    let mut run = CopyRun {
        source: &mut *source,
        target: &mut *target,
        batch_rows: options.batch_rows.max(1),
        content: &content,
        progress,
    };
    let report = run.run(from, options.now_us, resumed)?;
    // A server that was started meanwhile has assigned numbers, and its writes would be missing.
    if !same_numbers(source.position()?, content.position) || source.others()? > 0 {
        return Err(Error::Copy(format!(
            "{from} was used during the copy; stop its servers and copy with --anew"
        )));
    }
    target.finish(content.position)?;
    Ok(report)
}

/// Saves a database, while servers run on it, as a new SQLite file.
pub fn save(
    from: &DatabaseAddress,
    to: &Path,
    now_us: i64,
    progress: impl FnMut(CopyProgress),
) -> Result<CopyReport, Error> {
    let from = CopyEnd::Database(Box::new(from.clone()));
    let mut source = from.source()?;
    let content = LedgerContent::of(&mut *source)?;
    let mut target = sqlite::copy::SqliteTarget::open(to, now_us)?;
    let mut run = CopyRun {
        source: &mut *source,
        target: &mut target,
        batch_rows: BATCH_ROWS_DEFAULT,
        content: &content,
        progress,
    };
    let saved = run.run(&from, now_us, None);
    let report = saved.map_err(crate::postgres::instant_lost)?;
    target.finish(content.position)?;
    target.close()?;
    Ok(report)
}

/// The size and position of a source.
struct LedgerContent {
    counts: Vec<(LedgerTable, u64)>,
    position: Position,
    /// Two databases with the same content as of the same commit may have the same fingerprint; that is intended.
    fingerprint: [u8; 32],
}

impl LedgerContent {
    /// Fixes the instant that the copy shows.
    fn of(source: &mut dyn CopySource) -> Result<Self, Error> {
        source.hold()?;
        // First, so that later writes are detected by the numbers they use.
        let position = source.position()?;
        let mut counts = Vec::new();
        for table in LedgerTable::ALL {
            counts.push((*table, source.count(*table)?));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(source.origin()?.as_bytes());
        hasher.update(&position.time.0.to_le_bytes());
        let numbers = counts.iter().map(|(_, count)| *count);
        // Not the position: after a crash PostgreSQL skips some numbers, with the same rows.
        for number in numbers.chain(source.highest()?) {
            hasher.update(&number.to_le_bytes());
        }
        Ok(Self {
            counts,
            position,
            fingerprint: hasher.finalize().into(),
        })
    }

    fn rows(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

/// The content of a target, with its mark.
fn find<T: MarkedSource + ?Sized>(
    target: &mut T,
    fingerprint: &[u8; 32],
) -> Result<(TargetContent, Option<CopyMark>), Error> {
    if let Some(mark) = target.mark()? {
        let found = if mark.fingerprint == *fingerprint {
            TargetContent::Part
        } else {
            TargetContent::OtherPart(mark.source.clone())
        };
        return Ok((found, Some(mark)));
    }
    for table in LedgerTable::ALL {
        if target.count(*table)? > 0 {
            return Ok((TargetContent::Ledger, None));
        }
    }
    Ok((TargetContent::Empty, None))
}

fn refusal(found: &TargetContent, to: &CopyEnd, anew: bool) -> Option<String> {
    match found {
        TargetContent::Nothing | TargetContent::Empty | TargetContent::Part => None,
        TargetContent::OtherPart(_) if anew => None,
        TargetContent::OtherPart(other) => Some(format!(
            "{to} holds a part of a copy of {other}, and this source is another one or has changed since; \
             resume that copy from its source, or discard the part with --anew"
        )),
        TargetContent::Ledger => Some(format!(
            "{to} holds a ledger with content, which is never overwritten; choose an empty database or a new file"
        )),
    }
}

fn in_use(end: &CopyEnd) -> String {
    format!("{end} is in use by a server or another copy; stop all of them first")
}

fn same(end: &CopyEnd) -> String {
    format!("source and target are the same database, {end}")
}

fn same_numbers(left: Position, right: Position) -> bool {
    (left.seq, left.fact) == (right.seq, right.fact)
}

/// A copy in progress.
struct CopyRun<'a, P> {
    source: &'a mut dyn CopySource,
    target: &'a mut dyn CopyTarget,
    batch_rows: u32,
    content: &'a LedgerContent,
    progress: P,
}

impl<P: FnMut(CopyProgress)> CopyRun<'_, P> {
    fn run(
        &mut self,
        from: &CopyEnd,
        now_us: i64,
        resumed: Option<CopyMark>,
    ) -> Result<CopyReport, Error> {
        let was_resumed = resumed.is_some();
        let mut mark = if let Some(mark) = resumed {
            mark
        } else {
            let mark = CopyMark {
                source: from.to_string(),
                fingerprint: self.content.fingerprint,
                began_at: now_us,
                tables: 0,
                cursor: Cursor::start(),
            };
            self.target.begin(&mark)?;
            mark
        };
        // A server that checked for the mark just before it was set has a connection by now.
        if self.target.others()? > 0 {
            return Err(Error::Copy(
                "a server was started on the target just now; stop it and copy again".to_owned(),
            ));
        }
        self.copy_rows(&mut mark)?;
        Ok(CopyReport {
            resumed: was_resumed,
            tables: self.verify()?,
            last_time_us: self.content.position.time.0,
        })
    }

    fn copy_rows(&mut self, mark: &mut CopyMark) -> Result<(), Error> {
        let copied = &LedgerTable::ALL[..mark.tables.min(LedgerTable::ALL.len())];
        let mut done: u64 = self.content.counts[..copied.len()]
            .iter()
            .map(|(_, count)| count)
            .sum();
        for table in &LedgerTable::ALL[copied.len()..] {
            loop {
                self.report_progress(CopyStage::Copying, *table, done);
                let page = self.source.page(*table, &mark.cursor, self.batch_rows)?;
                done += page.rows.len() as u64;
                let more = page.next.is_some();
                if let Some(next) = page.next {
                    mark.cursor = next;
                } else {
                    mark.tables += 1;
                    mark.cursor = Cursor::start();
                }
                self.target.write(page.rows, mark)?;
                failpoint::hit(Failpoint::DuringCopy);
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads both sides again, with the same code; the counts of the databases detect rows that the code skipped.
    fn verify(&mut self) -> Result<Vec<Copied>, Error> {
        let (mut tables, mut done) = (Vec::new(), 0);
        for (table, counted) in &self.content.counts {
            let [mut expected, mut found] = [Digest::default(); 2];
            for (is_source, digest) in [(true, &mut expected), (false, &mut found)] {
                let mut cursor = Cursor::start();
                loop {
                    let page = if is_source {
                        self.source.page(*table, &cursor, self.batch_rows)?
                    } else {
                        self.target.page(*table, &cursor, self.batch_rows)?
                    };
                    digest.add(&page.rows);
                    if is_source {
                        done += page.rows.len() as u64;
                        let progress = CopyProgress {
                            stage: CopyStage::Verifying,
                            table: *table,
                            done,
                            all: self.content.rows(),
                        };
                        (self.progress)(progress);
                    }
                    match page.next {
                        Some(next) => cursor = next,
                        None => break,
                    }
                }
            }
            if expected != found {
                return Err(Error::Copy(format!(
                    "the copy differs from its source: {} has {} rows (digest {}) and should have {} (digest {}); \
                     check the source with `consign store check`, then copy with --anew",
                    table.name(),
                    found.rows,
                    found.hex(),
                    expected.rows,
                    expected.hex(),
                )));
            }
            let there = self.target.count(*table)?;
            if expected.rows != *counted || there != *counted {
                return Err(Error::Copy(format!(
                    "the copy is not whole: of {} the source counts {counted} rows and the target {there}, and {} were \
                     compared; check the source with `consign store check`, then copy with --anew",
                    table.name(),
                    expected.rows,
                )));
            }
            tables.push(Copied {
                table: *table,
                rows: expected.rows,
                digest: expected.hex(),
            });
        }
        Ok(tables)
    }

    fn report_progress(&mut self, stage: CopyStage, table: LedgerTable, done: u64) {
        (self.progress)(CopyProgress {
            stage,
            table,
            done,
            all: self.content.rows(),
        });
    }
}
