//! Everything a ledger holds, copied from one database to another, whichever two they are.
//!
//! Invariant: a target is marked in the transaction that begins the copy, and the mark goes with the last one, after the rows of
//! both sides were counted and hashed. In between no server starts on it, and the same copy, run again, goes on where it
//! was: how far it has come is written together with the rows.

mod digest;
mod ends;
mod rows;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::failpoint::{self, Failpoint};
use crate::ledger::Position;
use crate::postgres::Address;
use crate::{Error, sqlite};
use digest::Digest;

pub use ends::End;
pub use rows::Table;

pub(crate) use ends::{Marked, Source, Target};
pub(crate) use rows::{Cursor, Mark, Page, Rows, lanes};

/// Rows that are read and written in one go: some dozen megabytes at most.
pub const BATCH_ROWS_DEFAULT: u32 = 2_000;

#[derive(Clone, Debug)]
pub struct Options {
    pub from: End,
    pub to: End,
    /// Throws away what a copy that was cut off has left in the target.
    pub anew: bool,
    pub batch_rows: u32,
    /// The time of the wall clock, noted in the target.
    pub now_us: i64,
}

/// What a copy is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Copying,
    Verifying,
}

#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub stage: Stage,
    pub table: Table,
    pub done: u64,
    pub all: u64,
}

/// What both sides hold now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// It went on where an earlier one was cut off.
    pub resumed: bool,
    pub tables: Vec<Copied>,
    /// The time of the last commit in the source, in microseconds.
    pub last_time_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub table: Table,
    pub rows: u64,
    /// The same on both sides.
    pub digest: String,
}

/// What a target holds before a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No database, or one without a ledger.
    Nothing,
    /// A ledger without content.
    Empty,
    /// A ledger that is in use or was.
    Ledger,
    /// A part of a copy of this very source.
    Part,
    /// A part of a copy of something else, named here, or of this source as it was before.
    OtherPart(String),
}

/// What a copy would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub tables: Vec<(Table, u64)>,
    pub found: Found,
    /// Why the copy would be refused.
    pub obstacles: Vec<String>,
}

/// Looks at both ends and changes nothing.
pub fn look(from: &End, to: &End, anew: bool) -> Result<Plan, Error> {
    let mut source = from.source()?;
    let mut obstacles = Vec::new();
    if source.others()? > 0 {
        obstacles.push(in_use(from));
    }
    let content = Content::of(&mut *source)?;
    let mut found = Found::Nothing;
    if let Some(mut target) = to.existing()? {
        let seen = Seen::at(&mut *target, &mut *source, &content, (from, to), anew)?;
        found = seen.found;
        obstacles.extend(seen.obstacles);
    } else {
        obstacles.extend(to.obstacle()?);
    }
    Ok(Plan {
        tables: content.counts,
        found,
        obstacles,
    })
}

/// What lies in a target, and why nothing is copied to it.
struct Seen {
    found: Found,
    mark: Option<Mark>,
    obstacles: Vec<String>,
}

