//! The control socket: the HTTP interface for whoever may open a file of the state directory.
//!
//! Invariant: the socket is never open to others, not even for the moment between its making and its mode, because it is made
//! in a directory of its own and moved into place.

use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use axum::Router;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    serving: JoinHandle<()>,
}

impl Control {
    /// The caller holds the lock of the directory, so a socket that is there is left over.
    pub(crate) fn listen(
        path: PathBuf,
        router: Router,
        mut draining: watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let listener = bind(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let serving = tokio::spawn(async move {
            let drained = async move {
                let _ = draining.wait_for(|draining| *draining).await;
            };
            let served = axum::serve(listener, router).with_graceful_shutdown(drained);
            if let Err(error) = served.await {
                tracing::error!(component = "control", %error, "the control socket is lost");
            }
        });
        Ok(Self { path, serving })
    }

    /// Open requests are cut off; what they asked for is in the ledger or was not begun.
    pub(crate) fn close(self) {
        self.serving.abort();
        // A file that stays tells nobody anything: it refuses connections.
        let _ = fs::remove_file(&self.path);
    }
}

fn bind(path: &Path) -> std::io::Result<UnixListener> {
    let mut private = path.as_os_str().to_owned();
    private.push(".new");
    let private = PathBuf::from(private);
    match fs::remove_dir_all(&private) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&private)?;
    let made = private.join("s");
    let listener = UnixListener::bind(&made)?;
    fs::set_permissions(&made, Permissions::from_mode(0o600))?;
    fs::rename(&made, path)?;
    fs::remove_dir(&private)?;
    Ok(listener)
}
