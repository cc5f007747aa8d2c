//! Copies from a faulty source.

use std::path::Path;

use consign_kernel::record::{Key, Kind, Record};

use super::*;

/// A file whose reading by pages loses the last row of each page.
struct LossySource(sqlite::copy::SqliteSource);

impl CopySource for LossySource {
    fn identity(&mut self) -> Result<String, Error> {
        self.0.identity()
    }

    fn others(&mut self) -> Result<u64, Error> {
        self.0.others()
    }

    fn origin(&mut self) -> Result<String, Error> {
        self.0.origin()
    }

    fn position(&mut self) -> Result<Position, Error> {
        self.0.position()
    }

    fn highest(&mut self) -> Result<[u64; 2], Error> {
        self.0.highest()
    }

    fn count(&mut self, table: LedgerTable) -> Result<u64, Error> {
        self.0.count(table)
    }

    fn page(&mut self, table: LedgerTable, after: &Cursor, limit: u32) -> Result<RowPage, Error> {
        let mut page = self.0.page(table, after, limit)?;
        if let TableRows::Records(rows) = &mut page.rows {
            rows.pop();
        }
        Ok(page)
    }
}

fn start() -> CopyMark {
    CopyMark {
        source: "nowhere".to_owned(),
        fingerprint: [0; 32],
        began_at: 0,
        tables: 0,
        cursor: Cursor::start(),
    }
}

fn file_of_records(path: &Path, count: u32) {
    let record = |number: u32| Record {
        key: Key {
            kind: Kind::Kv,
            owner: "alice".to_owned(),
            name: format!("{number:04}"),
        },
        version: 1,
        value: "kept".to_owned(),
        expires_at: None,
    };
    let mut file = sqlite::copy::SqliteTarget::open(path, 0).unwrap();
    file.begin(&start()).unwrap();
    let rows = TableRows::Records((0..count).map(record).collect());
    file.write(rows, &start()).unwrap();
    file.finish(Position::default()).unwrap();
    file.close().unwrap();
}

#[test]
fn rows_that_the_reading_loses_on_both_sides_are_missed_by_the_count() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from.db", "to.db"].map(|name| folder.path().join(name));
    file_of_records(&from, 30);
    let verified = |source: &mut dyn CopySource| {
        let content = LedgerContent::of(source).unwrap();
        let mut target = sqlite::copy::SqliteTarget::open(&to, 0).unwrap();
        let mut work = CopyRun {
            source,
            target: &mut target,
            batch_rows: 10,
            content: &content,
            progress: |_| {},
        };
        work.run(&CopyEnd::File(from.clone()), 0, None)
    };
    let open = || sqlite::copy::SqliteSource::open(&from).unwrap();
    let refused = verified(&mut LossySource(open())).unwrap_err().to_string();
    assert!(refused.contains("not whole: of records"), "{refused}");
    verified(&mut open()).unwrap();
}
