//! The server's secrets: created on the first start, read afterwards, never readable by other users.
//!
//! Invariant: a secret is on disk before it is used, with mode 0600 in a directory of mode 0700. Looser modes are
//! refused, not repaired, because others may already have read the file. Values from the environment take precedence
//! over files and are never written. A secret that an existing ledger depends on is never replaced without an
//! explicit request.

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use consign_intent::settings::IntentSettings;
use consign_store::sqlite::{FileKind, identify};
use consign_web::credentials::SECRET_CHARS_MIN;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use zeroize::{Zeroize, Zeroizing};

pub(crate) use consign_web::secret_text::SecretText as Secret;

use crate::data_dir::{DataDir, write_private};
use crate::failure::Failure;
use crate::ledger_trouble::explained;

const SECRET_FILE_BYTES_MAX: u64 = 4096;

/// 32 secret bytes.
#[derive(Clone)]
pub(crate) struct SecretBytes(Zeroizing<[u8; 32]>);

impl SecretBytes {
    pub(crate) fn reveal(&self) -> &[u8; 32] {
        &self.0
    }

    fn from_hex(text: &str) -> Option<Self> {
        let mut decoded = HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes()).ok()?;
        let bytes = decoded.as_slice().try_into().ok().map(Zeroizing::new);
        decoded.zeroize();
        bytes.map(Self)
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretBytes(hidden)")
    }
}

/// The secrets; also the names of their files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretName {
    BusSecret,
    AdminSecret,
    DashboardPassword,
    MetricsToken,
    SealKey,
    ReceiptSeed,
}

impl SecretName {
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::BusSecret => "bus_secret",
            Self::AdminSecret => "admin_secret",
            Self::DashboardPassword => "dashboard_password",
            Self::MetricsToken => "metrics_token",
            Self::SealKey => "seal_key",
            Self::ReceiptSeed => "receipt_seed",
        }
    }

    /// The prefix of a new secret (so that scanners can detect it) and the number of its random bytes, written as two
    /// hexadecimal digits each.
    fn recipe(self) -> (&'static str, usize) {
        match self {
            Self::BusSecret => ("ck_", 20),
            Self::AdminSecret => ("ca_", 20),
            Self::DashboardPassword => ("cd_", 20),
            Self::MetricsToken => ("cm_", 20),
            Self::SealKey | Self::ReceiptSeed => ("", 32),
        }
    }
}

/// Values from the environment, which take precedence over files.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) bus_secret: Option<Secret>,
    pub(crate) admin_secret: Option<Secret>,
    pub(crate) dashboard_password: Option<Secret>,
    pub(crate) metrics_token: Option<Secret>,
    /// `CONSIGN_SEAL_KEY`, 64 hexadecimal digits.
    pub(crate) seal_key: Option<Secret>,
}

impl Overrides {
    pub(crate) fn new(settings: &IntentSettings, seal_key: Option<Secret>) -> Self {
        Self {
            bus_secret: settings.bus_secret.clone(),
            admin_secret: settings.admin_secret.clone(),
            dashboard_password: settings.dashboard_password.clone(),
            metrics_token: settings.metrics_token.clone(),
            seal_key,
        }
    }
}

/// The secret files that all servers of a database share.
pub(crate) const SHARED: &str = "seal_key, receipt_seed and bus_secret";

/// Whether there is data that was written with existing secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerState {
    New,
    Existing,
    /// Existing, and other servers have the secrets too.
    Shared,
}

impl LedgerState {
    pub(crate) fn at(path: &Path) -> anyhow::Result<Self> {
        let found = identify(path).map_err(|error| explained(error, path))?;
        Ok(match found {
            FileKind::Consign => Self::Existing,
            FileKind::Nothing | FileKind::IntentBus | FileKind::OtherDatabase => Self::New,
        })
    }
}

/// All secrets of a server.
#[derive(Debug)]
pub(crate) struct Secrets {
    pub(crate) bus_secret: Secret,
    pub(crate) admin_secret: Secret,
    pub(crate) dashboard_password: Secret,
    pub(crate) metrics_token: Secret,
    pub(crate) seal_key: SecretBytes,
    pub(crate) receipt_seed: SecretBytes,
    /// The secrets that were created now; only these are shown to the user, once.
    pub(crate) made: Vec<SecretName>,
}

impl Secrets {
    /// Reads the secrets and creates the missing ones. The caller holds the directory's lock, so that two concurrent
    /// first starts cannot create different keys.
    pub(crate) fn open(
        data: &DataDir,
        overrides: &Overrides,
        ledger: LedgerState,
    ) -> anyhow::Result<Self> {
        data.create()?;
        refuse_loose_mode(&data.keys(), "700")?;
        if ledger != LedgerState::New {
            refuse_loss(data, overrides, ledger)?;
        }
        let mut made = Vec::new();
        let mut text = |name, given: &Option<Secret>| match given {
            Some(secret) => Ok(secret.clone()),
            None => read_or_make(data, name, &mut made),
        };
        let bus_secret = text(SecretName::BusSecret, &overrides.bus_secret)?;
        let admin_secret = text(SecretName::AdminSecret, &overrides.admin_secret)?;
        let dashboard_password =
            text(SecretName::DashboardPassword, &overrides.dashboard_password)?;
        let metrics_token = text(SecretName::MetricsToken, &overrides.metrics_token)?;
        let seal_key = text(SecretName::SealKey, &overrides.seal_key)?;
        let receipt_seed = text(SecretName::ReceiptSeed, &None)?;
        let seal_key_origin = match overrides.seal_key {
            Some(_) => "the variable CONSIGN_SEAL_KEY".to_owned(),
            None => data
                .key_file(SecretName::SealKey.file())
                .display()
                .to_string(),
        };
        let receipt_seed_origin = data.key_file(SecretName::ReceiptSeed.file());
        Ok(Self {
            bus_secret,
            admin_secret,
            dashboard_password,
            metrics_token,
            seal_key: thirty_two_bytes(&seal_key, &seal_key_origin)?,
            receipt_seed: thirty_two_bytes(
                &receipt_seed,
                &receipt_seed_origin.display().to_string(),
            )?,
            made,
        })
    }
}

