//! Beam beside the other protocols: the directory, its relay and the message bus on the same ledger.

use std::sync::Arc;

use anyhow::Context as _;
use consign_beam::http::BeamMount;
use consign_beam::service::{Beam, BeamNode};
use consign_web::secret_text::SecretText;
use consign_web::shell::Mount;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::beam_settings;
use super::ledger::random_bytes;
use super::prepare::{Prepared, StartedLedger};
use crate::failure::Failure;
use crate::secrets::Secrets;

/// The name of the only node on a ledger in a file.
const NODE: &str = "beam";

/// Opens the directory and recovers what an earlier start left.
pub(super) async fn open(
    prepared: &Prepared,
    ledger: &StartedLedger,
    base_url: &str,
) -> anyhow::Result<Beam> {
    let secret = session_secret(&prepared.secrets);
    let lookup = |name: &str| std::env::var(name).ok();
    let settings = beam_settings::read(lookup, base_url, secret).map_err(Failure::from)?;
    // A file has one server at a time, so earlier leases belong to this node.
    let name = if ledger.shared {
        prepared.data.node_id(&prepared.lock)?
    } else {
        NODE.to_owned()
    };
    let node = BeamNode {
        id: ledger.node_id,
        name,
        start: format!("{:016x}", u64::from_le_bytes(random_bytes()?)),
        shared: ledger.shared,
    };
    let beam = Beam::new(ledger.engine.clone(), settings, node)
        .context("cannot prepare calls to other directories")?;
    let recovered = beam.recover().await?;
    if recovered > 0 {
        tracing::info!(
            recovered,
            "recovered intents and messages of an earlier start"
        );
    }
    let removed = beam.remove_test_messages().await?;
    if removed > 0 {
        tracing::info!(removed, "removed messages of test agents");
    }
    beam.seed_demo_rules().await?;
    Ok(beam)
}

pub(super) fn mount(beam: &Beam, prepared: &Prepared) -> Arc<dyn Mount> {
    Arc::new(BeamMount::new(beam.clone(), prepared.settings.policy()))
}

/// Signs the sessions of operators, the same on all nodes of a ledger.
fn session_secret(secrets: &Secrets) -> SecretText {
    let mut mac = Hmac::<Sha256>::new_from_slice(secrets.seal_key.reveal())
        .expect("a key of any length is accepted");
    mac.update(b"consign beam sessions");
    let bytes = mac.finalize().into_bytes();
    SecretText::new(data_encoding::HEXLOWER.encode(&bytes))
}
