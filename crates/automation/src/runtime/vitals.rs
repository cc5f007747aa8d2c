//! Whether the service does what it is there for, as those are told who watch over it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use consign_engine::LedgerHealth;
use tokio::sync::watch;

use super::service::Runtime;

const BEFORE_ANEW: Duration = Duration::from_secs(1);
/// The dispatcher tries again after a second. It says nothing while it waits for jobs, so a refusal is over when it is old.
const REFUSAL_LASTS: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Vitals {
    /// Tasks that should run and do not.
    down: Mutex<BTreeSet<&'static str>>,
    refused_at: Mutex<Option<Instant>>,
}

impl Vitals {
    /// A task that panics begins anew: without it the service would look well and do nothing.
    pub(super) async fn keep_going<F>(
        &self,
        name: &'static str,
        stopping: &watch::Sender<bool>,
        task: impl Fn() -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Err(error) = tokio::spawn(task()).await {
            tracing::error!(component = name, %error, "a task of the service ended by a panic; it begins anew");
            self.down().insert(name);
            tokio::time::sleep(BEFORE_ANEW).await;
            self.down().remove(name);
        }
        if !*stopping.borrow() {
            tracing::error!(component = name, "a task of the service has ended");
            self.down().insert(name);
        }
    }

    /// The ledger did not let the dispatcher take jobs.
    pub(super) fn refused(&self) {
        *self.refused_at() = Some(Instant::now());
    }

    fn ailment(&self) -> Option<String> {
        let down = self.down();
        if let Some(name) = down.first() {
            return Some(format!(
                "the {name} does not run; the log of the service says why, and a restart helps"
            ));
        }
        let refused_at = *self.refused_at();
        refused_at.filter(|at| at.elapsed() < REFUSAL_LASTS)?;
        Some("the ledger gives out no jobs; the log of the service says why".to_owned())
    }

    fn down(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused_at(&self) -> MutexGuard<'_, Option<Instant>> {
        let refused_at = self.refused_at.lock();
        refused_at.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// Why nobody should count on the service at the moment; `None` while it is well, or on its way out.
    pub async fn ailment(&self) -> Option<String> {
        if *self.inner.stopping.borrow() {
            return None;
        }
        // One that is only unwritable, as on a full disk, is not mended by starting the service anew.
        let ledger = self.ledger_health().await;
        if ledger == LedgerHealth::Unreadable {
            return Some(ledger.reason().to_owned());
        }
        self.inner.vitals.ailment()
    }

    /// What the ledger is fit for at the moment.
    pub async fn ledger_health(&self) -> LedgerHealth {
        self.inner.engine.ledger_health().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_down_until_it_runs_again() {
        let (vitals, stopping) = (Arc::new(Vitals::default()), watch::Sender::new(false));
        let starts = Arc::new(AtomicUsize::new(0));
        let kept = {
            let (vitals, stopping, starts) = (vitals.clone(), stopping.clone(), starts.clone());
            tokio::spawn(async move {
                let task = || {
                    let start = starts.fetch_add(1, Ordering::SeqCst);
                    async move {
                        assert!(start > 0, "planned");
                        std::future::pending::<()>().await;
                    }
                };
                vitals.keep_going("dispatcher", &stopping, task).await;
            })
        };
        while vitals.ailment().is_none() {
            tokio::task::yield_now().await;
        }
        let said = vitals.ailment().unwrap_or_default();
        assert!(said.starts_with("the dispatcher does not run"), "{said}");
        tokio::time::sleep(BEFORE_ANEW * 2).await;
        assert_eq!(starts.load(Ordering::SeqCst), 2);
        assert_eq!(vitals.ailment(), None);
        kept.abort();
    }

    #[tokio::test]
    async fn a_task_that_just_ends_is_down_unless_the_service_stops() {
        for stops in [false, true] {
            let (vitals, stopping) = (Vitals::default(), watch::Sender::new(stops));
            vitals.keep_going("scheduler", &stopping, || async {}).await;
            assert_eq!(vitals.ailment().is_none(), stops);
        }
    }

    #[test]
    fn a_refusal_is_an_ailment_for_a_while() {
        let vitals = Vitals::default();
        vitals.refused();
        assert!(vitals.ailment().is_some());
        *vitals.refused_at() = Instant::now().checked_sub(REFUSAL_LASTS);
        assert_eq!(vitals.ailment(), None);
    }
}
