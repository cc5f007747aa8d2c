//! Idle connections that occupy a server.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// More than any server of a campaign allows.
const HELD_MAX: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// Version 3.0 of the protocol.
const VERSION: i32 = 3 << 16;

/// One connection of a server, released when dropped.
#[derive(Debug)]
pub(crate) struct HeldConnection(TcpStream);

impl HeldConnection {
    /// `None` if the server has no free connection.
    fn take(port: u16, database: &str) -> io::Result<Option<Self>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let names = format!("user\0postgres\0database\0{database}\0\0");
        let mut begin = VERSION.to_be_bytes().to_vec();
        begin.extend(names.bytes());
        stream.write_all(&sized(&begin)?)?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        // The first message is an authentication response, or an error.
        Ok((kind == *b"R").then_some(Self(stream)))
    }

    /// Takes all free connections.
    pub(crate) fn take_all(port: u16, database: &str) -> io::Result<Vec<Self>> {
        let mut held = Vec::new();
        while held.len() < HELD_MAX
            && let Some(held_connection) = Self::take(port, database)?
        {
            held.push(held_connection);
        }
        Ok(held)
    }

    /// Sends a statement without waiting for its result.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        let mut asked = text.as_bytes().to_vec();
        asked.push(0);
        let mut message = b"Q".to_vec();
        message.extend(sized(&asked)?);
        self.0.write_all(&message)
    }
}

/// Prefixed with its length, which includes itself.
fn sized(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let length = i32::try_from(bytes.len() + 4).map_err(io::Error::other)?;
    let mut sized = length.to_be_bytes().to_vec();
    sized.extend(bytes);
    Ok(sized)
}
