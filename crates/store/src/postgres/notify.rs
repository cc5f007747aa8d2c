//! Notifications between nodes (LISTEN and NOTIFY). A node sends the effects of its commits, at a limited rate and never for
//! each commit: PostgreSQL commits transactions that notify only one after the other.
//!
//! Notifications are hints. A waiting request polls every few seconds, and all of them poll when a lost connection is back,
//! so a lost notification costs no more than that delay.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consign_kernel::ids::Micros;
use consign_kernel::lane::{Column, Probe};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::AsyncMessage;

use super::address::DatabaseAddress;
use super::readers::in_time;
use super::wire::{Parameters, RESPONSE_TIMEOUT};
use crate::group::CommitShared;
use crate::{Error, News};

const CHANNEL: &str = "consign";
/// Limits the rate of notifications of a node.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);
/// PostgreSQL accepts payloads below 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;

/// Effects of commits that are not sent yet.
#[derive(Default)]
struct PendingNotices {
    ripe: HashSet<Probe>,
    told: BTreeSet<String>,
    wake_at: Option<Micros>,
}

#[derive(Default)]
struct NoticeBuffer {
    pending: Mutex<PendingNotices>,
    changed: Notify,
}

impl NoticeBuffer {
    fn note(&self, news: &News) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.ripe.extend(news.ripe.iter().chain(&news.left));
        for owner in &news.told {
            if !pending.told.contains(owner) {
                pending.told.insert(owner.clone());
            }
        }
        pending.wake_at = pending.wake_at.into_iter().chain(news.wake_at).min();
        drop(pending);
        self.changed.notify_one();
    }

    fn take(&self) -> PendingNotices {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *pending)
    }
}

/// The two tasks that send and listen; dropping this ends them.
pub(super) struct Notifier(Vec<JoinHandle<()>>);

