//! Reloads the configuration for the API, the control socket and signals.

use std::fmt;
use std::sync::Arc;

use crate::program::Program;
use crate::runtime::{ReloadError, Reloaded, Runtime};
use tokio::sync::Mutex;

type LoadFn = dyn Fn() -> Result<Arc<Program>, String> + Send + Sync;

/// Reads the configuration again. Reloads are serialized, so that the newest file wins.
#[derive(Clone)]
pub struct Loader {
    load: Arc<LoadFn>,
    turn: Arc<Mutex<()>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the configuration cannot be used: {0}")]
    Unusable(String),
    #[error(transparent)]
    Refused(#[from] ReloadError),
}

impl Loader {
    /// The error text of `load` describes the problems of the configuration.
    pub fn new(load: impl Fn() -> Result<Arc<Program>, String> + Send + Sync + 'static) -> Self {
        Self {
            load: Arc::new(load),
            turn: Arc::default(),
        }
    }

    /// After an error the old configuration stays.
    pub async fn reload(&self, runtime: &Runtime) -> Result<Reloaded, Error> {
        let _turn = self.turn.lock().await;
        let program = self.read().await.map_err(Error::Unusable)?;
        Ok(runtime.reload(program).await?)
    }

    /// Loads the configuration without applying it.
    pub(super) async fn read(&self) -> Result<Arc<Program>, String> {
        let load = Arc::clone(&self.load);
        let loaded = tokio::task::spawn_blocking(move || load()).await;
        loaded.unwrap_or_else(|_| Err("it could not be read".to_owned()))
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loader")
    }
}
