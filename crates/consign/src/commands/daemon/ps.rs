//! `consign daemon ps`: the daemons of all joined meshes, whether they run or not.

use consign_mesh::ipc::HealthAnswer;
use serde_json::{Value, json};

use super::{DaemonSelector, columns};
use crate::failure::Exit;
use crate::mesh_member::daemon_link::DaemonLink;
use crate::mesh_member::home::MemberHome;

pub(super) async fn run(target: &DaemonSelector) -> anyhow::Result<Exit> {
    let home = MemberHome::from_environment()?;
    let mut daemons = Vec::new();
    for slug in home.slugs()? {
        let directory = home.daemon_directory(&slug);
        let link = DaemonLink::new(&slug, &directory)?;
        let health = link.health().await.ok();
        daemons.push(entry(
            slug.as_str(),
            &directory.display().to_string(),
            health,
        ));
    }
    target.print(&json!({"daemons": daemons}), |answer| {
        columns(
            answer,
            "daemons",
            &["MESH", "STATE", "PID", "CONNECTED", "QUEUED", "DIRECTORY"],
            &[
                "mesh",
                "state",
                "pid",
                "connected",
                "queue_depth",
                "directory",
            ],
        )
    })
}

fn entry(slug: &str, directory: &str, health: Option<HealthAnswer>) -> Value {
    match health {
        Some(health) => json!({
            "mesh": slug,
            "state": if health.degraded { "degraded" } else { "running" },
            "pid": health.pid,
            "connected": health.connected,
            "queue_depth": health.queue_depth,
            "uptime_s": health.uptime_s,
            "directory": directory,
        }),
        None => json!({"mesh": slug, "state": "stopped", "directory": directory}),
    }
}
