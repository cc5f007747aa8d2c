//! The data in the server before the measurement: finished intents, a backlog, used nonces.
//!
//! Invariant: exactly the requested number of intents is loaded, or the run ends with an error; there
//! are a few more nonces, those of the loading requests.
//! Loading uses the protocol in batches over a few connections, so that commits are shared.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::Error;
use crate::connection::BenchConnection;
use crate::plan::{BATCH_MAX, BenchPlan, NAMESPACE};
use crate::request::{ClaimOptions, RequestWriter, hold, item, payload};
use crate::response::{leases, refused_items};

const CONNECTIONS: usize = 4;
/// A nonce needs a request of its own, so only more connections can share a commit.
const NONCE_CONNECTIONS: usize = 64;
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A mixed backlog repeats after this many intents.
const MIX: u64 = 6;
const OTHER_GOALS: u64 = 1_000;
const OTHERS: u64 = 100;
/// Longer than any run, and shorter than the server's longest delay.
const DELAY_S: u32 = 43_200;
/// Above the default of 100, so that they would come first if they were due.
const DELAYED_PRIORITY: u32 = 500;

/// A kind of loaded data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BacklogKind {
    /// For the clients of this run.
    Own,
    /// For other clients.
    Mixed,
    /// Published, claimed and fulfilled.
    Finished,
    /// Signed claims that find nothing, each with a nonce that the server stores.
    Nonces,
}

impl BacklogKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Own | Self::Mixed => "the backlog",
            Self::Finished => "finished intents",
            Self::Nonces => "nonces",
        }
    }

    const fn connections(self) -> usize {
        match self {
            Self::Own | Self::Mixed | Self::Finished => CONNECTIONS,
            Self::Nonces => NONCE_CONNECTIONS,
        }
    }
}

/// Loads what the plan requests and reports progress about every second.
pub(crate) async fn load(
    plan: &Arc<BenchPlan>,
    server: SocketAddr,
    goal: &Arc<str>,
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let backlog = if plan.backlog_mix {
        BacklogKind::Mixed
    } else {
        BacklogKind::Own
    };
    // Nonces come last, because the server forgets them after some minutes.
    for (kind, count) in [
        (BacklogKind::Finished, plan.finished),
        (backlog, plan.backlog),
        (BacklogKind::Nonces, plan.nonces),
    ] {
        if count > 0 {
            load_kind(plan, server, goal, kind, count, progress).await?;
        }
    }
    Ok(())
}

/// The batches left to load, shared by the connections.
#[derive(Debug)]
struct RemainingItems {
    count: u64,
    next: AtomicU64,
    done: AtomicU64,
}

impl RemainingItems {
    /// The first index and the length of the next batch.
    fn take(&self) -> Option<(u64, u64)> {
        let first = self.next.fetch_add(BATCH_MAX as u64, Ordering::Relaxed);
        let left = self.count.checked_sub(first).filter(|left| *left > 0)?;
        Some((first, left.min(BATCH_MAX as u64)))
    }
}

