//! The location of a ledger: a file, or a database on a PostgreSQL server; and the flags and variables that define
//! it.
//!
//! Invariant: `serve` and the commands of `store` find the same ledger with the same flags and variables, and no
//! message shows a password.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use consign_store::copy::CopyEnd;
use consign_store::postgres::DatabaseAddress;

use crate::config::database_path;
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::lock::DataLock;
use crate::out;

#[derive(Debug)]
pub(crate) enum LedgerLocation {
    File(PathBuf),
    Database(Box<DatabaseAddress>),
}

/// The flags that define the location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerFlags<'a> {
    pub(crate) store: Option<&'a str>,
    pub(crate) password_file: Option<&'a Path>,
}

impl LedgerLocation {
    /// The ledger of a server with these flags.
    pub(crate) fn of(
        named: LedgerFlags<'_>,
        db_path: Option<&Path>,
        data: &DataDir,
    ) -> anyhow::Result<Self> {
        let Some(url) = named.store.filter(|url| is_postgres(url)) else {
            if named.store.is_none() && db_path.is_none() {
                refuse_left_behind(data)?;
            }
            return Ok(Self::File(database_path(named.store, db_path, data)?));
        };
        let password = match named.password_file {
            Some(path) => Some(read_password(path)?),
            None => password_variable(),
        };
        Self::database(url, password.as_deref())
    }

    /// One of the two ledgers of a copy. The password variable may not be meant for both, so a password in the
    /// address takes precedence.
    pub(crate) fn end(url: &str, password_file: Option<&Path>) -> anyhow::Result<Self> {
        if !is_postgres(url) {
            let nowhere = DataDir::new(Path::new(""));
            return Ok(Self::File(database_path(Some(url), None, &nowhere)?));
        }
        let password = match password_file {
            Some(path) => Some(read_password(path)?),
            None => password_variable().filter(|_| !has_password(url)),
        };
        Self::database(url, password.as_deref())
    }

    fn database(url: &str, password: Option<&str>) -> anyhow::Result<Self> {
        let address = DatabaseAddress::parse(url, password)
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Self::Database(Box::new(address)))
    }

    /// For a file that is read in another working directory.
    pub(crate) fn noted(&self) -> String {
        match self {
            Self::File(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                path.display().to_string()
            }
            Self::Database(_) => self.to_string(),
        }
    }

    /// The same, unless it is the file of this directory.
    pub(crate) fn unless_of(&self, data: &DataDir) -> Option<String> {
        let own = Self::File(data.database_file()).noted();
        Some(self.noted()).filter(|location| *location != own)
    }

    /// Locks the file against other servers. Databases can be shared.
    pub(crate) fn lock(&self) -> anyhow::Result<Option<DataLock>> {
        match self {
            Self::File(path) => DataLock::database(path).map(Some),
            Self::Database(_) => Ok(None),
        }
    }

    pub(crate) fn to_end(&self) -> CopyEnd {
        match self {
            Self::File(path) => CopyEnd::File(path.clone()),
            Self::Database(address) => CopyEnd::Database(address.clone()),
        }
    }
}

/// For messages, without the password.
impl fmt::Display for LedgerLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Database(address) => address.fmt(f),
        }
    }
}

/// Refuses the old file of a directory whose ledger was moved to another location.
fn refuse_left_behind(data: &DataDir) -> anyhow::Result<()> {
    let Some(elsewhere) = data.ledger_elsewhere()? else {
        return Ok(());
    };
    let here = data.root().display();
    let message = format!("the last server of {here} kept its ledger in {elsewhere}");
    let hint = format!(
        "use --store or CONSIGN_STORE to name it; to use the file of this directory again, pass --store sqlite:{}",
        data.database_file().display()
    );
    Err(Failure::failed(message).hint(hint).into())
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// `user:password@` before the host, or `password=` after the question mark.
fn has_password(url: &str) -> bool {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let user = base.split_once("://").and_then(|(_, rest)| {
        let authority = rest.split('/').next()?;
        authority.rsplit_once('@').map(|(user, _)| user)
    });
    user.is_some_and(|user| user.contains(':'))
        || query.split('&').any(|pair| pair.starts_with("password="))
}

/// The password from its variable; a password in the address would be visible in the process list. Empty means unset.
fn password_variable() -> Option<String> {
    std::env::var("CONSIGN_STORE_PASSWORD")
        .ok()
        .filter(|password| !password.is_empty())
}

fn read_password(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let unreadable =
        |error| Failure::usage(format!("the password file {shown} cannot be read: {error}"));
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let mode = std::fs::metadata(path).map_err(unreadable)?.mode() & 0o777;
    // Not refused: the mode of mounted container secrets often cannot be changed.
    if mode & 0o004 != 0 {
        out::note(&format!(
            "the password file {shown} can be read by other users (mode {mode:04o}); set its mode to 600"
        ));
    }
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Failure::usage(format!(
            "the password file {shown} is empty"
        )));
    }
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_seen_and_nothing_else_is_taken_for_one() {
        for url in [
            "postgres://u:p@h/db",
            "postgres://u:@h:5432/db",
            "postgres://u@h/db?sslmode=disable&password=p",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "postgres://u@h:5432/db",
            "postgres://h:5432,g:5433/db",
            "postgres://u@h/db?options=a:b@c",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn both_kinds_of_ledger_are_named_alike_and_others_refused() {
        let shown = |url| LedgerLocation::end(url, None).unwrap().to_string();
        assert_eq!(shown("sqlite:/tmp/x.db"), "/tmp/x.db");
        assert_eq!(
            shown("postgres://u:hidden@127.0.0.1/db"),
            "postgres://127.0.0.1/db"
        );
        for url in ["x.db", "mysql://h/db", "sqlite:"] {
            assert!(LedgerLocation::end(url, None).is_err(), "{url}");
        }
    }
}
