//! A TCP proxy whose connections can be cut or suspended.
//!
//! Invariant: bytes are never changed or reordered. A hung wire keeps every connection open and moves no data; data
//! that was sent meanwhile arrives when the wire is opened again.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

const CHUNK_BYTES: usize = 16 << 10;

/// How a wire treats its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Open,
    /// No data moves, without an error.
    Hung,
    /// Connections are reset, also new ones.
    Cut,
}

/// The state of a wire, which connections watch.
#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    /// Connections of an earlier age hang forever.
    age: u64,
    /// The port that new connections are forwarded to.
    to: u16,
}

/// The threads of all wires of a campaign.
#[derive(Clone, Debug)]
pub struct Carrier(Arc<Runtime>);

impl Carrier {
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("wires")
            .enable_all()
            .build()?;
        Ok(Self(Arc::new(runtime)))
    }

    /// A wire to `port`, from the port [`Wire::port`].
    pub fn wire(&self, port: u16) -> io::Result<Wire> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = self.0.block_on(listener)?;
        let from = listener.local_addr()?.port();
        let (state, seen) = watch::channel(State {
            mode: Mode::Open,
            age: 0,
            to: port,
        });
        self.0.spawn(accept(listener, seen));
        Ok(Wire { port: from, state })
    }
}

/// One wire. Dropping it ends its connections.
#[derive(Debug)]
pub struct Wire {
    pub port: u16,
    state: watch::Sender<State>,
}

impl Wire {
    pub fn set(&self, mode: Mode) {
        self.state.send_modify(|state| state.mode = mode);
    }

    /// Forwards new connections to another port, for a server that is not started yet or was started again.
    pub fn retarget(&self, port: u16) {
        self.state.send_modify(|state| state.to = port);
    }

    /// Accepts new connections, and lets existing ones hang forever.
    pub fn forget(&self) {
        self.state.send_modify(|state| {
            state.mode = Mode::Open;
            state.age += 1;
        });
    }
}

async fn accept(listener: TcpListener, mut seen: watch::Receiver<State>) {
    loop {
        tokio::select! {
            changed = seen.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            accepted = listener.accept() => {
                // A connection that was closed before the accept is ignored.
                if let Ok((stream, _)) = accepted {
                    tokio::spawn(carry(stream, seen.clone()));
                }
            }
        }
    }
}

async fn carry(near: TcpStream, seen: watch::Receiver<State>) {
    let age = seen.borrow().age;
    let mut waiting = seen.clone();
    if until_open(&mut waiting, age).await.is_err() {
        return reset(&near);
    }
    let to = seen.borrow().to;
    let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else {
        return reset(&near);
    };
    // Without it a small response would wait for a delayed acknowledgement.
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    tokio::select! {
        () = forward(near_in, far_out, seen.clone(), age) => {}
        () = forward(far_in, near_out, seen, age) => {}
    }
}

/// Copies bytes in one direction until either side ends or the wire is cut.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut seen: watch::Receiver<State>,
    age: u64,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if until_open(&mut seen, age).await.is_err() {
            reset(from.as_ref());
            return reset(to.as_ref());
        }
        let read = tokio::select! {
            biased;
            changed = seen.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            read = from.read(&mut chunk) => read,
        };
        let Ok(length @ 1..) = read else {
            // Data that was sent before the end still arrives.
            let _ = to.shutdown().await;
            return;
        };
        // The data was read before the cut, but is not sent until the wire is open.
        if until_open(&mut seen, age).await.is_err()
            || to.write_all(&chunk[..length]).await.is_err()
        {
            reset(from.as_ref());
            return reset(to.as_ref());
        }
    }
}

struct WasCut;

/// Waits while the wire hangs; forever if this connection was forgotten.
async fn until_open(seen: &mut watch::Receiver<State>, age: u64) -> Result<(), WasCut> {
    loop {
        let state = *seen.borrow_and_update();
        match state.mode {
            Mode::Cut => return Err(WasCut),
            Mode::Open if state.age == age => return Ok(()),
            Mode::Open | Mode::Hung => {}
        }
        if seen.changed().await.is_err() {
            return Err(WasCut);
        }
    }
}

/// Resets the connection instead of closing it.
fn reset(stream: &TcpStream) {
    // The connection may have ended already.
    let _ = stream.set_zero_linger();
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    /// Sends a byte to a server that answers with the next one.
    fn ask(stream: &mut TcpStream, byte: u8) -> io::Result<u8> {
        stream.write_all(&[byte])?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        Ok(answer[0])
    }

    fn world() -> (Wire, impl Fn() -> TcpStream, Carrier) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let carrier = Carrier::start().unwrap();
        let wire = carrier.wire(listener.local_addr().unwrap().port()).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() {
                        stream.write_all(&[byte[0] + 1]).unwrap();
                    }
                });
            }
        });
        let port = wire.port;
        let connect = move || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let patience = Some(Duration::from_millis(200));
            stream.set_read_timeout(patience).unwrap();
            stream
        };
        (wire, connect, carrier)
    }

    #[test]
    fn what_was_sent_while_a_wire_hung_arrives_when_it_is_mended() {
        let (wire, connect, _carrier) = world();
        let mut stream = connect();
        assert_eq!(ask(&mut stream, 1).unwrap(), 2);
        wire.set(Mode::Hung);
        assert!(ask(&mut stream, 3).is_err());
        wire.set(Mode::Open);
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [4]);
    }

    #[test]
    fn a_cut_wire_resets_and_a_mended_one_takes_new_connections() {
        let (wire, connect, _carrier) = world();
        let mut stream = connect();
        assert_eq!(ask(&mut stream, 1).unwrap(), 2);
        wire.set(Mode::Cut);
        let told = ask(&mut stream, 3).unwrap_err().kind();
        assert_ne!(told, io::ErrorKind::WouldBlock);
        assert!(ask(&mut connect(), 3).is_err());
        wire.set(Mode::Open);
        assert!(ask(&mut stream, 5).is_err());
        assert_eq!(ask(&mut connect(), 5).unwrap(), 6);
    }

    #[test]
    fn a_forgotten_connection_hangs_while_new_ones_work() {
        let (wire, connect, _carrier) = world();
        let mut stream = connect();
        assert_eq!(ask(&mut stream, 1).unwrap(), 2);
        wire.set(Mode::Hung);
        wire.forget();
        let told = ask(&mut stream, 3).unwrap_err().kind();
        assert_eq!(told, io::ErrorKind::WouldBlock);
        assert_eq!(ask(&mut connect(), 3).unwrap(), 4);
    }
}