/// A new seal key could not decrypt the keys in the ledger, and a new seed could not verify its receipts.
fn refuse_loss(data: &DataDir, overrides: &Overrides, ledger: LedgerState) -> anyhow::Result<()> {
    let missing = |name| -> anyhow::Result<bool> { Ok(read(data, name)?.is_none()) };
    let (name, consequence) = if overrides.seal_key.is_none() && missing(SecretName::SealKey)? {
        (
            SecretName::SealKey,
            "this works only as long as the database holds no API keys besides the main key; \
             otherwise start with a new database",
        )
    } else if missing(SecretName::ReceiptSeed)? {
        (
            SecretName::ReceiptSeed,
            "earlier receipts can then no longer be verified by this server",
        )
    } else {
        return Ok(());
    };
    let (path, keys) = (data.key_file(name.file()), data.keys());
    let hint = if ledger == LedgerState::Shared {
        format!(
            "copy {SHARED} from the keys folder of another server of this database to {}, with mode 600; if they are \
             lost, write 64 random hexadecimal digits into each, and start the first server with --new-secrets: \
             {consequence}",
            keys.display()
        )
    } else {
        format!(
            "restore the file from a backup of {}; or, to continue without the old keys, write 64 random \
             hexadecimal digits into it, with mode 600: {consequence}",
            keys.display()
        )
    };
    let message = format!("the database exists, but {} is missing", path.display());
    Err(Failure::failed(message).hint(hint).into())
}

/// Reads one secret for a command on the same machine; `None` if it was never created.
pub(crate) fn read(data: &DataDir, name: SecretName) -> anyhow::Result<Option<Secret>> {
    read_at(&data.key_file(name.file()))
}

pub(crate) fn read_at(path: &Path) -> anyhow::Result<Option<Secret>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(
                anyhow::Error::new(error).context(format!("cannot read {}", path.display()))
            );
        }
    };
    refuse_loose_mode(path, "600")?;
    let mut text = Zeroizing::new(String::new());
    file.take(SECRET_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {}", path.display()))?;
    if text.trim().is_empty() {
        return Err(Failure::failed(format!("{} is empty", path.display()))
            .hint("restore the secret from a backup, or delete the file to create a new one")
            .into());
    }
    Ok(Some(Secret::new(text.trim().to_owned())))
}

/// Reads one secret of 32 bytes for a command on the same machine.
pub(crate) fn read_bytes(data: &DataDir, name: SecretName) -> anyhow::Result<Option<SecretBytes>> {
    read_bytes_at(&data.key_file(name.file()))
}

/// The same for a file elsewhere.
pub(crate) fn read_bytes_at(path: &Path) -> anyhow::Result<Option<SecretBytes>> {
    let Some(secret) = read_at(path)? else {
        return Ok(None);
    };
    let origin = path.display().to_string();
    Ok(Some(thirty_two_bytes(&secret, &origin)?))
}

fn read_or_make(
    data: &DataDir,
    name: SecretName,
    made: &mut Vec<SecretName>,
) -> anyhow::Result<Secret> {
    if let Some(secret) = read(data, name)? {
        refuse_short(&secret, &data.key_file(name.file()))?;
        return Ok(secret);
    }
    let (prefix, length) = name.recipe();
    let mut random = Zeroizing::new(vec![0_u8; length]);
    getrandom::fill(&mut random).context("no source of random numbers")?;
    let secret = Secret::new(format!("{prefix}{}", HEXLOWER.encode(&random)));
    let line = Zeroizing::new(format!("{}\n", secret.reveal()));
    write_private(&data.key_file(name.file()), line.as_bytes())?;
    made.push(name);
    Ok(secret)
}

/// A chosen secret; generated ones are longer.
fn refuse_short(secret: &Secret, path: &Path) -> Result<(), Failure> {
    if secret.reveal().len() >= SECRET_CHARS_MIN {
        return Ok(());
    }
    let path = path.display();
    let message =
        format!("{path} has fewer than {SECRET_CHARS_MIN} characters, so it can be guessed");
    Err(Failure::failed(message)
        .hint("write a long random text into it, or delete the file to create a new secret"))
}

fn thirty_two_bytes(secret: &Secret, origin: &str) -> Result<SecretBytes, Failure> {
    SecretBytes::from_hex(secret.reveal())
        .ok_or_else(|| Failure::usage(format!("{origin} does not hold 64 hexadecimal digits")))
}

pub(crate) fn refuse_loose_mode(path: &Path, wanted: &str) -> anyhow::Result<()> {
    let metadata =
        fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o7777;
    let for_others = mode & 0o077;
    if for_others == 0 {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} is open to other users (mode {mode:04o})",
        path.display()
    ))
    .hint(format!(
        "chmod {wanted} {}; replace the secret if others may have read it",
        path.display()
    ))
    .into())
}

#[cfg(test)]
mod tests;
