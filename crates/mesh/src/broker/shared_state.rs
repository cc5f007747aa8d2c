//! Values that the members of a mesh share, by key.
//!
//! Invariant: a mesh has at most [`STATE_KEYS_MAX`] values; a change is reported after its commit.

use std::sync::Arc;

use consign_engine::{Versioned, new_put};
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
        if self.engine().record(key.clone()).await?.is_none() {
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
        };
        self.engine().put(new_put(key, &value)).await?;
        let change = StateChange {
            key: set.key.to_string(),
            value: value.value,
            updated_by: value.updated_by,
        };
        let text: Arc<str> = BrokerFrame::from(change).to_text(None).into();
        let peers = &self.inner.peers;
        peers.broadcast(mesh_id, &text, |peer| peer.presence_id != presence_id);
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
