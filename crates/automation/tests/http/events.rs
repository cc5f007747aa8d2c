//! The event stream.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{ALL, PATIENCE, World};

const ECHO: &str = r#"echo '{"status":"ok","result":"done"}'"#;
const CONFIG: &str = "
plugins: {echo: {}}
webhooks: {listen: '127.0.0.1:0'}
";

struct Reader {
    stream: TcpStream,
    text: String,
}

impl Reader {
    async fn open(world: &World, path: &str, headers: &str) -> Self {
        Self::open_at(world.api, path, headers).await
    }

    async fn open_at(api: SocketAddr, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(api).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reader = Self {
            stream,
            text: String::new(),
        };
        reader.until("\r\n\r\n").await;
        reader
    }

    /// Reads until this text has arrived.
    async fn until(&mut self, wanted: &str) {
        while !self.text.contains(wanted) {
            let seen = self.text.len();
            self.more().await;
            assert!(self.text.len() > seen, "no {wanted} in {}", self.text);
        }
    }

    async fn more(&mut self) {
        let mut bytes = [0; 4096];
        let read = timeout(PATIENCE, self.stream.read(&mut bytes)).await;
        let read = read.unwrap_or_else(|_| panic!("nothing more after {}", self.text));
        let read = read.unwrap();
        self.text.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }

    /// The complete events so far, with their ids.
    fn events(&self) -> Vec<(Option<u64>, String, Value)> {
        let mut events = Vec::new();
        for block in self.text.split("\n\n") {
            let field = |name: &str| {
                block
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::to_owned)
            };
            let (id, kind, data) = (field("id: "), field("event: "), field("data: "));
            let data = data.and_then(|data| serde_json::from_str(&data).ok());
            if let (Some(kind), Some(data)) = (kind, data) {
                events.push((id.map(|id| id.parse().unwrap()), kind, data));
            }
        }
        events
    }

    fn ids(&self) -> Vec<u64> {
        self.events().iter().filter_map(|event| event.0).collect()
    }

    /// Reads until the job is completed.
    async fn until_ended(&mut self, id: &str) -> Vec<(u64, String, Value)> {
        loop {
            let events = self.of_job(id);
            if events.last().is_some_and(|(_, kind, _)| kind == LIFE[2]) {
                return events;
            }
            let seen = self.text.len();
            self.more().await;
            assert!(self.text.len() > seen, "the stream ended: {}", self.text);
        }
    }

    /// The events of a job that come from facts.
    fn of_job(&self, id: &str) -> Vec<(u64, String, Value)> {
        let with_id = self.events().into_iter();
        with_id
            .filter(|(_, _, data)| data["data"]["job_id"] == id)
            .filter_map(|(number, kind, data)| Some((number?, kind, data)))
            .collect()
    }
}

const LIFE: [&str; 3] = ["job.enqueued", "job.started", "job.completed"];

