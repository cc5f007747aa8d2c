//! Reloads the configuration: a new one applies from the next dispatch on, and running jobs keep theirs.
//!
//! What was opened at the start (ledger, listeners) cannot change; such a configuration is refused as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use consign_engine::Error;

use super::lifecycle::{Runtime, RuntimeInner};
use super::removed_plugins::is_removed;
use super::setup;
use crate::config::Config;
use crate::program::{Plugin, Program};

/// The effects of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    pub added: Vec<String>,
    /// Disabled, or removed from both configuration and disk.
    pub removed: Vec<String>,
    /// Present but not runnable at the moment; their jobs wait.
    pub left_out: Vec<String>,
    /// Queued jobs of removed plugins that were cancelled.
    pub ended_jobs: usize,
    /// Some follow-up work failed, as logged, and is retried.
    pub unfinished: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("`{0}` has changed; restart the service to change it")]
    NeedsRestart(&'static str),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Runtime {
    /// Makes this configuration the current one. After an error the old one stays.
    pub async fn reload(&self, program: Arc<Program>) -> Result<Reloaded, ReloadError> {
        let old = self.program();
        if let Some(key) = unreloadable_change(old.config(), program.config()) {
            return Err(ReloadError::NeedsRestart(key));
        }
        let names = |program: &Program| -> BTreeSet<String> {
            program
                .plugins()
                .map(|plugin| plugin.name.clone())
                .collect()
        };
        let (before, after) = (names(&old), names(&program));
        let missing = old.plugins().filter(|plugin| !after.contains(&plugin.name));
        let (removed, left_out): (Vec<&Plugin>, Vec<&Plugin>) =
            missing.partition(|plugin| is_removed(plugin, &program));
        let named = |plugins: Vec<&Plugin>| -> Vec<String> {
            plugins.iter().map(|plugin| plugin.name.clone()).collect()
        };
        let (removed, left_out) = (named(removed), named(left_out));
        // The step that can fail comes first; after it the new configuration applies in any case.
        self.inner.record_removed(&program, &removed).await?;
        self.adopt(Arc::clone(&program));
        let (ended_jobs, unfinished) = self.apply_follow_ups(&program).await;
        self.inner.unreported_ends.notify_one();
        self.inner.wait_until_serving().await;
        let added = after.difference(&before).cloned().collect();
        let reloaded = Reloaded {
            added,
            removed,
            left_out,
            ended_jobs,
            unfinished,
        };
        tracing::info!(
            component = "reload",
            ?reloaded,
            "the configuration was reloaded"
        );
        Ok(reloaded)
    }

    /// Sets up new plugins and cancels the jobs of removed ones. Returns the number of cancelled jobs, and whether work remains.
    async fn apply_follow_ups(&self, program: &Arc<Program>) -> (usize, bool) {
        let inner = &self.inner;
        // Set before the attempt: the caller of the reload may disconnect halfway.
        inner.setup_pending.store(true, Ordering::SeqCst);
        let set_up = setup::queue_setups(inner, program).await;
        if set_up.is_ok() {
            inner.setup_pending.store(false, Ordering::SeqCst);
        }
        let mut ended = 0;
        let all_ended = inner.cancel_removed_jobs(&mut ended).await;
        let error = set_up.and(all_ended).err();
        if let Some(error) = &error {
            tracing::warn!(component = "reload", %error, "the new configuration is active, but follow-up work failed and will be retried");
        }
        (ended, error.is_some())
    }
}

/// The first setting that differs and cannot be reloaded.
fn unreloadable_change(old: &Config, new: &Config) -> Option<&'static str> {
    let webhooks = |config: &Config| {
        let webhooks = config.webhooks.as_ref();
        webhooks.and_then(|webhooks| webhooks.listen.clone())
    };
    let differing = [
        ("state.path", old.state_path != new.state_path),
        ("api.enabled", old.api.enabled != new.api.enabled),
        ("api.listen", old.api.listen != new.api.listen),
        ("webhooks.listen", webhooks(old) != webhooks(new)),
    ];
    let mut differing = differing.into_iter().filter(|(_, differs)| *differs);
    differing.next().map(|(key, _)| key)
}

impl RuntimeInner {
    /// Retries the follow-up work of a reload that failed the first time.
    pub(super) async fn finish_reload(&self) -> Result<(), Error> {
        if self.setup_pending.swap(false, Ordering::SeqCst)
            && let Err(error) = setup::queue_setups(self, &self.program()).await
        {
            self.setup_pending.store(true, Ordering::SeqCst);
            return Err(error);
        }
        self.cancel_removed_jobs(&mut 0).await
    }
}
