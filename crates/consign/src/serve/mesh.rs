//! The broker of meshes beside the other protocols, on the same ledger.

use std::sync::Arc;

use consign_mesh::broker::Broker;
use consign_mesh::http::MeshMount;
use consign_web::operator::OperatorCredentials;
use consign_web::shell::Mount;

use super::mesh_settings;
use super::prepare::{Prepared, StartedLedger};
use crate::failure::Failure;

pub(super) fn open(ledger: &StartedLedger, base_url: &str) -> anyhow::Result<Broker> {
    let lookup = |name: &str| std::env::var(name).ok();
    let settings = mesh_settings::read(lookup, base_url).map_err(Failure::from)?;
    Ok(Broker::new(ledger.engine.clone(), settings))
}

pub(super) fn mount(
    mesh: &Broker,
    operators: OperatorCredentials,
    prepared: &Prepared,
) -> Arc<dyn Mount> {
    let policy = prepared.settings.policy();
    Arc::new(MeshMount::new(mesh.clone(), operators, policy))
}
