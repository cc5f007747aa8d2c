//! A thousand idle WebSocket connections: what they cost, and how long a shutdown takes. In a process of its own, because it measures
//! the memory of the process. The clients are bare TCP sockets, which cost this process nothing.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use consign_web::server::{Options as ServerOptions, Server};
use consign_web::websocket::{
    MESSAGE_BYTES_MAX, Options, SocketMessage, SocketMessages, SocketSender, SocketUpgrade,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::oneshot;

const SOCKETS: usize = 1000;
const BYTES_PER_SOCKET_MAX: usize = 40 << 10;
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);
const PAGE_BYTES: usize = 4096;
const HANDSHAKE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

async fn echo(sender: SocketSender, mut messages: SocketMessages) {
    while let Some(SocketMessage::Text(text)) = messages.next().await {
        if sender.try_send(text).is_err() {
            return;
        }
    }
}

/// Both ends of each connection are in this process.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * PAGE_BYTES
}

fn open(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    let limit = Some(Duration::from_secs(10));
    stream.set_read_timeout(limit).unwrap();
    stream.write_all(HANDSHAKE).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    stream
}

/// Sends a message of the largest size, with a mask of zeros, and reads it back.
fn exchange(stream: &mut TcpStream, frame: &mut [u8]) {
    stream.write_all(frame).unwrap();
    // Its head is shorter: it has no mask.
    let back = &mut frame[..10 + MESSAGE_BYTES_MAX];
    stream.read_exact(back).unwrap();
    assert_eq!((back[0], back[1], back[back.len() - 1]), (0x81, 127, b'x'));
}

fn largest_frame() -> Vec<u8> {
    let mut frame = vec![0x81, 0xff];
    frame.extend((MESSAGE_BYTES_MAX as u64).to_be_bytes());
    frame.extend([0; 4]);
    frame.resize(frame.len() + MESSAGE_BYTES_MAX, b'x');
    frame
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_sockets_are_cheap_and_close_in_time() {
    allow_open_files();
    let upgrade = get(async |upgrade: SocketUpgrade| upgrade.accept(Options::new(), echo));
    let server = Server::bind(ServerOptions::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
    let addr = server.local_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(Router::new().route("/ws", upgrade), stopped));
    let clients = thread::spawn(move || {
        let per_socket = |before: usize| resident_bytes().saturating_sub(before) / SOCKETS;
        let original = largest_frame();
        let mut frame = original.clone();
        exchange(&mut open(addr), &mut frame);
        let before = resident_bytes();
        let mut clients: Vec<TcpStream> = (0..SOCKETS).map(|_| open(addr)).collect();
        let fresh = per_socket(before);
        for client in &mut clients {
            frame.copy_from_slice(&original);
            exchange(client, &mut frame);
        }
        (clients, fresh, per_socket(before))
    });
    let clients = tokio::task::spawn_blocking(|| clients.join().unwrap());
    let (mut clients, fresh, used) = clients.await.unwrap();
    assert!(fresh <= BYTES_PER_SOCKET_MAX, "{fresh}");
    assert!(used <= BYTES_PER_SOCKET_MAX, "{used}");

    let began = Instant::now();
    stop.send(()).unwrap();
    // No client answers the closing frame.
    running.await.unwrap().unwrap();
    assert!(began.elapsed() < SHUTDOWN_MAX, "{:?}", began.elapsed());
    for client in &mut clients {
        let mut close = Vec::new();
        client.read_to_end(&mut close).unwrap();
        assert_eq!(close[..4], [0x88, 25, 0x03, 0xe9]);
        assert_eq!(close[4..], *b"Server is shutting down");
    }
}
