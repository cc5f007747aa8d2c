//! The service that a command talks to: that of a configuration, or one at a URL.
//!
//! Invariant: a token is only sent to the URL that was given with it.

use consign_client::SecretKey;

use super::config::tree::TreeArgs;
use super::request::block_on;
use crate::system::{ServiceClient, WhenStopped};

#[derive(Debug, clap::Args)]
pub(crate) struct ServiceArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,

    /// Use the HTTP interface of a service, such as <http://127.0.0.1:8080>, and no configuration
    #[arg(long, value_name = "URL")]
    pub(crate) api_url: Option<String>,

    /// Token for that service; prefer the variable, other users can see arguments
    #[arg(
        long,
        value_name = "KEY",
        env = "DUCTILE_API_KEY",
        hide_env_values = true
    )]
    api_key: Option<SecretKey>,
}

impl ServiceArgs {
    /// Whether a flag names the service.
    pub(crate) fn is_named(&self) -> bool {
        self.api_url.is_some() || self.tree.is_named()
    }

    /// The service, or the ledger if none runs.
    pub(crate) async fn client(&self, when_stopped: WhenStopped) -> anyhow::Result<ServiceClient> {
        match &self.api_url {
            Some(url) => ServiceClient::remote(url, self.api_key.as_ref()),
            None => ServiceClient::new(&self.tree.find()?, when_stopped).await,
        }
    }

    /// The service, if it runs.
    pub(crate) async fn running(&self) -> anyhow::Result<Option<ServiceClient>> {
        match &self.api_url {
            Some(url) => ServiceClient::remote(url, self.api_key.as_ref()).map(Some),
            None => ServiceClient::connect_running(&self.tree.find()?).await,
        }
    }

    /// Requests `path` from the running service; `None` if none runs.
    pub(crate) fn get_if_running(&self, path: &str) -> anyhow::Result<Option<serde_json::Value>> {
        block_on(async {
            match self.running().await? {
                Some(client) => Ok(Some(client.get(path).await?.body)),
                None => Ok(None),
            }
        })
    }
}
