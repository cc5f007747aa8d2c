//! The memory of the server for idle `WebSocket` connections: agents of Beam, and readers of its intent feed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::plan::BenchTarget;
use crate::relay::agent_path;
use crate::run::resolve;
use crate::socket::BenchSocket;
use crate::usage::memory;

const FEED_PATH: &str = "/ws?feed=intents";
/// The server limits the connections of one address, so the sockets come from several addresses of this machine.
const SOCKETS_PER_ADDRESS: usize = 500;
/// Of the first such address; 127.0.0.1 is the address of all other connections.
const FIRST_ADDRESS: u8 = 2;
/// Memory that is freed after the last handshake is returned within this time.
const SETTLE: Duration = Duration::from_secs(2);

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct IdleSocketsReport {
    pub agents: usize,
    pub feeds: usize,
    /// Resident bytes of the server before the first socket.
    pub rss_before_bytes: u64,
    /// With all sockets open.
    pub rss_after_bytes: u64,
    pub bytes_per_socket: f64,
}

/// Opens a socket for each agent, and feeds, and compares the memory of the server. The agents must be registered.
pub async fn idle_sockets(
    target: &BenchTarget,
    agents: &[String],
    feeds: usize,
) -> Result<IdleSocketsReport, Error> {
    let pid = target.pid.ok_or(Error::NoMemory)?;
    let server = resolve(&target.server).await?;
    let paths = agents.iter().map(|beam_id| agent_path(beam_id));
    let paths = paths.chain(std::iter::repeat_n(FEED_PATH.to_owned(), feeds));
    let rss_before_bytes = rss(pid).await?;
    let mut sockets = Vec::with_capacity(agents.len() + feeds);
    for (index, path) in paths.enumerate() {
        let socket = open(server, index, &target.server.authority(), &path).await;
        sockets.push(socket.map_err(|source| Error::Connect {
            server: target.server.to_string(),
            source,
        })?);
    }
    let rss_after_bytes = rss(pid).await?;
    #[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
    let bytes_per_socket =
        rss_after_bytes.saturating_sub(rss_before_bytes) as f64 / sockets.len().max(1) as f64;
    Ok(IdleSocketsReport {
        agents: agents.len(),
        feeds,
        rss_before_bytes,
        rss_after_bytes,
        bytes_per_socket,
    })
}

/// Opens a socket and reads its greeting.
async fn open(
    server: SocketAddr,
    index: usize,
    authority: &str,
    path: &str,
) -> std::io::Result<BenchSocket> {
    let from = server.ip().is_loopback().then(|| address(index));
    let mut socket = BenchSocket::open(server, from, authority, path).await?;
    socket.message().await?;
    Ok(socket)
}

fn address(index: usize) -> IpAddr {
    let offset = u8::try_from(index / SOCKETS_PER_ADDRESS).unwrap_or(u8::MAX - FIRST_ADDRESS);
    Ipv4Addr::new(127, 0, 0, FIRST_ADDRESS.saturating_add(offset)).into()
}

async fn rss(pid: u32) -> Result<u64, Error> {
    tokio::time::sleep(SETTLE).await;
    memory(pid).map(|(now, _)| now).ok_or(Error::NoMemory)
}
