//! The startup message: five lines for a new user, one more if the ledger is not in the data directory, and the new
//! secrets.
//!
//! Invariant: a secret is shown only on a terminal, once, and never if the log is JSON. Other outputs (a file, a pipe,
//! the system journal) are stored for long, so they contain only the path of the secret.

use consign_intent::settings::IntentSettings;

use super::LogFormat;
use crate::data_dir::DataDir;
use crate::out;
use crate::secrets::{SecretName, Secrets};

#[derive(Debug)]
pub(super) struct StartupMessage<'a> {
    pub(super) log_format: LogFormat,
    pub(super) base_url: &'a str,
    /// The ledger, without a password, if it is not in the data directory.
    pub(super) elsewhere: Option<&'a str>,
    pub(super) data: &'a DataDir,
    pub(super) secrets: &'a Secrets,
    pub(super) settings: &'a IntentSettings,
}

pub(super) fn print(startup_message: &StartupMessage<'_>) -> anyhow::Result<()> {
    let is_json = startup_message.log_format == LogFormat::Json;
    let to_person = out::notes_reach_a_terminal() && !is_json;
    for name in &startup_message.secrets.made {
        if let Some((what, secret)) = shown(*name, startup_message.secrets) {
            let kept = file(startup_message.data, *name);
            if is_json {
                tracing::info!("made {what}: kept in {kept}");
            } else if to_person {
                out::note(&format!(
                    "made {what}: {secret}  (shown once, kept in {kept})"
                ));
            } else {
                out::note(&format!("made {what}: kept in {kept}"));
            }
        }
    }
    if is_json {
        let (address, data) = (startup_message.base_url, startup_message.data);
        tracing::info!(address, data = %data.root().display(), "listening");
    }
    out::data(&lines(startup_message))
}

fn lines(startup_message: &StartupMessage<'_>) -> String {
    let StartupMessage {
        base_url,
        elsewhere,
        data,
        settings,
        ..
    } = startup_message;
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "consign".to_owned());
    let dashboard = if settings.dashboard_password.is_some() {
        "DASHBOARD_PASSWORD".to_owned()
    } else {
        file(data, SecretName::DashboardPassword)
    };
    let (key, claim) = if settings.bus_secret.is_some() {
        (
            "$BUS_SECRET".to_owned(),
            format!("CONSIGN_KEY=\"$BUS_SECRET\" {program} intent claim"),
        )
    } else {
        (
            format!("$(cat {})", file(data, SecretName::BusSecret)),
            format!("{program} intent claim"),
        )
    };
    let own_data = if data.root() == std::path::Path::new("./consign-data") {
        String::new()
    } else {
        format!(" --data {}", data.root().display())
    };
    let insecure = if base_url.starts_with("https") {
        "-k "
    } else {
        ""
    };
    let ledger = elsewhere.map_or_else(String::new, |place| format!("ledger     {place}\n"));
    format!(
        "listening  {base_url}\n\
         dashboard  {base_url}/admin/dashboard  (user admin, password in {dashboard})\n\
         {ledger}keys       {}\n\
         publish    curl {insecure}-H \"X-API-KEY: {key}\" -d '{{\"goal\":\"hello\",\"payload\":{{\"name\":\"world\"}}}}' {base_url}/intent\n\
         claim      {claim}{own_data}\n",
        data.keys().display(),
    )
}

fn file(data: &DataDir, name: SecretName) -> String {
    data.key_file(name.file()).display().to_string()
}

/// The sealing and signing keys are never shown: no user has to type them.
fn shown(name: SecretName, secrets: &Secrets) -> Option<(&'static str, &str)> {
    match name {
        SecretName::BusSecret => Some(("the main API key", secrets.bus_secret.reveal())),
        SecretName::AdminSecret => Some(("the admin token", secrets.admin_secret.reveal())),
        SecretName::DashboardPassword => Some((
            "the dashboard password",
            secrets.dashboard_password.reveal(),
        )),
        SecretName::MetricsToken => Some(("the metrics token", secrets.metrics_token.reveal())),
        SecretName::SealKey | SecretName::ReceiptSeed => None,
    }
}
