//! `consign daemon up`: in the foreground, or as a process of its own that is waited for until it is ready.

use std::ffi::OsString;
use std::time::Duration;

use consign_mesh::daemon::{self, DaemonOptions, fleet};
use consign_mesh::environment::IdentityFlag;
use consign_mesh::id::{DisplayName, MeshSlug};
use consign_mesh::invite::InvitePayload;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::DaemonSelector;
use super::detach::{self, Started};
use super::files::{accept, settings};
use super::guest_rows;
use super::launch::DaemonLaunch;
use super::uninstall::end_membership;
use crate::commands::mesh::join::join_unrecorded;
use crate::failure::{Exit, Failure};
use crate::lock;
use crate::mesh_member::home::{self, MemberHome};
use crate::{input, out, planted};

pub(super) const AFTER_HELP: &str = "\
Exit codes:
  0   stopped, or started in the background and ready
  1   failed, or a daemon of this mesh is already running
  2   wrong usage, or no mesh is joined
  3   config.toml or config.json cannot be used
  4   the machine is not the one that the keys belong to
  5   the member was revoked
  6   a newer connection of the member took over
  10  the broker lacks a feature
  11  the broker offers a feature with parameters that cannot be used
  12  the broker remembers ids for too short a time";

#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the protocol and independent of the others"
)]
#[expect(
    clippy::unsafe_derive_deserialize,
    reason = "the methods are written by clap, and any values of the fields are valid"
)]
pub(super) struct UpArgs {
    /// Stay in the foreground and log to standard error
    #[arg(long, conflicts_with = "all")]
    foreground: bool,

    /// Start the daemons of all joined meshes
    #[arg(long, conflicts_with = "mesh")]
    all: bool,

    /// Keep the keys in memory only; the default in CI
    #[arg(long)]
    ephemeral: bool,

    /// Join with this invite as a member of its own, which leaves when the daemon ends; nothing of it is written
    #[arg(long, value_name = "LINK_OR_TOKEN", requires_all = ["ephemeral", "name"], conflicts_with = "all")]
    invite: Option<String>,

    /// End after this time, such as 30s, 10m or 2h
    #[arg(long, value_name = "DURATION", requires = "ephemeral", value_parser = duration)]
    ttl: Option<Duration>,

    /// Keep the keys in a file, also in CI
    #[arg(long, conflicts_with = "ephemeral")]
    persistent: bool,

    /// The name that other members see; used at the first start only
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Use --name also at a later start, and announce the new name
    #[arg(long, requires = "name")]
    rename: bool,

    /// This machine is a container: serve the socket file and no TCP port
    #[arg(long)]
    container: bool,

    /// Keep the keys although they belong to another machine
    #[arg(long, alias = "accept-host")]
    accept_cloned_identity: bool,

    /// This process was started by `daemon up` without --foreground.
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
}

