//! `consign openapi`
//!
//! Prints the documentation of the HTTP interface as a server of this version serves it; no server is needed. It
//! includes Beam and the mesh, and agent transactions if `ATP_SITE` is set, as the server's does. The APIs of an automation service
//! and of a mesh daemon have documents of their own, because they listen elsewhere.

use consign_intent::openapi;
use consign_web::shell;

use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the page for people instead of the JSON document
    #[arg(long)]
    html: bool,

    /// Print the JSON document of the API of an automation service
    #[arg(long, conflicts_with = "html")]
    automation: bool,

    /// Print the JSON document of the local interface of a mesh daemon
    #[arg(long, conflicts_with_all = ["html", "automation"])]
    daemon: bool,
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let is_site = std::env::var_os("ATP_SITE").is_some_and(|site| !site.is_empty());
        if self.automation {
            let document = consign_automation::http::openapi::api::document();
            out::data(&format!("{document:#}"))?;
        } else if self.daemon {
            out::data(&format!("{:#}", consign_mesh::ipc::openapi::document()))?;
        } else if self.html {
            out::data(openapi::html())?;
        } else {
            let transactions = is_site.then(consign_transactions::http::openapi::document);
            let beam = consign_beam::http::openapi::document();
            let mesh = consign_mesh::http::openapi::document();
            let further: Vec<_> = transactions.into_iter().chain([beam, mesh]).collect();
            out::data(&shell::merged_openapi(openapi::document(), &further))?;
        }
        Ok(Exit::Done)
    }
}