async fn load_kind(
    plan: &Arc<BenchPlan>,
    server: SocketAddr,
    goal: &Arc<str>,
    kind: BacklogKind,
    count: u64,
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let rest = Arc::new(RemainingItems {
        count,
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
    });
    let mut loaders = JoinSet::new();
    for _ in 0..kind.connections() {
        let (plan, goal, rest) = (Arc::clone(plan), Arc::clone(goal), Arc::clone(&rest));
        loaders.spawn(async move {
            let mut connection =
                BenchConnection::open(server)
                    .await
                    .map_err(|source| Error::Connect {
                        server: plan.target.server.to_string(),
                        source,
                    })?;
            while let Some((first, length)) = rest.take() {
                load_batch(&plan, &mut connection, &goal, kind, first, length).await?;
                rest.done.fetch_add(length, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    loop {
        match tokio::time::timeout(TELL_EVERY, loaders.join_next()).await {
            Ok(Some(joined)) => joined.map_err(|_| Error::Panicked)??,
            Ok(None) => break,
            Err(_) => {
                let done = rest.done.load(Ordering::Relaxed);
                progress(&format!("loading {}: {done} of {count}", kind.name()));
            }
        }
    }
    progress(&format!("loaded {}: {count}", kind.name()));
    Ok(())
}

async fn load_batch(
    plan: &BenchPlan,
    connection: &mut BenchConnection,
    goal: &str,
    kind: BacklogKind,
    first: u64,
    length: u64,
) -> Result<(), Error> {
    let failed = |why: String| Error::Load {
        what: kind.name(),
        why,
    };
    // Finished intents have a goal of their own, so that this claims nothing of the backlog.
    let goal = match kind {
        BacklogKind::Own | BacklogKind::Mixed => goal.to_owned(),
        BacklogKind::Finished => format!("{goal}-finished"),
        BacklogKind::Nonces => format!("{goal}-nonces"),
    };
    let claiming = ClaimOptions {
        max: usize::try_from(length).ok(),
        wait: Duration::ZERO,
    };
    let client = format!("load-{}-{first}", kind.name().len());
    let mut writer = RequestWriter::new(plan, &goal, claiming, &client)?;
    let mut request = Vec::new();
    if kind == BacklogKind::Nonces {
        for _ in 0..length {
            writer.claim(&mut request);
            expect(connection, &request).await.map_err(failed)?;
        }
        return Ok(());
    }
    let payload = payload(plan.payload_bytes, None);
    let items: Vec<String> = (first..first + length)
        .map(|index| match kind {
            BacklogKind::Mixed => mixed(index, &goal, &payload),
            BacklogKind::Own | BacklogKind::Finished | BacklogKind::Nonces => {
                item(NAMESPACE, &goal, "", &payload)
            }
        })
        .collect();
    writer.publish_items(&mut request, &items);
    expect(connection, &request).await.map_err(failed)?;
    if kind != BacklogKind::Finished {
        return Ok(());
    }
    writer.claim(&mut request);
    expect(connection, &request).await.map_err(failed)?;
    let mut held = Vec::new();
    let mut claimed = 0;
    for lease in leases(connection.body()) {
        hold(&mut held, lease);
        claimed += 1;
    }
    if claimed != length {
        return Err(failed(format!("{claimed} of {length} could be claimed")));
    }
    writer.settle(&mut request, &held, false);
    expect(connection, &request).await.map_err(failed)?;
    match refused_items(connection.body()) {
        0 => Ok(()),
        refused => Err(failed(format!("{refused} could not be fulfilled"))),
    }
}

async fn expect(connection: &mut BenchConnection, request: &[u8]) -> Result<(), String> {
    let status = connection.exchange(request).await;
    match status.map_err(|error| error.to_string())? {
        200 | 201 | 204 => Ok(()),
        status => {
            let body = String::from_utf8_lossy(connection.body());
            Err(format!("status {status}: {body}"))
        }
    }
}

/// Half of a mixed backlog is, in equal parts, delayed with a higher priority, for other workers, and
/// in other namespaces; the rest is spread over many other goals.
fn mixed(index: u64, goal: &str, payload: &str) -> String {
    match index % MIX {
        0 => {
            let more = format!(r#","delay":{DELAY_S},"priority":{DELAYED_PRIORITY}"#);
            item(NAMESPACE, goal, &more, payload)
        }
        1 => {
            let more = format!(r#","target_worker":"other-{}""#, index / MIX % OTHERS);
            item(NAMESPACE, goal, &more, payload)
        }
        2 => {
            let namespace = format!("{NAMESPACE}-{}", index / MIX % OTHERS);
            item(&namespace, goal, "", payload)
        }
        _ => {
            // Half of the indexes get here; without gaps they cover every goal.
            let ordinal = index / MIX * (MIX / 2) + index % MIX - MIX / 2;
            let goal = format!("{goal}-{}", ordinal % OTHER_GOALS);
            item(NAMESPACE, &goal, "", payload)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn a_mixed_backlog_has_the_shares_it_promises_and_nothing_for_this_run() {
        let count = 6_000;
        let items: Vec<Value> = (0..count)
            .map(|index| serde_json::from_str(&mixed(index, "g", "1")).unwrap())
            .collect();
        let share = |wanted: &dyn Fn(&Value) -> bool| {
            items.iter().filter(|item| wanted(item)).count() as u64
        };
        assert_eq!(share(&|item| item["delay"].is_number()), count / 6);
        assert_eq!(share(&|item| item["target_worker"].is_string()), count / 6);
        assert_eq!(share(&|item| item["namespace"] != NAMESPACE), count / 6);
        assert_eq!(share(&|item| item["goal"] != "g"), count / 2);
        let goals: BTreeSet<_> = items.iter().map(|item| item["goal"].to_string()).collect();
        assert_eq!(goals.len(), 1_001, "a thousand others and our own");
        let claimable = |item: &Value| {
            item["delay"].is_null()
                && item["target_worker"].is_null()
                && item["namespace"] == NAMESPACE
                && item["goal"] == "g"
        };
        assert_eq!(share(&claimable), 0);
    }

    #[test]
    fn batches_cover_everything_once() {
        let rest = RemainingItems {
            count: 250,
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
        };
        let batches: Vec<_> = std::iter::from_fn(|| rest.take()).collect();
        assert_eq!(batches, [(0, 100), (100, 100), (200, 50)]);
    }
}
