//! `consign openapi`
//!
//! The description of the HTTP interface, as a running server of this version serves it; no server is needed.

use consign_faces::intent::openapi;

use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the page for people instead of the JSON document
    #[arg(long)]
    html: bool,
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let text = if self.html {
            openapi::html()
        } else {
            openapi::json()
        };
        out::data(text)?;
        Ok(Exit::Done)
    }
}
