//! What happens when the run is stopped by a signal: servers end and their files go, as after a whole run.

use std::fs;
use std::path::PathBuf;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::Error;
use crate::{machine, server};

/// What shells expect of a program that a signal ended.
const ENDED_BY_SIGNAL: i32 = 130;

/// Watches from a thread of its own, because the main one waits for children most of the time.
pub(crate) fn clean_up(folder: PathBuf) -> Result<(), Error> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("starting the watch for signals"))?;
    let mut signals = {
        let _inside = runtime.enter();
        let watch = |kind| signal(kind).map_err(Error::io("watching for signals"));
        (
            watch(SignalKind::interrupt())?,
            watch(SignalKind::terminate())?,
        )
    };
    thread::spawn(move || {
        runtime.block_on(async {
            let (interrupt, terminate) = (&mut signals.0, &mut signals.1);
            std::future::poll_fn(|context| {
                let interrupted = interrupt.poll_recv(context).is_ready();
                if interrupted || terminate.poll_recv(context).is_ready() {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            })
            .await;
        });
        let family = machine::family(std::process::id());
        server::signal("-KILL", &family[1..]);
        // Whatever cannot be removed is left, as there is nobody to tell.
        let _ = fs::remove_dir_all(folder);
        #[expect(
            clippy::exit,
            reason = "the main thread waits for a child and cannot be asked"
        )]
        std::process::exit(ENDED_BY_SIGNAL);
    });
    Ok(())
}
