//! `consign bench-empty`: the listener and layers of `serve` around a router that does nothing.

use std::net::SocketAddr;

use anyhow::Context;
use consign_web::server::{Options, Server};
use consign_web::{empty, layers};

use crate::data_dir::DataArgs;
use crate::failure::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct EmptyArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,

    /// Where the address is written
    #[command(flatten)]
    data: DataArgs,
}

impl EmptyArgs {
    /// Serves until it is killed.
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let data = self.data.directory();
        data.create()?;
        let server = Server::bind(Options::new(self.listen))?;
        data.write_address(&format!("http://{}", server.local_addr()))?;
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).context("no source of random numbers")?;
        let layers = layers::Options {
            trust_proxy: false,
            request_id_seed: u128::from_le_bytes(seed),
            on_panic: consign_web::shell::on_panic,
            on_too_many_failures: None,
        };
        let service = layers::around(empty::router(), layers);
        server.run(service, std::future::pending::<()>()).await?;
        Ok(Exit::Done)
    }
}