impl UpArgs {
    pub(super) fn is_foreground(&self) -> bool {
        self.foreground
    }

    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        if self.foreground {
            if let Some(invite) = &self.invite {
                return self.serve_guest(invite).await;
            }
            let (home, slug) = target.place()?;
            return self.serve(&home, &slug).await;
        }
        if self.all {
            return self.run_all(target).await;
        }
        let (home, slug) = match &self.invite {
            Some(invite) => {
                let (home, payload) = guest(invite)?;
                (home, invited_slug(&payload)?)
            }
            None => target.place()?,
        };
        if self.invite.is_none() {
            // Reported here, with the exit code of the daemon.
            home.membership(&slug)?;
        }
        let started = detach::start(&home, &slug, self.arguments(&slug)).await?;
        match started {
            Started::Ready(answer) => target.print(&answer, super::lines),
            Started::Ended { status, text } => {
                out::note(text.trim_end());
                Ok(Exit::Daemon(status))
            }
        }
    }

    /// Becomes the daemon of a new member, and ends the membership when the daemon has ended.
    async fn serve_guest(&self, invite: &str) -> anyhow::Result<Exit> {
        let (home, payload) = guest(invite)?;
        let slug = invited_slug(&payload)?;
        let name = self.name.as_deref().unwrap_or_default();
        let name =
            DisplayName::parse(name).map_err(|error| Failure::usage(format!("--name: {error}")))?;
        admit_one(&home, &slug)?;
        let directory = home.daemon_directory(&slug);
        guest_rows::begin(&directory)?;
        let joined = join_unrecorded(payload, &name).await?;
        let options = DaemonOptions {
            joined: Some(joined.clone()),
            ..self.options(&home, &slug)?
        };
        let exit = self.become_daemon(options).await;
        guest_rows::remove(&directory)?;
        let left = match joined.key() {
            Ok(key) => end_membership(&joined, &key).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = left {
            out::note(&format!("the membership stays at the broker: {error:#}"));
        }
        exit
    }

    /// Becomes the daemon, and returns when it has ended.
    async fn serve(&self, home: &MemberHome, slug: &MeshSlug) -> anyhow::Result<Exit> {
        admit_one(home, slug)?;
        guest_rows::remove(&home.daemon_directory(slug))?;
        if self.accept_cloned_identity {
            accept(home, slug)?;
        }
        // It returns if the file of this program was removed. Then the daemon needs more memory, and that is all.
        let _ = DaemonLaunch::new(slug, self).replace_process();
        self.serve_launched(home, slug).await
    }

    /// The same in a process that has nothing else to do.
    pub(super) async fn serve_launched(
        &self,
        home: &MemberHome,
        slug: &MeshSlug,
    ) -> anyhow::Result<Exit> {
        self.become_daemon(self.options(home, slug)?).await
    }

    async fn become_daemon(&self, options: DaemonOptions) -> anyhow::Result<Exit> {
        planted::enable_planted_defect();
        if self.detached {
            // Signals of the terminal that started it do not reach it from here on.
            rustix::process::setsid()?;
        }
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let end = daemon::run(options, shutdown).await;
        if let Some(message) = &end.message {
            out::note(&format!("error: {message}"));
        }
        Ok(Exit::Daemon(end.status()))
    }

    fn options(&self, home: &MemberHome, slug: &MeshSlug) -> anyhow::Result<DaemonOptions> {
        let name = self.name.as_deref().map(DisplayName::parse).transpose();
        let name = name.map_err(|error| Failure::usage(format!("--name: {error}")))?;
        Ok(DaemonOptions {
            broker_url: home::broker_override(),
            environment: home::host_environment(self.container),
            identity: match (self.ephemeral, self.persistent) {
                (true, _) => IdentityFlag::Ephemeral,
                (false, true) => IdentityFlag::Persistent,
                (false, false) => IdentityFlag::Unset,
            },
            ttl: self.ttl,
            display_name: name,
            rename: self.rename,
            foreground: !self.detached,
            config_folder: Some(home.config_folder().to_owned()),
            daemon_folder: Some(home.daemon_directory(slug)),
            ..DaemonOptions::new(slug.clone(), home.mesh_folder())
        })
    }

    /// Starts every daemon that does not run yet.
    async fn run_all(&self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let home = MemberHome::from_environment()?;
        let slugs = home.slugs()?;
        admit_all(&home, &slugs)?;
        let mut daemons: Vec<Value> = Vec::new();
        let mut exit = Exit::Done;
        for slug in slugs {
            let directory = home.daemon_directory(&slug);
            if let Some(pid) = lock::holder(&directory.join("pid")) {
                daemons.push(json!({"mesh": slug, "state": "already_running", "pid": pid}));
                continue;
            }
            match detach::start(&home, &slug, self.arguments(&slug)).await? {
                Started::Ready(health) => {
                    daemons.push(json!({"mesh": slug, "state": "started", "pid": health["pid"]}));
                }
                Started::Ended { status, text } => {
                    out::note(text.trim_end());
                    daemons.push(json!({"mesh": slug, "state": "failed", "status": status}));
                    exit = Exit::Failed;
                }
            }
        }
        target.print(&json!({"daemons": daemons}), |answer| {
            let keys = ["mesh", "state", "pid"];
            super::columns(answer, "daemons", &["MESH", "STATE", "PID"], &keys)
        })?;
        Ok(exit)
    }

    /// The arguments of the process that becomes the daemon.
    fn arguments(&self, slug: &MeshSlug) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = ["daemon", "up", "--foreground", "--detached"]
            .map(OsString::from)
            .into();
        arguments.extend(["--mesh".into(), slug.as_str().into()]);
        let flags = [
            (self.ephemeral, "--ephemeral"),
            (self.persistent, "--persistent"),
            (self.rename, "--rename"),
            (self.container, "--container"),
            (self.accept_cloned_identity, "--accept-cloned-identity"),
        ];
        let given = flags.into_iter().filter(|(is_given, _)| *is_given);
        arguments.extend(given.map(|(_, flag)| OsString::from(flag)));
        if let Some(invite) = &self.invite {
            arguments.extend(["--invite".into(), invite.into()]);
        }
        if let Some(name) = &self.name {
            arguments.extend(["--name".into(), name.into()]);
        }
        if let Some(ttl) = self.ttl {
            arguments.extend(["--ttl".into(), format!("{}s", ttl.as_secs()).into()]);
        }
        arguments
    }
}

