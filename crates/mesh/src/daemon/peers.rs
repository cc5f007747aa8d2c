//! The members that the broker last listed, for names in requests, in a file.
//!
//! Invariant: a name that is not in the list is asked for at the broker before it counts as unknown. The file remembers names,
//! so that messages to members are accepted without a broker and after a restart, also while these members are offline.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;

use super::line::{BrokerLine, LineError};
use super::private_file::{self, PRIVATE};
use super::shared::DaemonShared;
use crate::destination::KnownPeer;
use crate::frame::{BrokerFrame, ClientFrame, ListPeers, PeerEntry, PeersList};
use crate::keys::MeshPublicKey;

/// A key that no peer has is asked about at most this often, and changes are asked for.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Members whose names are remembered after they left, and names that programs used.
const REMEMBERED_MAX: usize = 1_000;

/// `member_names.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NameFile {
    schema_version: u32,
    /// By key.
    #[serde(default)]
    members: BTreeMap<String, String>,
    /// The member to which a program last sent by that name, in lower case. A repeated request means the same member also
    /// after that has another name or none.
    #[serde(default)]
    used: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct PeerDirectory {
    path: PathBuf,
    known: Mutex<BTreeMap<MeshPublicKey, KnownPeer>>,
    used: Mutex<BTreeMap<String, String>>,
    /// What the file contains. Held while it is written.
    written: Mutex<NameFile>,
    /// When the broker was asked about a key that no peer has.
    asked_at: Mutex<Option<Instant>>,
    changed: Notify,
}

/// Keeps the list current while the daemon is connected. Runs until the daemon ends.
pub(super) async fn follow(shared: Arc<DaemonShared>) {
    while let Some(line) = shared.until_line().await {
        loop {
            if let Err(error) = shared.peers.refresh(&line).await {
                let fields = json!({"error": error.to_string()});
                shared.log.info("members_not_listed", &fields);
            }
            let changed = async {
                shared.peers.changed.notified().await;
                tokio::time::sleep(ASK_EVERY).await;
            };
            tokio::select! {
                () = changed => {}
                () = line.until_closed() => break,
                _ = shared.until_end() => return,
            }
        }
        // The state of the line follows its end.
        tokio::select! {
            () = shared.until_other_line(&line) => {}
            _ = shared.until_end() => return,
        }
    }
}

