//! Whether SQLite finds a database file intact, without opening it as a ledger or an inbox.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// What is wrong with the file, in SQLite's words; `None` if it is intact or does not exist. Nothing is written.
pub fn find_damage(path: &Path) -> Option<String> {
    if !path.exists() {
        return None;
    }
    let checked = || {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.query_row("PRAGMA integrity_check(1)", [], |row| {
            row.get::<_, String>(0)
        })
    };
    match checked() {
        Ok(ok) if ok == "ok" => None,
        Ok(finding) => Some(finding),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found_and_an_intact_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        assert_eq!(find_damage(&path), None);
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (zeroblob(100000))")
            .unwrap();
        drop(connection);
        assert_eq!(find_damage(&path), None);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4_096..8_192].fill(0xff);
        std::fs::write(&path, &bytes).unwrap();
        assert!(find_damage(&path).is_some());
        std::fs::write(
            &path,
            "no database, and long enough to have a header of its own",
        )
        .unwrap();
        assert!(find_damage(&path).is_some());
    }
}
