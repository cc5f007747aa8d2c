//! `consign daemon restart`: a daemon that does not run is started.

use super::DaemonSelector;
use super::down::stop;
use super::up::UpArgs;
use crate::failure::Exit;
use crate::lock;

pub(super) async fn run(args: UpArgs, target: &DaemonSelector) -> anyhow::Result<Exit> {
    let (home, slug) = target.place()?;
    let directory = home.daemon_directory(&slug);
    if lock::holder(&directory.join("pid")).is_some() {
        stop(&slug, &directory).await?;
    }
    args.run(target).await
}
