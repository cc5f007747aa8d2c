//! Removes received messages that are older than the settings keep them, rows of the outbox that ended long ago, and keys
//! whose time is over.
//!
//! Invariant: messages and keys are removed only by a time that the broker has confirmed, because a wrong clock would remove
//! all of them. Rows of the outbox are removed by the clock of the ledger.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::key_archive::until_midnight;
use super::shared::{DaemonShared, MemberKeys};

const DAY_MS: i64 = 86_400_000;
/// The first pass is at the first connection, so that a daemon that is restarted every day removes them, too.
const EVERY: Duration = Duration::from_hours(1);
/// Space is given back once a week.
const VACUUM_EVERY_MS: i64 = 7 * DAY_MS;
const PIECE: u32 = 500;

/// Removes archived keys whose time is over, every midnight of this machine, until the daemon ends.
pub(super) async fn clean_archive(shared: Arc<DaemonShared>) {
    while let Some(now_ms) = shared.until_time_is_agreed().await {
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        {
            let mut archive = shared.archive.lock().await;
            let removed = archive.clean_up(now);
            match removed {
                Ok(0) => {}
                Ok(removed) => {
                    let identity = shared.keys().identity.clone();
                    shared.set_keys(MemberKeys::new(identity, &archive));
                    let fields = json!({"removed": removed});
                    shared.log.info("archive_cleaned_up", &fields);
                }
                Err(error) => {
                    let fields = json!({"error": error.to_string()});
                    shared.log.warn("archive_cleanup_failed", &fields);
                }
            }
        }
        let midnight = until_midnight(Timestamp::now(), TimeZone::system());
        tokio::select! {
            () = tokio::time::sleep(midnight) => {}
            _ = shared.until_end() => return,
        }
    }
}

/// Removes old messages and rows every hour, until the daemon ends.
pub(super) async fn keep(shared: Arc<DaemonShared>) {
    loop {
        prune_outbox(&shared).await;
        let hour = tokio::time::sleep(EVERY);
        tokio::pin!(hour);
        // Without a connection the messages stay for another hour.
        let now_ms = tokio::select! {
            now_ms = shared.until_time_is_agreed() => match now_ms {
                Some(now_ms) => now_ms,
                None => return,
            },
            () = &mut hour => continue,
        };
        remove_old(&shared, now_ms).await;
        tokio::select! {
            () = hour => {}
            _ = shared.until_end() => return,
        }
    }
}

async fn prune_outbox(shared: &DaemonShared) {
    match shared.outbox.prune_if_due().await {
        Ok(None | Some(0)) => {}
        Ok(Some(removed)) => {
            let fields = json!({"removed": removed});
            shared.log.info("outbox_pruned", &fields);
        }
        Err(error) => {
            let fields = json!({"error": error.to_string()});
            shared.log.warn("outbox_prune_failed", &fields);
        }
    }
}

async fn remove_old(shared: &Arc<DaemonShared>, now: i64) {
    let days = i64::from(shared.config().inbox.retention_days);
    let before = now.saturating_sub(days * DAY_MS);
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
        inbox.vacuum_if_due(now, VACUUM_EVERY_MS)?;
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
