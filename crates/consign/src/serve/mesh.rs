//! The broker of meshes beside the other protocols, on the same ledger.

use std::sync::Arc;

use consign_mesh::broker::{Broker, BrokerNode};
use consign_mesh::http::MeshMount;
use consign_web::operator::OperatorCredentials;
use consign_web::shell::Mount;

use super::ledger::random_bytes;
use super::mesh_settings;
use super::prepare::{Prepared, StartedLedger};
use crate::failure::Failure;

/// The name of the node if the ledger is a file.
const NODE: &str = "mesh";

/// The folder of shared files in the data directory.
const BLOBS: &str = "mesh-blobs";

/// Opens the broker and releases what an earlier start had claimed.
pub(super) async fn open(
    prepared: &Prepared,
    ledger: &StartedLedger,
    base_url: &str,
) -> anyhow::Result<Broker> {
    let lookup = |name: &str| std::env::var(name).ok();
    let own_folder = (!ledger.shared).then(|| prepared.data.root().join(BLOBS));
    let settings = mesh_settings::read(lookup, base_url, own_folder);
    let mut settings = settings.map_err(Failure::from)?;
    // A file has one server at a time, so earlier leases belong to this node.
    let name = if ledger.shared {
        prepared.data.node_id(&prepared.lock)?
    } else {
        NODE.to_owned()
    };
    settings.node = BrokerNode {
        id: ledger.node_id,
        name,
        start: format!("{:016x}", u64::from_le_bytes(random_bytes()?)),
        shared: ledger.shared,
    };
    let broker = Broker::new(ledger.engine.clone(), settings);
    let recovered = broker.recover().await?;
    if recovered > 0 {
        tracing::info!(recovered, "released deliveries of an earlier start");
    }
    Ok(broker)
}

pub(super) fn mount(
    mesh: &Broker,
    operators: OperatorCredentials,
    prepared: &Prepared,
) -> Arc<dyn Mount> {
    let policy = prepared.settings.policy();
    Arc::new(MeshMount::new(mesh.clone(), operators, policy))
}
