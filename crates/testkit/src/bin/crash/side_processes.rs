//! Processes beside the server that are killed: a migration of a new database, and a backup.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use consign_testkit::process::{Server, cleaned, copy_secrets, run, serve_until_exit};
use serde_json::json;

use crate::trial::CrashTrial;
use consign_testkit::campaign::findings::Promise;

const LIMIT: Duration = Duration::from_secs(30);
/// Acknowledged before a backup begins, so it must contain them.
const IN_BACKUP: u64 = 20;

/// A finished backup, and the intents that it must contain.
#[derive(Debug)]
pub(crate) struct FinishedBackup {
    file: PathBuf,
    folder: PathBuf,
    ids: Vec<String>,
}

impl CrashTrial<'_> {
    /// A first start that is killed during its migration does not prevent the second one.
    pub(crate) fn abort_a_migration(&mut self, round: u64) -> io::Result<()> {
        let options = self
            .campaign
            .options(&self.state.folder.join(format!("migrated-{round}")));
        let aborted = options
            .clone()
            .env("CONSIGN_FAILPOINT", "during-migration:1");
        must_have_died(&serve_until_exit(&aborted, LIMIT)?, "the migration")?;
        let mut server = Server::start(&options)?;
        let ids = publish(&server, 1)?;
        server.kill9()?;
        let server = Server::start(&options)?;
        self.are_there(&server, &ids, Promise::PublishSurvives)
    }

    /// One backup is killed, the next one succeeds; both while the clients work.
    pub(crate) fn abort_a_backup(
        &mut self,
        round: u64,
        server: &Server,
    ) -> io::Result<FinishedBackup> {
        let torn = self.state.folder.join(format!("torn-{round}.db"));
        let mut command = self.backup_to(&torn);
        command.env("CONSIGN_FAILPOINT", "during-backup:1");
        must_have_died(&run(command, LIMIT)?, "the backup")?;
        self.state
            .findings
            .check(Promise::BackupWhole, !torn.exists(), || {
                format!("{} was cut short and has its name", torn.display())
            });

        let ids = publish(server, IN_BACKUP)?;
        let folder = self.state.folder.join(format!("restored-{round}"));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let file = folder.join("consign.db");
        let made = run(self.backup_to(&file), LIMIT);
        let succeeded = made.as_ref().is_ok_and(|made| made.status.success());
        self.state
            .findings
            .check(Promise::BackupWhole, succeeded, || format!("{made:?}"));
        Ok(FinishedBackup { file, folder, ids })
    }

    fn backup_to(&self, to: &Path) -> std::process::Command {
        let mut command = cleaned(&self.campaign.base.consign);
        command.args(["store", "backup"]).arg(to);
        command.arg("--data").arg(&self.options.data);
        command
    }

    /// Starts a server on the copy.
    pub(crate) fn restore(&mut self, backup: &FinishedBackup) -> io::Result<()> {
        if !backup.file.exists() {
            return Ok(());
        }
        copy_secrets(&self.options.data, &backup.folder)?;
        // With the clock of the servers, which the campaign moves: a ledger far ahead of the clock is a finding.
        let options = self.campaign.options(&backup.folder);
        let mut command = cleaned(&self.campaign.base.consign);
        command
            .args(["store", "check", "--data"])
            .arg(&backup.folder)
            .envs(options.env.iter().map(|(name, value)| (name, value)));
        let checked = run(command, LIMIT)?;
        self.state
            .findings
            .check(Promise::BackupWhole, checked.status.success(), || {
                String::from_utf8_lossy(&checked.stderr).into_owned()
            });
        let server = Server::start(&options)?;
        self.are_there(&server, &backup.ids, Promise::BackupWhole)
    }

    fn are_there(&mut self, server: &Server, ids: &[String], promise: Promise) -> io::Result<()> {
        let mut http = server.main_client()?;
        for id in ids {
            let status = http.get(&format!("/result/{id}"))?.status;
            self.state
                .findings
                .check(promise, status == 200, || format!("{id} is now {status}"));
        }
        Ok(())
    }
}

/// Publishes in a namespace without workers, and returns the ids.
fn publish(server: &Server, count: u64) -> io::Result<Vec<String>> {
    let mut http = server.main_client()?;
    let mut ids = Vec::new();
    for _ in 0..count {
        let body = json!({"goal": "aside", "payload": {}, "namespace": "aside"});
        let reply = http.post("/intent", &body)?.json();
        let id = reply["id"].as_str();
        ids.push(
            id.ok_or_else(|| io::Error::other(reply.to_string()))?
                .to_owned(),
        );
    }
    Ok(ids)
}

fn must_have_died(output: &Output, what: &str) -> io::Result<()> {
    if output.status.signal().is_some() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{what} was to die on its way, and ended with {}: {said}",
        output.status
    )))
}
