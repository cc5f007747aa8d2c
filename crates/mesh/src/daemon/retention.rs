//! Removes received messages that are older than the settings keep them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::shared::{DaemonShared, wall_ms};

const DAY_MS: i64 = 86_400_000;
/// The first pass is at the start, so that a daemon that is restarted every day removes them, too.
const EVERY: Duration = Duration::from_hours(1);
/// Space is given back once a week.
const VACUUM_EVERY: u32 = 7 * 24;
const PIECE: u32 = 500;

/// Runs until the daemon ends.
pub(super) async fn keep(shared: Arc<DaemonShared>) {
    let mut passes: u32 = 0;
    loop {
        remove_old(&shared, passes % VACUUM_EVERY == VACUUM_EVERY - 1).await;
        passes = passes.wrapping_add(1);
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = shared.until_end() => return,
        }
    }
}

async fn remove_old(shared: &Arc<DaemonShared>, vacuums: bool) {
    let days = i64::from(shared.config().inbox.retention_days);
    let before = wall_ms().saturating_sub(days * DAY_MS);
    let inbox = Arc::clone(&shared.inbox);
    let removed = tokio::task::spawn_blocking(move || {
        let mut removed = 0;
        loop {
            let piece = inbox.forget_before(before, PIECE)?;
            removed += piece;
            if piece == 0 {
                break;
            }
        }
        if vacuums {
            inbox.vacuum()?;
        }
        Ok::<usize, consign_store::Error>(removed)
    });
    match removed.await {
        Ok(Ok(0)) => {}
        Ok(Ok(removed)) => {
            let fields = json!({"removed": removed});
            shared
                .log
                .info("old messages were removed from the inbox", &fields);
        }
        Ok(Err(error)) => report(shared, &error.to_string()),
        Err(error) => report(shared, &error.to_string()),
    }
}

fn report(shared: &DaemonShared, error: &str) {
    let fields = json!({"error": error});
    shared
        .log
        .warn("old messages could not be removed from the inbox", &fields);
}
