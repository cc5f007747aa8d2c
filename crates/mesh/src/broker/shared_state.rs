//! Values that the members of a mesh share, by key.
//!
//! Invariant: a mesh has at most [`STATE_KEYS_MAX`] values; a change is reported after its commit.

use std::sync::Arc;

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use super::accept::MeshSender;
use super::time_text::text_of_ms;
use super::{Broker, BrokerError};
use crate::frame::{
    BrokerFrame, RawJson, SetState, StateChange, StateEntry, StateList, StateResult,
};
use crate::id::StateKey;
use crate::limits::STATE_KEYS_MAX;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SharedValue {
    value: RawJson,
    /// In milliseconds.
    updated_at: i64,
    /// The key of the member.
    updated_by: String,
    /// The presence that set it, which is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    presence_id: Option<String>,
}

/// Is written in each commit that sets a value of a mesh. Its version is what counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ValuesMark {}

/// Among the values, because no mesh has an empty id.
fn mark_key(mesh_id: &str) -> Key {
    key("", mesh_id)
}

fn key(mesh_id: &str, name: &str) -> Key {
    Key {
        kind: Kind::MeshState,
        owner: mesh_id.to_owned(),
        name: name.to_owned(),
    }
}

impl Broker {
    /// Sets a value and reports it to the other connections of the mesh.
    pub(super) async fn set_state(
        &self,
        sender: &MeshSender,
        set: &SetState,
        presence_id: &str,
    ) -> Result<(), BrokerError> {
        let mesh_id = &sender.mesh.id;
        let key = key(mesh_id, set.key.as_str());
        let before = self.engine().record(key.clone()).await?;
        if before.is_none() {
            let kind = Kind::MeshState;
            let all = self.engine().records(kind, mesh_id, "", STATE_KEYS_MAX);
            if all.await?.len() >= STATE_KEYS_MAX as usize {
                return Err(BrokerError::StateFull);
            }
        }
        let roster = self.roster(mesh_id).await?;
        let member = roster.active(&sender.member_id);
        let member = member.ok_or_else(|| BrokerError::NoSuchMember(sender.member_id.clone()))?;
        let value = SharedValue {
            value: set.value.clone(),
            updated_at: self.wall_ms(),
            updated_by: member.pubkey.to_string(),
            presence_id: Some(presence_id.to_owned()),
        };
        if self.has_other_nodes() {
            let version = before.map_or(0, |before| before.version);
            self.inner.told.expect_value(mesh_id, &key.name, version);
        }
        let mut unit = UnitOfWork::default();
        unit.put(key, &value);
        unit.put(mark_key(mesh_id), &ValuesMark {});
        self.engine().commit(unit).await?;
        if self.has_other_nodes() {
            self.publish_presences();
        } else {
            self.tell_value(mesh_id, set.key.as_str(), value);
        }
        Ok(())
    }

    fn tell_value(&self, mesh_id: &str, name: &str, value: SharedValue) {
        let change = StateChange {
            key: name.to_owned(),
            value: value.value,
            updated_by: value.updated_by,
        };
        let text: Arc<str> = BrokerFrame::from(change).to_text(None).into();
        let setter = value.presence_id;
        let peers = &self.inner.peers;
        peers.broadcast(mesh_id, &text, |peer| {
            Some(&peer.presence_id) != setter.as_ref()
        });
    }

    /// Tells the connections of this node the values that were set since they were told.
    pub(super) async fn tell_value_news(&self, mesh_id: &str) -> Result<(), Error> {
        let mark = self.engine().record(mark_key(mesh_id)).await?;
        let mark = mark.map_or(0, |mark| mark.version);
        let told = &self.inner.told;
        if !told.is_mark_new(mesh_id, mark) {
            return Ok(());
        }
        // Ordering: the mark is read before the values, so a value that is set meanwhile is compared again.
        let kind = Kind::MeshState;
        let records = self.engine().records(kind, mesh_id, "", STATE_KEYS_MAX);
        let records = records.await?;
        let versions = records.iter();
        let versions = versions.map(|record| (record.key.name.clone(), record.version));
        let versions: Vec<(String, u64)> = versions.collect();
        let news = told.compare_values(mesh_id, mark, &versions);
        for record in records {
            let name = record.key.name.clone();
            if news.contains(&name) {
                let value = Versioned::<SharedValue>::read(record)?.value;
                self.tell_value(mesh_id, &name, value);
            }
        }
        Ok(())
    }

    /// A value; `null` if it was never set.
    pub(super) async fn get_state(
        &self,
        mesh_id: &str,
        name: StateKey,
    ) -> Result<StateResult, BrokerError> {
        let found = self
            .engine()
            .load::<SharedValue>(key(mesh_id, name.as_str()));
        let found = found.await?.map(|found| found.value);
        let null = || RawJson::parse("null").ok_or(BrokerError::StateFull);
        let (updated_at, updated_by) = match &found {
            Some(found) => (
                Some(text_of_ms(found.updated_at)),
                Some(found.updated_by.clone()),
            ),
            None => (None, None),
        };
        Ok(StateResult {
            key: name.to_string(),
            value: found.map_or_else(null, |found| Ok(found.value))?,
            updated_at,
            updated_by,
        })
    }

    /// All values, by their keys.
    pub(super) async fn list_state(&self, mesh_id: &str) -> Result<StateList, BrokerError> {
        let kind = Kind::MeshState;
        let records = self.engine().records(kind, mesh_id, "", STATE_KEYS_MAX);
        let mut entries = Vec::new();
        for record in records.await? {
            let name = record.key.name.clone();
            let value = Versioned::<SharedValue>::read(record)?.value;
            entries.push(StateEntry {
                key: name,
                value: value.value,
                updated_at: text_of_ms(value.updated_at),
                updated_by: value.updated_by,
            });
        }
        Ok(StateList { entries })
    }
}