fn kinds(events: &[(u64, String, Value)]) -> Vec<&str> {
    events.iter().map(|(_, kind, _)| kind.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_life_of_a_job_is_told_and_told_again_du_108() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let earlier = world.begin("/plugin/echo/poll", "").await;
    world.ended(&earlier).await;
    let mut reader = Reader::open(&world, "/events", "authorization: Bearer listener\r\n").await;
    assert!(reader.text.starts_with("HTTP/1.1 200"), "{}", reader.text);
    assert!(reader.text.contains("content-type: text/event-stream"));
    reader.until(": connected").await;
    let id = world.begin("/plugin/echo/poll", "").await;
    let events = reader.until_ended(&id).await;
    assert_eq!(kinds(&events), LIFE);
    // The end of `plugin.spawned`; no other event ends like this.
    reader.until(r#""plugin":"echo"}}"#).await;
    for (number, kind, data) in reader.events() {
        assert_eq!(data["type"], kind.as_str());
        assert_eq!(
            number.is_some(),
            kind.starts_with("job."),
            "only facts have an id"
        );
        if number.is_some() {
            // On PostgreSQL a stream may begin with a few earlier facts.
            let job = data["data"]["job_id"].as_str().unwrap();
            assert!([&earlier, &id].iter().any(|id| *id == job), "{data}");
        }
        let at = data["at"].as_str().unwrap();
        assert!(at.parse::<jiff::Timestamp>().is_ok());
    }
    let spawned = reader
        .events()
        .into_iter()
        .find(|(_, kind, _)| kind == "plugin.spawned");
    let (_, _, spawned) = spawned.unwrap();
    assert_eq!(spawned["data"]["job_id"], id.as_str());
    // A resumed stream continues after the last event id; the token may be in the query here.
    let first = events[0].0;
    let path = format!("/events?token={ALL}");
    let mut again = Reader::open(&world, &path, &format!("last-event-id: {first}\r\n")).await;
    assert_eq!(again.until_ended(&id).await, events[1..]);
    assert_eq!(again.ids().len(), 2, "nothing else is repeated");
    // A small number, or one of another ledger: all retained events are sent.
    for foreign in ["0", "9999999999999999"] {
        let headers = format!("authorization: Bearer {ALL}\r\nlast-event-id: {foreign}\r\n");
        let mut stranger = Reader::open(&world, "/events", &headers).await;
        stranger.until("event: job.enqueued").await;
        stranger.until("}\n\n").await;
        assert!(stranger.events()[0].0.unwrap() < first, "{foreign}");
    }

    let refused = Reader::open(&world, "/events?token=wrong", "").await;
    assert!(refused.text.starts_with("HTTP/1.1 401"), "{}", refused.text);
    let twice = format!("/events?token={ALL}&token={ALL}");
    let refused = Reader::open(&world, &twice, "").await;
    assert!(refused.text.starts_with("HTTP/1.1 401"), "{}", refused.text);
    let refused = Reader::open(&world, "/events", "authorization: Bearer job-writer\r\n").await;
    assert!(refused.text.starts_with("HTTP/1.1 403"), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_limited_and_end_with_their_token_or_the_server_du_108() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let mut readers = Vec::new();
    for _ in 0..10 {
        let reader = Reader::open(&world, "/events", "authorization: Bearer listener\r\n").await;
        assert!(reader.text.starts_with("HTTP/1.1 200"), "{}", reader.text);
        readers.push(reader);
    }
    let open = "authorization: Bearer listener\r\n";
    let refused = Reader::open(&world, "/events", open).await;
    assert!(refused.text.starts_with("HTTP/1.1 503"), "{}", refused.text);
    // The streams of one token leave slots for those of others.
    let all = format!("authorization: Bearer {ALL}\r\n");
    let other = Reader::open(&world, "/events", &all).await;
    assert!(other.text.starts_with("HTTP/1.1 200"), "{}", other.text);
    // A slot is free again when its reader has disconnected.
    readers.pop();
    let began = std::time::Instant::now();
    let mut last = loop {
        let reader = Reader::open(&world, "/events", open).await;
        if reader.text.starts_with("HTTP/1.1 200") {
            break reader;
        }
        assert!(began.elapsed() < PATIENCE, "the place is lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    last.until(": connected").await;
    // A stream whose token is removed ends at the next event.
    let text = std::fs::read_to_string(world.path("config.yaml")).unwrap();
    world.adopt_text(&text.replace("token: listener", "token: another"));
    readers.clear();
    let mut kept = loop {
        let reader = Reader::open(&world, "/events", &all).await;
        if reader.text.starts_with("HTTP/1.1 200") {
            break reader;
        }
        assert!(began.elapsed() < PATIENCE, "the places are lost");
    };
    world.begin("/plugin/echo/poll", "").await;
    kept.until("event: job.enqueued").await;
    let mut rest = Vec::new();
    timeout(PATIENCE, last.stream.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("job."));
    world.draining.send_replace(true);
    timeout(PATIENCE, kept.stream.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_on_one_node_shows_the_jobs_of_another_du_108() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let (other, _draining) = world.reading_node().await;
    let bearer = format!("authorization: Bearer {ALL}\r\n");
    let mut reader = Reader::open_at(other, "/events", &bearer).await;
    reader.until(": connected").await;
    let id = world.begin("/plugin/echo/poll", "").await;
    assert_eq!(kinds(&reader.until_ended(&id).await), LIFE);
    // The process was started on another node, and its start is not in the ledger.
    assert!(!reader.text.contains("plugin.spawned"), "{}", reader.text);
    // The ids are the same on both nodes.
    let (first, _, _) = reader.of_job(&id).remove(0);
    let resumed = format!("{bearer}last-event-id: {first}\r\n");
    let mut here = Reader::open(&world, "/events", &resumed).await;
    assert_eq!(here.until_ended(&id).await, reader.of_job(&id)[1..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_continues_after_a_restart_and_misses_nothing_du_108() {
    let mut world = World::start(&[("echo", ECHO)], CONFIG).await;
    let bearer = format!("authorization: Bearer {ALL}\r\n");
    let mut reader = Reader::open(&world, "/events", &bearer).await;
    let seen = world.begin("/plugin/echo/poll", "").await;
    let last = reader.until_ended(&seen).await.last().unwrap().0;
    drop(reader);
    // More than one page, and more than any buffer of events.
    let mut missed = Vec::new();
    for _ in 0..100 {
        missed.push(world.begin("/plugin/echo/poll", "").await);
    }
    for id in &missed {
        world.ended(id).await;
    }
    world.restart().await;
    let headers = format!("{bearer}last-event-id: {last}\r\n");
    let mut reader = Reader::open(&world, "/events", &headers).await;
    let after = world.begin("/plugin/echo/poll", "").await;
    reader.until_ended(&after).await;
    for id in &missed {
        assert_eq!(kinds(&reader.of_job(id)), LIFE);
    }
    let ids = reader.ids();
    assert_eq!(ids.len(), 101 * LIFE.len(), "each event comes once");
    assert!(ids.is_sorted());
}
