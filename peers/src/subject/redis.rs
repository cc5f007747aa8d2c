//! Redis streams: XADD, XREADGROUP of one entry, XACK and XDEL in one write.
//!
//! The server is shared with `BullMQ`, which brings its own client.

use std::process::Command;
use std::rc::Rc;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::streams::StreamReadReply;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Value};

use super::{Environment, Subject, client_version};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{self, Link, Protocol, Role};
use crate::load::{Load, RoundResult};
use crate::server::{Server, free_port, output};

pub(super) const SETTINGS: &str = "redis-server --appendonly yes --appendfsync always --save \"\"";

pub(super) fn serve(environment: &Environment) -> Result<Server, Error> {
    let folder = environment.folder("redis")?;
    let port = free_port()?;
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.args(["--save", "", "--dir"]).arg(&folder);
    Server::start(command, port, &folder.join("server.log"))
}

pub(super) fn version() -> Result<String, Error> {
    let printed = output(Command::new("redis-server").arg("--version"))?;
    number_of(&printed)
        .map(|number| format!("Redis {number}"))
        .ok_or_else(|| Error::unexpected("a version", printed.as_bytes()))
}

/// Of a line such as `Redis server v=7.0.15 sha=00000000:0 ...`.
fn number_of(printed: &str) -> Option<&str> {
    printed
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="))
}

pub(super) fn start(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    let server = environment.redis()?;
    Ok(Box::new(Streams { server }))
}

#[derive(Debug)]
struct Streams {
    server: Rc<Server>,
}

impl Subject for Streams {
    fn version(&self) -> Result<String, Error> {
        Ok(format!("{}, {}", version()?, client_version("redis")?))
    }

    fn connections(&self) -> Connections {
        Connections::To(self.server.port)
    }

    fn settings(&self) -> String {
        format!("{SETTINGS}; XADD, XREADGROUP COUNT 1, XACK+XDEL")
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.id())
    }

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
        let stream = Stream {
            port: self.server.port,
            name: load.queue(),
        };
        generate::run(&stream, load)
    }
}

struct Stream {
    port: u16,
    name: String,
}

const GROUP: &str = "workers";
/// An entry is acknowledged by its id alone, so one name serves all consumers.
const CONSUMER: &str = "one";

impl Stream {
    async fn open(&self) -> Result<MultiplexedConnection, Error> {
        let address = format!("redis://127.0.0.1:{}/", self.port);
        let address = address.into_connection_info();
        let address = address.map_err(Error::client("reading the address"))?;
        let settings = TcpSettings::default().set_nodelay(true);
        let client = Client::open(address.set_tcp_settings(settings));
        let client = client.map_err(Error::client("making a client"))?;
        // A claim waits until there is an entry.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        connection.await.map_err(Error::client("connecting"))
    }

    async fn call(&self, command: &Cmd) -> Result<(), Error> {
        let mut connection = self.open().await?;
        let answer = command.query_async::<Value>(&mut connection).await;
        answer.map(|_| ()).map_err(Error::client("a command"))
    }
}

impl Protocol for Stream {
    type Link = Connection;

    async fn prepare(&self) -> Result<(), Error> {
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&self.name).arg(GROUP);
        self.call(create.arg("0").arg("MKSTREAM")).await
    }

    async fn clear(&self) -> Result<(), Error> {
        self.call(redis::cmd("DEL").arg(&self.name)).await
    }

    async fn connect(&self, _role: Role) -> Result<Connection, Error> {
        Ok(Connection {
            inner: self.open().await?,
            stream: self.name.clone(),
        })
    }
}

struct Connection {
    inner: MultiplexedConnection,
    stream: String,
}

impl Link for Connection {
    /// The id of an entry.
    type Claimed = String;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error> {
        let mut add = redis::cmd("XADD");
        add.arg(&self.stream).arg("*").arg("d").arg(body);
        let added = add.query_async::<String>(&mut self.inner).await;
        added.map(|_| ()).map_err(Error::client("XADD"))
    }

    async fn claim(&mut self) -> Result<String, Error> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(CONSUMER);
        read.arg("COUNT").arg(1).arg("BLOCK").arg(0);
        read.arg("STREAMS").arg(&self.stream).arg(">");
        let reply = read.query_async::<StreamReadReply>(&mut self.inner).await;
        let reply = reply.map_err(Error::client("XREADGROUP"))?;
        let entries = reply.keys.into_iter().flat_map(|stream| stream.ids);
        let first = entries.map(|entry| entry.id).next();
        first.ok_or_else(|| Error::Answer("XREADGROUP returned no entry".to_owned()))
    }

    async fn ack(&mut self, entry: String) -> Result<(), Error> {
        let mut both = redis::pipe();
        both.cmd("XACK").arg(&self.stream).arg(GROUP).arg(&entry);
        both.cmd("XDEL").arg(&self.stream).arg(&entry);
        let counts = both.query_async::<(u64, u64)>(&mut self.inner).await;
        match counts.map_err(Error::client("XACK and XDEL"))? {
            (1, 1) => Ok(()),
            (acknowledged, deleted) => Err(Error::Answer(format!(
                "XACK returned {acknowledged} and XDEL {deleted}, both must be 1"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_what_the_server_says() {
        assert_eq!(
            number_of("Redis server v=7.0.15 sha=0:0 bits=64"),
            Some("7.0.15")
        );
        assert_eq!(number_of("redis"), None);
    }
}