/// The home of the user, and the invite of a membership that is not recorded.
fn guest(invite: &str) -> anyhow::Result<(MemberHome, InvitePayload)> {
    if invite == "-" {
        return Err(Failure::usage("--invite is a link, a token, or @FILE").into());
    }
    let text = input::text("the invite", invite)?;
    let payload = InvitePayload::parse(&text).map_err(|error| Failure::usage(error.to_string()))?;
    let home = MemberHome::from_environment()?;
    let slug = invited_slug(&payload)?;
    if home.joined()?.get(slug.as_str()).is_some() {
        let message = format!("the mesh {slug} is joined already");
        let hint = "start its daemon without --invite, or set CLAUDEMESH_CONFIG_DIR and CLAUDEMESH_DAEMON_DIR to others";
        return Err(Failure::usage(message).hint(hint).into());
    }
    Ok((home, payload))
}

fn invited_slug(payload: &InvitePayload) -> anyhow::Result<MeshSlug> {
    let slug = MeshSlug::parse(&payload.mesh_slug);
    Ok(slug.map_err(|error| Failure::usage(format!("the invite: {error}")))?)
}

/// Refuses to start more daemons than the smallest `[fleet] max_daemons` of them allows, before the first one starts.
fn admit_all(home: &MemberHome, slugs: &[MeshSlug]) -> anyhow::Result<()> {
    let is_running =
        |slug: &&MeshSlug| lock::holder(&home.daemon_directory(slug).join("pid")).is_some();
    let running = slugs.iter().filter(is_running).count();
    for slug in slugs {
        let settings = settings(home, slug)?;
        fleet::admit(&settings.fleet, running, slugs.len() - running)
            .map_err(|error| Failure::failed(error.to_string()))?;
    }
    Ok(())
}

/// Refuses to start one more daemon than the `[fleet] max_daemons` of this one allows. Settings that cannot be read are
/// reported by the daemon, with its own exit code.
fn admit_one(home: &MemberHome, slug: &MeshSlug) -> anyhow::Result<()> {
    let Ok(settings) = settings(home, slug) else {
        return Ok(());
    };
    let own = home.daemon_directory(slug);
    let others = home.slugs()?.into_iter().filter(|other| {
        let directory = home.daemon_directory(other);
        directory != own && lock::holder(&directory.join("pid")).is_some()
    });
    fleet::admit(&settings.fleet, others.count(), 1)
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(())
}

/// A number with `s`, `m`, `h` or `d`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number with s, m, h or d, such as 10m".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let factor: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number = &text[..text.len() - 1];
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(factor).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_hours(2)));
        for text in ["", "5", "0s", "-1s", "1w", "s", "é"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
