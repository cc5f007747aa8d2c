//! What an operator's commands ask of a running daemon.

use std::sync::Arc;

use serde_json::json;

use super::RouteAnswer;
use crate::config::DaemonConfig;
use crate::daemon::DaemonEnd;
use crate::daemon::event_hub::now_text;
use crate::daemon::ipc_server::LocalCaller;
use crate::daemon::metrics::DaemonMetric;
use crate::daemon::open::level;
use crate::daemon::private_file;
use crate::daemon::shared::DaemonShared;
use crate::ipc::{IpcRefusal, IpcTransport};

pub(super) fn rotate_token(shared: &Arc<DaemonShared>) -> RouteAnswer {
    shared
        .tokens
        .rotate()
        .map_err(|error| IpcRefusal::new(503, format!("storage_unavailable: {error}")))?;
    shared.log.info("local_token_rotated", &json!({}));
    shared.metrics.count(DaemonMetric::TokenRotations, &[]);
    super::json(200, &json!({"ok": true, "rotated_at": now_text()}))
}

/// Reads the settings again. What is fixed at the start, such as the listeners, stays as it is.
pub(super) fn reload(shared: &Arc<DaemonShared>) -> RouteAnswer {
    let path = shared.folder.config();
    let bad = |why: String| IpcRefusal::bad_request(format!("{}: {why}", path.display()));
    let text = private_file::read(&path).map_err(|error| bad(error.to_string()))?;
    let config =
        DaemonConfig::parse(&text.unwrap_or_default()).map_err(|error| bad(error.to_string()))?;
    if config
        .daemon
        .mesh
        .as_ref()
        .is_some_and(|mesh| *mesh != shared.slug)
    {
        return Err(bad("daemon.mesh is another mesh".to_owned()));
    }
    shared
        .hooks
        .reload()
        .map_err(|error| IpcRefusal::bad_request(error.to_string()))?;
    shared.log.set_level(level(&config));
    shared.set_config(config);
    shared.log.info("settings_reloaded", &json!({}));
    super::json(200, &json!({"ok": true, "reloaded_at": now_text()}))
}

/// Answers first; the listeners end after their requests.
pub(super) fn shut_down(shared: &Arc<DaemonShared>, caller: &LocalCaller) -> RouteAnswer {
    if *caller != LocalCaller::User(IpcTransport::Unix) {
        return Err(IpcRefusal::new(403, "shutdown works over the socket file"));
    }
    shared.end(DaemonEnd::stopped());
    super::json(200, &json!({"ok": true, "pid": std::process::id()}))
}
