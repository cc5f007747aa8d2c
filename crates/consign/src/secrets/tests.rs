//! First start, second start, overrides and refused modes.

use std::fs::Permissions;

use super::*;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn fresh() -> (tempfile::TempDir, DataDir) {
    let parent = tempfile::tempdir().unwrap();
    let data = DataDir::new(&parent.path().join("data"));
    (parent, data)
}

fn open(data: &DataDir) -> anyhow::Result<Secrets> {
    Secrets::open(data, &Overrides::default(), LedgerState::New)
}

#[test]
fn the_first_start_makes_six_private_files_and_the_second_reads_them() {
    let (_parent, data) = fresh();
    let first = open(&data).unwrap();
    assert_eq!(first.made.len(), 6);
    assert!(first.bus_secret.reveal().starts_with("ck_"));
    assert_eq!(first.bus_secret.reveal().len(), 43);
    for name in &first.made {
        let mode = fs::metadata(data.key_file(name.file()))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name:?}");
    }
    let second = open(&data).unwrap();
    assert!(second.made.is_empty());
    assert_eq!(second.bus_secret.reveal(), first.bus_secret.reveal());
    assert_eq!(second.receipt_seed.reveal(), first.receipt_seed.reveal());
}

#[test]
fn the_environment_wins_and_is_not_written() {
    let (_parent, data) = fresh();
    let overrides = Overrides {
        bus_secret: Some(Secret::new("from-env".to_owned())),
        seal_key: Some(Secret::new("AB".repeat(32))),
        ..Overrides::default()
    };
    let secrets = Secrets::open(&data, &overrides, LedgerState::New).unwrap();
    assert_eq!(secrets.bus_secret.reveal(), "from-env");
    assert_eq!(secrets.seal_key.reveal(), &[0xab; 32]);
    assert!(!data.key_file("bus_secret").exists() && !data.key_file("seal_key").exists());
    assert_eq!(secrets.made.len(), 4);
}

#[test]
fn a_seal_key_of_the_wrong_length_names_the_variable() {
    let (_parent, data) = fresh();
    let overrides = Overrides {
        seal_key: Some(Secret::new("abcd".to_owned())),
        ..Overrides::default()
    };
    let error = Secrets::open(&data, &overrides, LedgerState::New)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the variable CONSIGN_SEAL_KEY does not hold 64 hexadecimal digits"
    );
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let (_parent, data) = fresh();
    open(&data).unwrap();
    chmod(&data.keys(), 0o755);
    let error = open(&data).unwrap_err().to_string();
    assert!(
        error.ends_with("data/keys is open to other users (mode 0755)"),
        "{error}"
    );

    chmod(&data.keys(), 0o700);
    chmod(&data.key_file("bus_secret"), 0o640);
    let error = open(&data).unwrap_err().to_string();
    assert!(
        error.ends_with("bus_secret is open to other users (mode 0640)"),
        "{error}"
    );
}

#[test]
fn an_emptied_file_is_an_error_and_not_an_empty_key() {
    let (_parent, data) = fresh();
    open(&data).unwrap();
    fs::write(data.key_file("admin_secret"), "\n").unwrap();
    let error = open(&data).unwrap_err().to_string();
    assert!(error.ends_with("admin_secret is empty"), "{error}");
}

#[test]
fn a_key_that_a_ledger_depends_on_is_not_made_anew() {
    let overrides = Overrides {
        seal_key: Some(Secret::new("ab".repeat(32))),
        ..Overrides::default()
    };
    for name in [SecretName::SealKey, SecretName::ReceiptSeed] {
        let (_parent, data) = fresh();
        let made = open(&data).unwrap();
        let path = data.key_file(name.file());
        let text = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let refused = Secrets::open(&data, &Overrides::default(), LedgerState::Existing)
            .unwrap_err()
            .to_string();
        let expected = format!("data/keys/{} is missing", name.file());
        assert!(refused.ends_with(&expected), "{refused}");
        assert!(!path.exists(), "it was made all the same");
        // The variable stands in for the seal key alone.
        let with_variable = Secrets::open(&data, &overrides, LedgerState::Existing);
        assert_eq!(with_variable.is_ok(), name == SecretName::SealKey);

        write_private(&path, &text).unwrap();
        let back = Secrets::open(&data, &Overrides::default(), LedgerState::Existing).unwrap();
        assert_eq!(back.seal_key.reveal(), made.seal_key.reveal());
        assert_eq!(back.receipt_seed.reveal(), made.receipt_seed.reveal());
    }
}

#[test]
fn secrets_that_no_stored_data_depends_on_are_made_beside_a_ledger() {
    let (_parent, data) = fresh();
    open(&data).unwrap();
    fs::remove_file(data.key_file("metrics_token")).unwrap();
    let again = Secrets::open(&data, &Overrides::default(), LedgerState::Existing).unwrap();
    assert_eq!(again.made, [SecretName::MetricsToken]);
}

#[test]
fn debug_shows_no_secret() {
    let (_parent, data) = fresh();
    let secrets = open(&data).unwrap();
    let shown = format!("{secrets:?}");
    assert!(!shown.contains("ck_"), "{shown}");
}
