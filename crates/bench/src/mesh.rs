//! Messages to a daemon of the mesh over its Unix socket: how fast it accepts them, and how fast it delivers them.
//!
//! Invariant: a message counts only if the daemon answered 202, and every message has an id of its own, so that none is a
//! duplicate. The caller starts broker and daemon.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::task::LocalSet;

use crate::Error;
use crate::connection::{BenchAddress, BenchConnection};
use crate::request::random_word;
use crate::usage::memory;

/// How often the depth of the outbox is read.
const DEPTH_POLL: Duration = Duration::from_millis(20);
/// A daemon that has not become idle after this time has allocated memory that it keeps.
const SETTLE: Duration = Duration::from_secs(3);
const HIGHEST_US: u64 = 600_000_000;
const DIGITS: u8 = 3;

/// A running daemon.
#[derive(Debug, Clone)]
pub struct MeshBenchTarget {
    pub socket: PathBuf,
    pub pid: u32,
    /// The key of the member that all messages are for, 64 hex digits.
    pub to: String,
}

/// When the clients stop.
#[derive(Debug, Clone, Copy)]
pub enum MeshSendUntil {
    Elapsed(Duration),
    Accepted(u64),
}

/// What the clients measured.
#[derive(Debug, Clone, Serialize)]
pub struct SendRun {
    pub clients: usize,
    pub accepted: u64,
    pub seconds: f64,
    pub per_s: f64,
    pub p50_us: u64,
    pub p99_us: u64,
}

/// Lets clients send as fast as they can, each its next message after the answer to the last one.
pub async fn send_messages(
    daemon: &MeshBenchTarget,
    clients: usize,
    body_bytes: usize,
    until: MeshSendUntil,
) -> Result<SendRun, Error> {
    let run = Rc::new(SharedRun {
        began: Instant::now(),
        until,
        started: Cell::new(0),
        accepted: Cell::new(0),
        times: RefCell::new(
            Histogram::new_with_bounds(1, HIGHEST_US, DIGITS).expect("valid bounds"),
        ),
    });
    let word = random_word()?;
    let local = LocalSet::new();
    let running: Vec<_> = (0..clients)
        .map(|index| {
            let client = SendClient {
                daemon: daemon.clone(),
                run: Rc::clone(&run),
                prefix: format!("{word}-{index}"),
                body: "x".repeat(body_bytes),
            };
            local.spawn_local(client.run())
        })
        .collect();
    local
        .run_until(async {
            for client in running {
                client.await.map_err(|_| Error::Panicked)??;
            }
            Ok::<_, Error>(())
        })
        .await?;
    let seconds = run.began.elapsed().as_secs_f64();
    let (accepted, times) = (run.accepted.get(), run.times.borrow());
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let per_s = accepted as f64 / seconds;
    Ok(SendRun {
        clients,
        accepted,
        seconds,
        per_s,
        p50_us: times.value_at_quantile(0.5),
        p99_us: times.value_at_quantile(0.99),
    })
}

/// Whether the daemon answers, and is connected to its broker if that is asked for.
pub async fn is_ready(daemon: &MeshBenchTarget, connected: bool) -> bool {
    let Ok(mut connection) = open(daemon).await else {
        return false;
    };
    match get(&mut connection, "/v1/health").await {
        Ok(health) => !connected || health["connected"] == true,
        Err(_) => false,
    }
}

/// Waits until the daemon has nothing left to send.
pub async fn drained(daemon: &MeshBenchTarget, limit: Duration) -> Result<(), Error> {
    let mut connection = open(daemon).await?;
    let deadline = Instant::now() + limit;
    loop {
        let health = get(&mut connection, "/v1/health").await?;
        let count = |name: &str| health[name].as_u64();
        match (count("queue_depth"), count("inflight")) {
            (Some(0), Some(0)) => return Ok(()),
            (Some(_), Some(_)) if Instant::now() < deadline => {}
            (Some(waiting), Some(inflight)) => {
                return Err(Error::Daemon(format!(
                    "{waiting} messages wait and {inflight} are sent after {limit:?}"
                )));
            }
            (None, _) | (_, None) => {
                return Err(Error::Daemon(format!("its health has no depth: {health}")));
            }
        }
        tokio::time::sleep(DEPTH_POLL).await;
    }
}

/// Resident bytes of a daemon that has nothing to do.
pub async fn idle_bytes(daemon: &MeshBenchTarget) -> Result<u64, Error> {
    tokio::time::sleep(SETTLE).await;
    memory(daemon.pid)
        .map(|(now, _)| now)
        .ok_or(Error::NoMemory)
}

/// What the clients of a run share; all of them are on one thread.
#[derive(Debug)]
struct SharedRun {
    began: Instant,
    until: MeshSendUntil,
    started: Cell<u64>,
    accepted: Cell<u64>,
    /// In microseconds.
    times: RefCell<Histogram<u64>>,
}

impl SharedRun {
    /// Whether one more message is to be sent.
    fn start_next(&self) -> bool {
        let more = match self.until {
            MeshSendUntil::Elapsed(time) => self.began.elapsed() < time,
            MeshSendUntil::Accepted(count) => self.started.get() < count,
        };
        self.started.set(self.started.get() + u64::from(more));
        more
    }

    fn note(&self, since: Instant) {
        self.accepted.set(self.accepted.get() + 1);
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(HIGHEST_US);
        self.times.borrow_mut().saturating_record(micros);
    }
}

struct SendClient {
    daemon: MeshBenchTarget,
    run: Rc<SharedRun>,
    prefix: String,
    body: String,
}

impl SendClient {
    async fn run(self) -> Result<(), Error> {
        let mut connection = open(&self.daemon).await?;
        let mut number = 0_u64;
        while self.run.start_next() {
            number += 1;
            let body = format!(
                r#"{{"to":"{}","message":"{}","client_message_id":"{}-{number}"}}"#,
                self.daemon.to, self.body, self.prefix
            );
            let request = format!(
                "POST /v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let since = Instant::now();
            let status = connection.exchange(request.as_bytes()).await;
            let status = status.map_err(|error| Error::Daemon(error.to_string()))?;
            if status != 202 {
                let answer = String::from_utf8_lossy(connection.body());
                return Err(Error::Daemon(format!(
                    "status {status} to a message: {answer}"
                )));
            }
            self.run.note(since);
        }
        Ok(())
    }
}

async fn open(daemon: &MeshBenchTarget) -> Result<BenchConnection, Error> {
    let address = BenchAddress::Unix(daemon.socket.clone());
    let connection = BenchConnection::open(address).await;
    connection.map_err(|source| Error::Connect {
        server: daemon.socket.display().to_string(),
        source,
    })
}

async fn get(connection: &mut BenchConnection, path: &str) -> Result<serde_json::Value, Error> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let status = connection.exchange(request.as_bytes()).await;
    let status = status.map_err(|error| Error::Daemon(error.to_string()))?;
    let body = String::from_utf8_lossy(connection.body());
    match serde_json::from_str(&body) {
        Ok(value) if status == 200 => Ok(value),
        Ok(_) | Err(_) => Err(Error::Daemon(format!("status {status} to {path}: {body}"))),
    }
}
