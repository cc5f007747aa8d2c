//! The topics that a daemon knows and those it subscribed to, in a file; and the keys of encrypted topics.
//!
//! Invariant: the broker decides who is in a topic. The file remembers names, so that posts are accepted without a broker.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::line::{BrokerLine, LineError};
use super::private_file::{self, PRIVATE};
use crate::frame::{BrokerFrame, ClientFrame, TopicEntry, TopicJoin, TopicLeave, TopicList};
use crate::id::{TopicName, TopicRef};
use crate::nacl::SymmetricKey;

/// `topic_subscriptions.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TopicFile {
    schema_version: u32,
    subscribed: BTreeSet<String>,
    /// Ids by name, as the broker last listed them.
    #[serde(default)]
    known: BTreeMap<String, String>,
}

/// `topic_keys.json`: base64 of 32 bytes, by the name of the topic.
#[derive(Default, Deserialize)]
struct TopicKeyFile {
    #[serde(default)]
    keys: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct TopicDirectory {
    path: PathBuf,
    keys: PathBuf,
    file: Mutex<TopicFile>,
}

impl TopicDirectory {
    /// Reads the file, or writes an empty one.
    pub(super) fn open(path: &Path, keys: &Path) -> io::Result<Self> {
        let text = private_file::read(path)?;
        // The broker knows who is in a topic, so a damaged file costs names alone.
        let file = text.and_then(|text| serde_json::from_str(&text).ok());
        let is_new = file.is_none();
        let topics = Self {
            path: path.to_owned(),
            keys: keys.to_owned(),
            file: Mutex::new(file.unwrap_or(TopicFile {
                schema_version: 1,
                ..TopicFile::default()
            })),
        };
        if is_new {
            topics.save(&topics.lock().clone())?;
        }
        Ok(topics)
    }

    pub(super) fn is_known(&self, name: &TopicName) -> bool {
        let file = self.lock();
        file.known.contains_key(name.as_str()) || file.subscribed.contains(name.as_str())
    }

    pub(super) fn is_subscribed(&self, name: &str) -> bool {
        self.lock().subscribed.contains(name)
    }

    /// The names of the subscribed topics.
    pub(super) fn subscribed(&self) -> Vec<String> {
        self.lock().subscribed.iter().cloned().collect()
    }

    /// The name of a topic that a push names by its id or by its name.
    pub(super) fn name_of(&self, topic: &str) -> String {
        let file = self.lock();
        let named = file.known.iter().find(|(_, id)| *id == topic);
        named.map_or_else(|| topic.to_owned(), |(name, _)| name.clone())
    }

    /// The key of an encrypted topic.
    pub(super) fn key(&self, name: &str) -> Option<SymmetricKey> {
        let text = Zeroizing::new(private_file::read(&self.keys).ok()??);
        let file: TopicKeyFile = serde_json::from_str(&text).ok()?;
        let bytes = Zeroizing::new(BASE64_STANDARD.decode(file.keys.get(name)?).ok()?);
        Some(SymmetricKey::from_bytes(bytes.as_slice().try_into().ok()?))
    }

    /// Asks the broker for its topics.
    pub(super) async fn refresh(&self, line: &BrokerLine) -> Result<Vec<TopicEntry>, LineError> {
        let answer = line.ask(ClientFrame::from(TopicList {})).await?;
        self.learn(answer)
    }

    /// Joins at the broker, and remembers it.
    pub(super) async fn subscribe(
        &self,
        line: &BrokerLine,
        name: &TopicName,
    ) -> Result<(), SubscribeError> {
        let join = ClientFrame::from(TopicJoin {
            topic: reference(name),
            role: None,
        });
        let answer = line.ask_after(Some(join), TopicList {}.into()).await?;
        self.learn(answer)?;
        self.change(|file| file.subscribed.insert(name.to_string()))?;
        Ok(())
    }

    /// Leaves at the broker, and forgets it.
    pub(super) async fn unsubscribe(
        &self,
        line: &BrokerLine,
        name: &TopicName,
    ) -> Result<(), SubscribeError> {
        let leave = ClientFrame::from(TopicLeave {
            topic: reference(name),
        });
        let answer = line.ask_after(Some(leave), TopicList {}.into()).await?;
        self.learn(answer)?;
        self.change(|file| file.subscribed.remove(name.as_str()))?;
        Ok(())
    }

    fn learn(&self, answer: BrokerFrame) -> Result<Vec<TopicEntry>, LineError> {
        let BrokerFrame::TopicList(list) = answer else {
            return Err(LineError::NoAnswer);
        };
        let known: BTreeMap<String, String> = list
            .topics
            .iter()
            .map(|topic| (topic.name.clone(), topic.id.clone()))
            .collect();
        // The names are there again after the next answer, so a failed write is no failure of this one.
        let _ = self.change(|file| {
            let is_new = file.known != known;
            file.known = known;
            is_new
        });
        Ok(list.topics)
    }

    fn change(&self, change: impl FnOnce(&mut TopicFile) -> bool) -> io::Result<()> {
        let mut file = self.lock();
        if change(&mut file) {
            self.save(&file)?;
        }
        Ok(())
    }

    fn save(&self, file: &TopicFile) -> io::Result<()> {
        let text = serde_json::to_string_pretty(file).map_err(io::Error::other)?;
        private_file::replace(&self.path, text.as_bytes(), PRIVATE)
    }

    fn lock(&self) -> MutexGuard<'_, TopicFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a subscription was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubscribeError {
    #[error(transparent)]
    Line(#[from] LineError),
    #[error("the subscriptions could not be written: {0}")]
    Io(#[from] io::Error),
}

fn reference(name: &TopicName) -> TopicRef {
    TopicRef::parse(name.as_str()).expect("the name of a topic is a reference to it")
}
