//! The removal of what is past its retention: settled intents and messages, their nonces and facts, and expired records.

use std::time::Duration;

use consign_engine::{Engine, Error};
use consign_kernel::command::{Clean, Forget, ForgetFacts};
use consign_kernel::ids::{DAY_US, FactSeq};
use consign_kernel::limits;
use consign_kernel::once::Scope;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;

use crate::service::Beam;

/// Rows per commit, so that a pass does not delay other requests for long.
const PIECE_ROWS: u32 = 500;
/// Pieces of one pass; the next pass continues.
const PIECES_MAX: u32 = 1_000;
const PASS_EVERY: Duration = Duration::from_hours(1);
/// A trace is kept longer than its intent.
const FACTS_RETENTION_US: i64 = 30 * DAY_US;

/// The records that expire.
const EXPIRING: [Kind; 6] = [
    Kind::BeamUsedNonce,
    Kind::BeamLogin,
    Kind::BeamSession,
    Kind::BeamRemoteAgent,
    Kind::BeamTrust,
    Kind::BeamHandover,
];

impl Beam {
    /// Runs a pass every hour, until the process ends.
    pub async fn clean_up_forever(self) {
        let mut facts_seen = FactSeq(0);
        loop {
            tokio::time::sleep(PASS_EVERY).await;
            if let Err(error) = self.clean_up(&mut facts_seen).await {
                tracing::warn!(%error, "old intents and messages were not removed; trying again in an hour");
            }
        }
    }

    /// One pass. `facts_seen` is where the last one stopped.
    pub async fn clean_up(&self, facts_seen: &mut FactSeq) -> Result<(), Error> {
        let engine = self.engine();
        for _ in 0..PIECES_MAX {
            let piece = Clean {
                face: Face::Beam,
                retention_us: limits::RETENTION_US,
                limit: PIECE_ROWS,
            };
            if !engine.clean(piece).await?.more {
                break;
            }
        }
        for scope in [Scope::BeamNonce, Scope::BeamBusNonce] {
            forget(engine, || Forget::Once {
                scope,
                limit: PIECE_ROWS,
            })
            .await?;
        }
        for kind in EXPIRING {
            forget(engine, || Forget::Records {
                kind,
                ahead_us: 0,
                limit: PIECE_ROWS,
            })
            .await?;
        }
        for _ in 0..PIECES_MAX {
            let piece = ForgetFacts {
                face: Face::Beam,
                before: engine.now().minus(FACTS_RETENTION_US),
                after: *facts_seen,
                limit: PIECE_ROWS,
            };
            let Some(after) = engine.forget_facts(piece).await? else {
                break;
            };
            *facts_seen = after;
        }
        Ok(())
    }
}

async fn forget(engine: &Engine, piece: impl Fn() -> Forget) -> Result<(), Error> {
    for _ in 0..PIECES_MAX {
        if engine.forget_piece(piece()).await? < u64::from(PIECE_ROWS) {
            break;
        }
    }
    Ok(())
}