impl Seen {
    fn at<T: Marked + ?Sized>(
        target: &mut T,
        source: &mut dyn Source,
        content: &Content,
        (from, to): (&End, &End),
        anew: bool,
    ) -> Result<Self, Error> {
        if target.identity()? == source.identity()? {
            return Ok(Self {
                found: Found::Nothing,
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

/// Copies everything, and verifies it. Blocks until it is done.
pub fn copy(options: &Options, progress: impl FnMut(Progress)) -> Result<Report, Error> {
    let Options { from, to, anew, .. } = options;
    // Before the source is opened, and given back after it is closed.
    let _hold = from.hold()?;
    let mut source = from.source()?;
    if source.others()? > 0 {
        return Err(Error::Copy(in_use(from)));
    }
    let content = Content::of(&mut *source)?;
    // To be written to it is brought up to date first, and one that is refused is not changed.
    if let Some(mut target) = to.existing()? {
        Seen::at(&mut *target, &mut *source, &content, (from, to), *anew)?.unless_refused()?;
    }
    let mut target = to.target(options.now_us)?;
    // Somebody may have come meanwhile; from here on the lock keeps other copies away.
    let seen = Seen::at(&mut *target, &mut *source, &content, (from, to), *anew)?;
    let Seen { found, mark, .. } = seen.unless_refused()?;
    let resumed = mark.filter(|_| found == Found::Part && !anew);
    let mut work = Work {
        source: &mut *source,
        target: &mut *target,
        batch_rows: options.batch_rows.max(1),
        content: &content,
        progress,
    };
    let report = work.run(from, options.now_us, resumed)?;
    // A server that was started meanwhile has taken numbers, and what it wrote would be missing.
    if !same_numbers(source.position()?, content.position) || source.others()? > 0 {
        return Err(Error::Copy(format!(
            "{from} was used during the copy; stop its servers and copy with --anew"
        )));
    }
    target.finish(content.position)?;
    Ok(report)
}

/// Saves a database, while servers work on it, as a new SQLite file.
pub fn save(
    from: &Address,
    to: &Path,
    now_us: i64,
    progress: impl FnMut(Progress),
) -> Result<Report, Error> {
    let from = End::Database(Box::new(from.clone()));
    let mut source = from.source()?;
    let content = Content::of(&mut *source)?;
    let mut target = sqlite::copy::Writer::open(to, now_us)?;
    let mut work = Work {
        source: &mut *source,
        target: &mut target,
        batch_rows: BATCH_ROWS_DEFAULT,
        content: &content,
        progress,
    };
    let saved = work.run(&from, now_us, None);
    let report = saved.map_err(crate::postgres::instant_lost)?;
    target.finish(content.position)?;
    target.close()?;
    Ok(report)
}

/// How much a source holds, and as of when.
struct Content {
    counts: Vec<(Table, u64)>,
    position: Position,
    /// Two databases that hold the same as of the same commit may have the same one; that is what it is for.
    fingerprint: [u8; 32],
}

impl Content {
    /// Holds on to the instant that the copy shall show.
    fn of(source: &mut dyn Source) -> Result<Self, Error> {
        source.hold()?;
        // First, so that whoever writes from here on is noticed by the numbers it takes.
        let position = source.position()?;
        let mut counts = Vec::new();
        for table in Table::ALL {
            counts.push((*table, source.count(*table)?));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(source.origin()?.as_bytes());
        hasher.update(&position.time.0.to_le_bytes());
        let numbers = counts.iter().map(|(_, count)| *count);
        // Not the position: a PostgreSQL that crashed goes on some numbers further, with the same rows.
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

/// What lies in a target, with its mark.
fn find<T: Marked + ?Sized>(
    target: &mut T,
    fingerprint: &[u8; 32],
) -> Result<(Found, Option<Mark>), Error> {
    if let Some(mark) = target.mark()? {
        let found = if mark.fingerprint == *fingerprint {
            Found::Part
        } else {
            Found::OtherPart(mark.source.clone())
        };
        return Ok((found, Some(mark)));
    }
    for table in Table::ALL {
        if target.count(*table)? > 0 {
            return Ok((Found::Ledger, None));
        }
    }
    Ok((Found::Empty, None))
}

fn refusal(found: &Found, to: &End, anew: bool) -> Option<String> {
    match found {
        Found::Nothing | Found::Empty | Found::Part => None,
        Found::OtherPart(_) if anew => None,
        Found::OtherPart(other) => Some(format!(
            "{to} holds a part of a copy of {other}, and this source is another one or has changed since; \
             go on with that one as it was, or throw the part away with --anew"
        )),
        Found::Ledger => Some(format!(
            "{to} holds a ledger with content, which is never overwritten; choose an empty database or a new file"
        )),
    }
}

fn in_use(end: &End) -> String {
    format!("{end} is in use by a server or another copy; stop all of them first")
}

fn same(end: &End) -> String {
    format!("source and target are the same database, {end}")
}

fn same_numbers(left: Position, right: Position) -> bool {
    (left.seq, left.fact) == (right.seq, right.fact)
}

/// A copy on its way.
struct Work<'a, P> {
    source: &'a mut dyn Source,
    target: &'a mut dyn Target,
    batch_rows: u32,
    content: &'a Content,
    progress: P,
}

impl<P: FnMut(Progress)> Work<'_, P> {
    fn run(&mut self, from: &End, now_us: i64, resumed: Option<Mark>) -> Result<Report, Error> {
        let was_resumed = resumed.is_some();
        let mut mark = if let Some(mark) = resumed {
            mark
        } else {
            let mark = Mark {
                source: from.to_string(),
                fingerprint: self.content.fingerprint,
                began_at: now_us,
                tables: 0,
                cursor: Cursor::start(),
            };
            self.target.begin(&mark)?;
            mark
        };
        // A server that looked for the mark just before it was there has a connection by now.
        if self.target.others()? > 0 {
            return Err(Error::Copy(
                "a server was started on the target just now; stop it and copy again".to_owned(),
            ));
        }
        self.copy_rows(&mut mark)?;
        Ok(Report {
            resumed: was_resumed,
            tables: self.verify()?,
            last_time_us: self.content.position.time.0,
        })
    }

    fn copy_rows(&mut self, mark: &mut Mark) -> Result<(), Error> {
        let copied = &Table::ALL[..mark.tables.min(Table::ALL.len())];
        let mut done: u64 = self.content.counts[..copied.len()]
            .iter()
            .map(|(_, count)| count)
            .sum();
        for table in &Table::ALL[copied.len()..] {
            loop {
                self.tell(Stage::Copying, *table, done);
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

    /// Reads both sides once more, by the same code; and what that code passed over, the database has counted.
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
                        let tell = Progress {
                            stage: Stage::Verifying,
                            table: *table,
                            done,
                            all: self.content.rows(),
                        };
                        (self.progress)(tell);
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

    fn tell(&mut self, stage: Stage, table: Table, done: u64) {
        (self.progress)(Progress {
            stage,
            table,
            done,
            all: self.content.rows(),
        });
    }
}
