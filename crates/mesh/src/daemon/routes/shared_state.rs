//! Values that the members of a mesh share, if the settings enable them.

use std::sync::Arc;

use super::peers::{failed, line};
use super::{LocalRequest, RouteAnswer};
use crate::daemon::shared::DaemonShared;
use crate::frame::{ClientFrame, GetState, ListState, SetState};
use crate::id::StateKey;
use crate::ipc::{IpcRefusal, StateUpdate};
use crate::query::QueryPairs;

/// One value with `key`, otherwise all.
pub(super) async fn get(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let frame: ClientFrame = match QueryPairs::parse(&request.query).get("key") {
        Some(key) => {
            let key =
                StateKey::parse(key).map_err(|error| IpcRefusal::bad_request(error.to_string()))?;
            GetState { key }.into()
        }
        None => ListState {}.into(),
    };
    answered(shared, None, frame).await
}

pub(super) async fn set(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let update = StateUpdate::parse(&request.body)?;
    let key = update.key.clone();
    let set = SetState {
        key: update.key,
        value: update.value,
    };
    answered(shared, Some(set.into()), GetState { key }.into()).await
}

/// The members of the broker's answer.
async fn answered(
    shared: &Arc<DaemonShared>,
    first: Option<ClientFrame>,
    last: ClientFrame,
) -> RouteAnswer {
    let answer = line(shared)?.ask_after(first, last).await;
    let text = answer.map_err(|error| failed(&error))?.to_text(None);
    let mut body: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text)
        .map_err(|error| IpcRefusal::new(500, format!("internal: {error}")))?;
    body.remove("type");
    super::json(200, &body)
}
