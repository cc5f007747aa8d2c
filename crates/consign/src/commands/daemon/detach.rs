//! A daemon as a process of its own: started, and waited for until it is ready or has ended.
//!
//! Invariant: the daemon that is reported as ready is the process that was started. Its standard error is read until then, so
//! that the reason of a failed start is shown; afterwards it has none, and logs to its file.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use consign_mesh::id::MeshSlug;
use consign_mesh::ipc::path;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::failure::Failure;
use crate::mesh_member::daemon_link::DaemonLink;
use crate::mesh_member::home::MemberHome;

/// A start asks the broker at most for a few seconds; a slow disk may add to that.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// An error message is short.
const STDERR_BYTES_MAX: u64 = 64 << 10;

/// What became of a started process.
pub(super) enum Started {
    /// The answer of `GET /v1/health`.
    Ready(Value),
    /// Its exit status and what it wrote to standard error.
    Ended { status: u8, text: String },
}

pub(super) async fn start(
    home: &MemberHome,
    slug: &MeshSlug,
    arguments: Vec<OsString>,
) -> anyhow::Result<Started> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the daemon")?;
    let link = DaemonLink::with_timeout(slug, &home.daemon_directory(slug), HEALTH_TIMEOUT)?;
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            let status = status.code().and_then(|code| u8::try_from(code).ok());
            let text = read_stderr(&mut child).await;
            return Ok(Started::Ended {
                status: status.unwrap_or(1),
                text,
            });
        }
        if let Ok(health) = link.get(path::HEALTH).await
            && health["pid"].as_u64() == child.id().map(u64::from)
        {
            return Ok(Started::Ready(health));
        }
        if Instant::now() > deadline {
            child.kill().await?;
            let limit = READY_TIMEOUT.as_secs();
            let message = format!("the daemon was not ready within {limit} s, and was stopped");
            return Err(Failure::failed(message)
                .hint("see its log with: consign daemon logs")
                .into());
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn read_stderr(child: &mut Child) -> String {
    let mut bytes = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // What was read before a failure is shown.
        let _ = stderr.take(STDERR_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
