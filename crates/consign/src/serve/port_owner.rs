//! Who listens on a port of this machine, as far as `/proc` shows it: processes of other users stay hidden.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use consign_web::server::Error;

use crate::failure::Failure;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// An error of the listener; for a port in use it names the process and the flag.
pub(super) fn explained(error: Error) -> anyhow::Error {
    let Error::Bind { addr, source } = &error else {
        return error.into();
    };
    if source.kind() != std::io::ErrorKind::AddrInUse {
        return error.into();
    }
    let owner = owner(*addr).map_or_else(
        || "another process uses it".to_owned(),
        |(pid, name)| format!("process {pid} ({name}) uses it"),
    );
    let hint = format!(
        "stop that process, or choose another address: --listen {}:0 takes any free port",
        host(*addr)
    );
    Failure::failed(format!("cannot listen on {addr}: {owner}"))
        .hint(hint)
        .into()
}

fn host(addr: SocketAddr) -> String {
    match addr {
        SocketAddr::V4(addr) => addr.ip().to_string(),
        SocketAddr::V6(addr) => format!("[{}]", addr.ip()),
    }
}

/// The process that listens on this port, and its name.
fn owner(addr: SocketAddr) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let sockets: Vec<String> = tables
        .iter()
        .flatten()
        .flat_map(|table| inodes(table, addr.port()))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let mut processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some((pid, entry.path()))
    });
    let (pid, folder) = processes.find(|(_, folder)| holds_one_of(folder, &sockets))?;
    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
}

/// The inodes of the sockets that listen on a port.
fn inodes(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let port = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let mut columns = line.split_whitespace().skip(1);
        let (local, state) = (columns.next()?, columns.nth(1)?);
        let inode = columns.nth(5)?;
        (local.ends_with(&port) && state == LISTENING).then_some(inode)
    })
}

fn holds_one_of(process: &Path, sockets: &[String]) -> bool {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten();
    let mut targets = files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| {
        sockets
            .iter()
            .any(|socket| target.as_os_str() == socket.as_str())
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_listening_sockets_of_the_port_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n   \
            1: 0100007F:1B9E 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0\n   \
            2: 0100007F:1B9F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0\n";
        assert_eq!(inodes(table, 0x1B9E).collect::<Vec<_>>(), ["4711"]);
    }

    #[test]
    fn a_port_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = owner(listener.local_addr().unwrap());
        assert_eq!(found.map(|(pid, _)| pid), Some(std::process::id()));
    }
}
