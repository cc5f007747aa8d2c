//! The health of the runtime: which tasks are down, and whether the ledger refuses claims.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use consign_engine::LedgerHealth;
use tokio::sync::watch;

use super::lifecycle::Runtime;

const RESTART_DELAY: Duration = Duration::from_secs(1);
/// The dispatcher retries after a second and reports nothing while it waits for jobs, so an old refusal counts as resolved.
const REFUSAL_AGE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct TaskHealth {
    /// Tasks that should run but do not.
    stopped_tasks: Mutex<BTreeSet<&'static str>>,
    refused_at: Mutex<Option<Instant>>,
}

impl TaskHealth {
    /// Restarts a task that panicked; without it the service would look healthy and do nothing.
    pub(super) async fn supervise<F>(
        &self,
        name: &'static str,
        stopping: &watch::Sender<bool>,
        task: impl Fn() -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Err(error) = tokio::spawn(task()).await {
            tracing::error!(component = name, %error, "a task of the service panicked; it is restarted");
            self.stopped_tasks().insert(name);
            tokio::time::sleep(RESTART_DELAY).await;
            self.stopped_tasks().remove(name);
        }
        if !*stopping.borrow() {
            tracing::error!(component = name, "a task of the service ended unexpectedly");
            self.stopped_tasks().insert(name);
        }
    }

    /// The ledger refused a claim of the dispatcher.
    pub(super) fn claim_refused(&self) {
        *self.refused_at() = Some(Instant::now());
    }

    fn unhealthy_reason(&self) -> Option<String> {
        let stopped_tasks = self.stopped_tasks();
        if let Some(name) = stopped_tasks.first() {
            return Some(format!(
                "the {name} is not running; see the log of the service, and restart it"
            ));
        }
        let refused_at = *self.refused_at();
        refused_at.filter(|at| at.elapsed() < REFUSAL_AGE_MAX)?;
        Some("the ledger refuses claims; see the log of the service".to_owned())
    }

    fn stopped_tasks(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.stopped_tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn refused_at(&self) -> MutexGuard<'_, Option<Instant>> {
        let refused_at = self.refused_at.lock();
        refused_at.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// Why the service is not working at the moment; `None` while it is healthy or stopping.
    pub async fn unhealthy_reason(&self) -> Option<String> {
        if *self.inner.stopping.borrow() {
            return None;
        }
        // A ledger that is only unwritable, as on a full disk, is not repaired by restarting the service.
        let ledger = self.ledger_health().await;
        if ledger == LedgerHealth::Unreadable {
            return Some(ledger.reason().to_owned());
        }
        self.inner.health.unhealthy_reason()
    }

    /// Whether the ledger is readable and writable at the moment.
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
        let (health, stopping) = (Arc::new(TaskHealth::default()), watch::Sender::new(false));
        let starts = Arc::new(AtomicUsize::new(0));
        let kept = {
            let (health, stopping, starts) = (health.clone(), stopping.clone(), starts.clone());
            tokio::spawn(async move {
                let task = || {
                    let start = starts.fetch_add(1, Ordering::SeqCst);
                    async move {
                        assert!(start > 0, "planned");
                        std::future::pending::<()>().await;
                    }
                };
                health.supervise("dispatcher", &stopping, task).await;
            })
        };
        while health.unhealthy_reason().is_none() {
            tokio::task::yield_now().await;
        }
        let said = health.unhealthy_reason().unwrap_or_default();
        assert!(said.starts_with("the dispatcher is not running"), "{said}");
        tokio::time::sleep(RESTART_DELAY * 2).await;
        assert_eq!(starts.load(Ordering::SeqCst), 2);
        assert_eq!(health.unhealthy_reason(), None);
        kept.abort();
    }

    #[tokio::test]
    async fn a_task_that_just_ends_is_down_unless_the_service_stops() {
        for stops in [false, true] {
            let (health, stopping) = (TaskHealth::default(), watch::Sender::new(stops));
            health.supervise("scheduler", &stopping, || async {}).await;
            assert_eq!(health.unhealthy_reason().is_none(), stops);
        }
    }

    #[test]
    fn a_refused_claim_is_unhealthy_for_a_while() {
        let health = TaskHealth::default();
        health.claim_refused();
        assert!(health.unhealthy_reason().is_some());
        *health.refused_at() = Instant::now().checked_sub(REFUSAL_AGE_MAX);
        assert_eq!(health.unhealthy_reason(), None);
    }
}