impl Notifier {
    /// `node` identifies the notifications of this node, which it ignores.
    pub(super) fn start(address: &DatabaseAddress, node: i64, shared: &Arc<CommitShared>) -> Self {
        let buffer = Arc::new(NoticeBuffer::default());
        let local_buffer = Arc::clone(&buffer);
        shared
            .listeners
            .add_local(Box::new(move |news| local_buffer.note(news)));
        let sender = tokio::spawn(send_loop(address.clone(), node, buffer));
        let listener = tokio::spawn(listen_loop(address.clone(), node, Arc::clone(shared)));
        Self(vec![sender, listener])
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

async fn send_loop(address: DatabaseAddress, node: i64, buffer: Arc<NoticeBuffer>) {
    let mut client = None;
    loop {
        buffer.changed.notified().await;
        sleep(PAUSE).await;
        let payloads = encode(node, &buffer.take());
        if let Err(error) = send(&address, &mut client, &payloads).await {
            tracing::debug!(%error, "a notification was not sent; other nodes poll");
            client = None;
            sleep(PAUSE_AFTER_ERROR).await;
        }
    }
}

async fn send(
    address: &DatabaseAddress,
    client: &mut Option<tokio_postgres::Client>,
    payloads: &[String],
) -> Result<(), Error> {
    let connected = if let Some(connected) = client.take() {
        connected
    } else {
        let connected = address.connect().await?;
        // A notification may be lost, so the commit does not wait for the disk.
        let asynchronous = connected.batch_execute("SET synchronous_commit = off");
        in_time(RESPONSE_TIMEOUT, asynchronous).await?;
        connected
    };
    for payload in payloads {
        let parameters: Parameters<'_> = &[&CHANNEL, payload];
        let sent = connected.execute("SELECT pg_notify($1, $2)", parameters);
        in_time(RESPONSE_TIMEOUT, sent).await?;
    }
    *client = Some(connected);
    Ok(())
}

async fn listen_loop(address: DatabaseAddress, node: i64, shared: Arc<CommitShared>) {
    // Before the first connection nothing can be missed.
    let mut missed = false;
    loop {
        let ended = listen(&address, node, &shared, missed).await;
        missed = true;
        if let Err(error) = ended {
            tracing::debug!(%error, "the listening connection was lost; this node polls");
        }
        sleep(PAUSE_AFTER_ERROR).await;
    }
}

async fn listen(
    address: &DatabaseAddress,
    node: i64,
    shared: &CommitShared,
    missed: bool,
) -> Result<(), Error> {
    let mut connected = address.connect_listening().await?;
    in_time(
        RESPONSE_TIMEOUT,
        connected.client.batch_execute("LISTEN consign"),
    )
    .await?;
    if missed {
        shared.listeners.notify_remote(&News {
            missed,
            ..News::default()
        });
    }
    while let Some(message) = connected.messages.recv().await {
        if let AsyncMessage::Notification(notification) = message
            && let Some(news) = decode(node, notification.payload())
        {
            shared.listeners.notify_remote(&news);
        }
    }
    Ok(())
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// As many payloads as needed: the number of the node, then a word for each lane, owner and deadline.
fn encode(node: i64, pending: &PendingNotices) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(pending.ripe.iter().map(|probe| {
        let column = match probe.column {
            Column::Own => 'a',
            Column::OwnGoal => 'b',
            Column::Public => 'c',
            Column::PublicGoal => 'd',
        };
        format!(" {column}{:x}", probe.lane)
    }));
    words.extend(pending.wake_at.map(|at| format!(" w{:x}", at.0)));
    words.extend(pending.told.iter().map(|owner| {
        let mut word = " o".to_owned();
        for byte in owner.bytes() {
            word.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
        }
        word
    }));
    let mut payloads = Vec::new();
    let mut payload = String::new();
    for word in words {
        if payload.is_empty() || payload.len() + word.len() > PAYLOAD_BYTES_MAX {
            if !payload.is_empty() {
                payloads.push(std::mem::take(&mut payload));
            }
            payload = format!("{node:x}");
        }
        payload.push_str(&word);
    }
    if !payload.is_empty() {
        payloads.push(payload);
    }
    payloads
}

/// The effects that another node sent; `None` for notifications of this node. An unreadable word is skipped.
fn decode(node: i64, payload: &str) -> Option<News> {
    let mut words = payload.split(' ');
    let sender = words.next().and_then(hex)?;
    if sender == node {
        return None;
    }
    let mut news = News {
        heard: true,
        ..News::default()
    };
    for word in words {
        let Some((kind, rest)) = word.split_at_checked(1) else {
            continue;
        };
        let column = match kind {
            "a" => Column::Own,
            "b" => Column::OwnGoal,
            "c" => Column::Public,
            "d" => Column::PublicGoal,
            "w" => {
                news.wake_at = news.wake_at.into_iter().chain(hex(rest).map(Micros)).min();
                continue;
            }
            "o" => {
                news.told.extend(text(rest));
                continue;
            }
            _ => continue,
        };
        news.ripe
            .extend(hex(rest).map(|lane| Probe { column, lane }));
    }
    Some(news)
}

/// Numbers are sent as unsigned bits.
fn hex(word: &str) -> Option<i64> {
    u64::from_str_radix(word, 16).ok().map(u64::cast_signed)
}

fn text(hex: &str) -> Option<String> {
    let digits = hex.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_notifications_equal_what_was_encoded() {
        let columns = [
            Column::Own,
            Column::OwnGoal,
            Column::Public,
            Column::PublicGoal,
        ];
        let lanes = (0..2_000).map(|number| Probe {
            column: columns[number % 4],
            lane: (i64::MIN / 3).wrapping_add(i64::try_from(number).unwrap() * 7_919),
        });
        let pending = PendingNotices {
            ripe: lanes.collect(),
            told: ["alice".to_owned(), "ö b".to_owned()].into(),
            wake_at: Some(Micros(1_700_000_000_000_000)),
        };
        let payloads = encode(-7, &pending);
        assert!(payloads.len() > 1);
        assert!(payloads.iter().all(|payload| payload.len() < 8_000));
        let (mut ripe, mut told, mut wake_at) = (HashSet::new(), BTreeSet::new(), None);
        for payload in &payloads {
            assert_eq!(decode(-7, payload), None, "of this node");
            let news = decode(5, payload).unwrap();
            assert!(news.heard);
            ripe.extend(news.ripe);
            told.extend(news.told);
            wake_at = wake_at.or(news.wake_at);
        }
        assert_eq!(
            (ripe, told, wake_at),
            (pending.ripe, pending.told, pending.wake_at)
        );
    }

    #[test]
    fn unreadable_words_are_skipped() {
        assert_eq!(decode(1, ""), None);
        assert_eq!(decode(1, "zz a1"), None);
        let news = decode(1, "2 a1 ax q5 o6g w  ö").unwrap();
        assert_eq!(news.ripe.len(), 1);
        assert_eq!((news.told.len(), news.wake_at), (0, None));
    }
}