impl PeerDirectory {
    /// Reads the file. A damaged one costs names until the next connection.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let text = private_file::read(path)?;
        let file: NameFile = text
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let members = file.members.iter().filter_map(|(key, name)| {
            let member = MeshPublicKey::parse(key).ok()?;
            Some((member, offline(member, name)))
        });
        Ok(Self {
            path: path.to_owned(),
            known: Mutex::new(members.collect()),
            used: Mutex::new(file.used.clone()),
            written: Mutex::new(file),
            asked_at: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub(super) fn known(&self) -> Vec<KnownPeer> {
        self.lock().values().cloned().collect()
    }

    /// Whether the broker is to be asked for the peers because none has this key. Not for each of many messages to a member
    /// that is offline.
    pub(super) fn asks_about(&self, key: MeshPublicKey) -> bool {
        let known = self.lock();
        let mut all = known.values();
        if all.any(|peer| peer.member == key || peer.sessions.contains(&key)) {
            return false;
        }
        let mut asked_at = self.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if is_due {
            *asked_at = Some(Instant::now());
        }
        is_due
    }

    /// The name of a member, for messages whose sender has none.
    pub(super) fn name_of(&self, member: MeshPublicKey) -> Option<String> {
        self.lock().get(&member).and_then(|peer| peer.name.clone())
    }

    /// The member to which a program last sent by this name.
    pub(super) fn used(&self, name: &str) -> Option<MeshPublicKey> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        MeshPublicKey::parse(used.get(&name.to_lowercase())?).ok()
    }

    /// A program has sent to a member by this name.
    pub(super) fn note_use(&self, name: &str, member: MeshPublicKey) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, key) = (name.to_lowercase(), member.to_string());
        if used.get(&name) == Some(&key) {
            return;
        }
        if !used.contains_key(&name) && used.len() >= REMEMBERED_MAX {
            used.pop_first();
        }
        used.insert(name, key);
        drop(used);
        self.save();
    }

    /// Asks the broker for the members and the connected peers.
    pub(super) async fn refresh(&self, line: &BrokerLine) -> Result<Vec<PeerEntry>, LineError> {
        self.ask(line, None).await
    }

    /// Asks the broker for the members that have this name, or a key that begins so.
    pub(super) async fn look_up(&self, line: &BrokerLine, member: &str) -> Result<(), LineError> {
        self.ask(line, Some(member)).await.map(drop)
    }

    async fn ask(
        &self,
        line: &BrokerLine,
        member: Option<&str>,
    ) -> Result<Vec<PeerEntry>, LineError> {
        let ask = ListPeers {
            members: true,
            member: member.map(str::to_owned),
        };
        let answer = line.ask(ClientFrame::from(ask)).await?;
        let BrokerFrame::PeersList(list) = answer else {
            return Err(LineError::NoAnswer);
        };
        self.learn(&list, member);
        Ok(list.peers)
    }

    /// The sender of a message, whom the broker names.
    pub(super) fn learn_sender(&self, member: &str, name: Option<&str>) {
        let (Ok(member), Some(name)) = (MeshPublicKey::parse(member), name) else {
            return;
        };
        let mut known = self.lock();
        if known.get(&member).is_some_and(|peer| peer.name.is_some()) {
            return;
        }
        make_room(&mut known, member);
        known.insert(member, offline(member, name));
        drop(known);
        self.save();
    }

    /// A member came, left, or has another name or key.
    pub(super) fn note_change(&self) {
        self.changed.notify_one();
    }

    /// `asked` is the only member that the answer is about.
    fn learn(&self, list: &PeersList, asked: Option<&str>) {
        let mut known = self.lock();
        for peer in known.values_mut() {
            peer.sessions.clear();
        }
        if let Some(members) = &list.members {
            // Those who left, hid or have another key are not there any more, so that no name stands for two of them.
            match asked.map(str::to_lowercase) {
                Some(asked) => known.retain(|_, peer| {
                    let name = peer.name.as_deref().unwrap_or_default();
                    name.to_lowercase() != asked
                }),
                None if list.has_more => {}
                None => known.clear(),
            }
            for entry in members {
                if let Ok(member) = MeshPublicKey::parse(&entry.pubkey) {
                    make_room(&mut known, member);
                    known.insert(member, offline(member, &entry.display_name));
                }
            }
        }
        for entry in &list.peers {
            let Ok(key) = MeshPublicKey::parse(&entry.pubkey) else {
                continue;
            };
            let member = entry.member_pubkey.as_deref().map(MeshPublicKey::parse);
            let member = member.and_then(Result::ok).unwrap_or(key);
            make_room(&mut known, member);
            let peer = known
                .entry(member)
                .or_insert_with(|| offline(member, &entry.display_name));
            peer.name = Some(entry.display_name.clone());
            if key != member {
                peer.sessions.push(key);
            }
        }
        drop(known);
        self.save();
    }

    /// Writes the file if it changes. The names are there again after the next answer, so a failed write is no failure of the
    /// caller.
    fn save(&self) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let members = {
            let known = self.lock();
            let named = known
                .values()
                .filter_map(|peer| Some((peer.member.to_string(), peer.name.clone()?)));
            named.collect()
        };
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let file = NameFile {
            schema_version: 1,
            members,
            used: used.clone(),
        };
        drop(used);
        if file == *written {
            return;
        }
        let text = serde_json::to_string_pretty(&file).unwrap_or_default();
        match private_file::replace(&self.path, text.as_bytes(), PRIVATE) {
            Ok(()) => *written = file,
            Err(error) => tracing::warn!(%error, "the names of members could not be written"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MeshPublicKey, KnownPeer>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn offline(member: MeshPublicKey, name: &str) -> KnownPeer {
    KnownPeer {
        member,
        name: Some(name.to_owned()),
        sessions: Vec::new(),
    }
}

fn make_room(known: &mut BTreeMap<MeshPublicKey, KnownPeer>, member: MeshPublicKey) {
    if !known.contains_key(&member) && known.len() >= REMEMBERED_MAX {
        known.pop_first();
    }
}
