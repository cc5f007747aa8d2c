//! Configuration from the environment and the flags.
//!
//! The face of the Intent Protocol parses its variables; this module provides the values. All other settings are
//! flags of `serve`.

use std::path::{Path, PathBuf};

use consign_intent::settings::IntentSettings;

use crate::data_dir::DataDir;
use crate::failure::Failure;

/// The variables of the Intent Protocol.
pub(crate) fn protocol_settings() -> Result<IntentSettings, Failure> {
    IntentSettings::read(|name| std::env::var(name).ok())
        .map_err(|unusable| Failure::usage(unusable.to_string()).hint(unusable.advice))
}

/// The database file: the flag, else the RFC's variable, else inside the data directory.
pub(crate) fn database_path(
    store: Option<&str>,
    db_path: Option<&Path>,
    data: &DataDir,
) -> Result<PathBuf, Failure> {
    let Some(url) = store else {
        return Ok(db_path.map_or_else(|| data.database_file(), Path::to_owned));
    };
    match url.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        // A mistyped address may contain a password after its first colon.
        _ => Err(Failure::usage(format!("unknown store {}", url.split(':').next().unwrap_or_default()))
            .hint("write it like sqlite:/var/lib/consign/consign.db, or for a server like postgres://USER@HOST/DATABASE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_169_bus_db_path_names_the_database_and_the_flag_beats_it() {
        let variable = |name: &str| (name == "BUS_DB_PATH").then(|| "/tmp/bus.db".to_owned());
        let settings = IntentSettings::read(variable).unwrap();
        let data = DataDir::new(Path::new("data"));
        let path = |store| database_path(store, settings.db_path.as_deref(), &data).unwrap();
        assert_eq!(path(None), Path::new("/tmp/bus.db"));
        assert_eq!(path(Some("sqlite:other.db")), Path::new("other.db"));
        let unset = database_path(None, None, &data).unwrap();
        assert_eq!(unset, Path::new("data/consign.db"));
    }

    #[test]
    fn a_mistyped_address_is_refused_without_its_password() {
        let data = DataDir::new(Path::new("data"));
        for (url, shown) in [
            ("mysql://u:hidden@h/db", "mysql"),
            ("Postgres://u:hidden@h/db", "Postgres"),
            ("postgres//u:hidden@h/db", "postgres//u"),
            ("x.db", "x.db"),
            ("sqlite:", "sqlite"),
        ] {
            let refused = database_path(Some(url), None, &data).unwrap_err();
            assert_eq!(refused.to_string(), format!("unknown store {shown}"));
        }
    }
}
