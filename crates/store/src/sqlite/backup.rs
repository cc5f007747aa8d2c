//! A copy of the file as of one instant, made while the server runs.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::schema;
use crate::Error;
use crate::failpoint::{self, Failpoint};

const PAGES_PER_STEP: i32 = 256;

/// Copies `from` to the new file `to`; `progress` gets the number of copied pages and of all pages.
pub fn backup(from: &Path, to: &Path, mut progress: impl FnMut(i32, i32)) -> Result<(), Error> {
    if to.exists() {
        return Err(Error::Open {
            path: to.to_owned(),
            reason: "it exists already; choose a new name".to_owned(),
        });
    }
    let source = schema::reader(from)?;
    // An open read transaction keeps one snapshot. Without it each commit of the server would restart the copy, and with
    // a busy server it would never end.
    source.execute_batch("BEGIN; SELECT 1 FROM sqlite_master LIMIT 1")?;
    let mut target = Connection::open(to)?;
    let copy = Backup::new(&source, &mut target)?;
    loop {
        let step = copy.step(PAGES_PER_STEP)?;
        failpoint::hit(Failpoint::DuringBackup);
        let pages = copy.progress();
        progress(pages.pagecount - pages.remaining, pages.pagecount);
        match step {
            StepResult::Done => break,
            StepResult::Busy | StepResult::Locked => std::thread::sleep(Duration::from_millis(20)),
            StepResult::More | _ => {}
        }
    }
    drop(copy);
    // The copy has no log.
    schema::note_open(&target, false)?;
    target.close().map_err(|(_, error)| error)?;
    std::fs::File::open(to)
        .and_then(|file| file.sync_all())
        .map_err(|error| Error::Unavailable(error.to_string()))
}
