//! Whether the ledger answers, for those who watch over this server.
//!
//! Invariant: however many ask, the ledger is asked once a second, and nobody waits for it longer than [`PATIENCE`].

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::{Engine, StoreError};

const AGE_MAX: Duration = Duration::from_secs(1);
/// Less than most of those who ask wait themselves.
const PATIENCE: Duration = Duration::from_secs(3);

/// The last time that somebody felt it.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Mutex<Option<Felt>>);

#[derive(Clone, Copy, Debug)]
struct Felt {
    at: Instant,
    answers: bool,
}

impl Engine {
    /// Whether the ledger answers a read, as it was at most a second ago.
    pub async fn ledger_answers(&self) -> bool {
        // Whoever comes while one asks waits, and then has the same answer.
        let mut last = self.inner.pulse.0.lock().await;
        if let Some(felt) = last.filter(|felt| felt.at.elapsed() < AGE_MAX) {
            return felt.answers;
        }
        let told = self.asked().await;
        let answers = told.is_ok();
        match told {
            Err(error) if last.is_none_or(|felt| felt.answers) => {
                tracing::error!(%error, "the ledger does not answer; this server says that it is not well");
            }
            Ok(()) if last.is_some_and(|felt| !felt.answers) => {
                tracing::info!("the ledger answers again");
            }
            _ => {}
        }
        let at = Instant::now();
        *last = Some(Felt { at, answers });
        answers
    }

    async fn asked(&self) -> Result<(), StoreError> {
        match timeout(PATIENCE, self.inner.store.highest_fact()).await {
            // It has much to do, and says so.
            Ok(Ok(_) | Err(StoreError::Busy)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(StoreError::Unavailable(format!(
                "no answer within {} seconds",
                PATIENCE.as_secs()
            ))),
        }
    }
}
