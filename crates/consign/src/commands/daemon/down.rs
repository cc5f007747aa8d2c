//! `consign daemon down`: ends the daemon and waits until its directory is free.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use consign_client::{Method, StatusCode};
use consign_mesh::id::MeshSlug;
use consign_mesh::ipc::path;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{DaemonSelector, lines};
use crate::failure::{Exit, Failure};
use crate::lock;
use crate::mesh_member::daemon_link::DaemonLink;
use crate::mesh_member::home::MemberHome;

/// A daemon that stops sends what is in flight first.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
pub(super) struct DownArgs {
    /// Stop the daemons of all joined meshes
    #[arg(long, conflicts_with = "mesh")]
    all: bool,
}

impl DownArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        if !self.all {
            let (home, slug) = target.place()?;
            let answer = stop(&slug, &home.daemon_directory(&slug)).await?;
            return target.print(&answer, lines);
        }
        let home = MemberHome::from_environment()?;
        let mut stopped = Vec::new();
        for slug in home.slugs()? {
            let directory = home.daemon_directory(&slug);
            if lock::holder(&directory.join("pid")).is_some() {
                stopped.push(stop(&slug, &directory).await?);
            }
        }
        let answer = json!({"stopped": stopped});
        target.print(&answer, |_| format!("{} daemons stopped", stopped.len()))
    }
}

/// Ends the daemon of a directory. Returns health's fields as they were before, and `stopped`.
pub(super) async fn stop(slug: &MeshSlug, directory: &Path) -> anyhow::Result<Value> {
    let link = DaemonLink::new(slug, directory)?;
    let health = link.get(path::HEALTH).await;
    let mut answer = match health {
        Ok(answer) => answer,
        // It holds the directory and does not answer.
        Err(_) if lock::holder(&directory.join("pid")).is_some() => json!({"mesh": slug}),
        Err(error) => return Err(error),
    };
    let asked = link
        .respond(Method::POST, path::SHUTDOWN, Some(&json!({})))
        .await;
    match asked {
        Ok(response)
            if response.status == StatusCode::NOT_FOUND
                || response.status == StatusCode::TOO_MANY_REQUESTS
                || response.status.is_server_error() =>
        {
            terminate(directory)?;
        }
        Ok(response) if response.status.is_client_error() => {
            let message = format!("the daemon refused to stop (status {})", response.status);
            return Err(Failure::new(Exit::Refused, message).into());
        }
        Ok(_) => {}
        // A daemon that ends may close the connection before its answer is read; one that serves nobody gets a signal.
        Err(_) => terminate(directory)?,
    }
    wait_until_free(directory).await?;
    answer["stopped"] = true.into();
    Ok(answer)
}

/// Asks the process that holds the directory to end. Without one there is nothing to do.
fn terminate(directory: &Path) -> anyhow::Result<()> {
    let Some(holder) = lock::holder(&directory.join("pid")) else {
        return Ok(());
    };
    let pid = i32::try_from(holder).ok().and_then(Pid::from_raw);
    let pid = pid.context("the daemon does not report its pid")?;
    match kill_process(pid, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("the daemon cannot be stopped"),
    }
}

/// Waits until no process holds the directory.
async fn wait_until_free(directory: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + STOP_TIMEOUT;
    while let Some(pid) = lock::holder(&directory.join("pid")) {
        if Instant::now() > deadline {
            let limit = STOP_TIMEOUT.as_secs();
            let message = format!("the daemon (pid {pid}) is still running after {limit} s");
            return Err(Failure::failed(message).into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
