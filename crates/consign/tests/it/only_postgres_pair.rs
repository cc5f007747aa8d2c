//! Two servers on one database behave as one server.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::{Http, Reply, Server};
use consign_testkit::shim::Shim;
use serde_json::json;

use super::{Place, get, main_client, publish, published, start, status_of, word};

/// The limit until a claim that waits on one server is woken by a publish on the other.
const WAKE_MAX: Duration = Duration::from_secs(1);
/// The same limit for an event stream.
const EVENT_MAX: Duration = Duration::from_secs(2);

struct Nodes {
    servers: [Server; 2],
    _place: Place,
}

impl Nodes {
    /// The second server has its own data directory with the secrets of the first.
    fn start() -> Self {
        let place = Place::new();
        let first = place.start();
        let second = place.path("second");
        copy_secrets(&place.data(), &second);
        let second = start(&place.options_with(second));
        Self {
            servers: [first, second],
            _place: place,
        }
    }

    fn clients(&self) -> [Http; 2] {
        [0, 1].map(|node| main_client(&self.servers[node]))
    }
}

fn copy_secrets(from: &std::path::Path, to: &std::path::Path) {
    consign_testkit::process::copy_secrets(from, to).expect("there are secrets to copy");
}

#[test]
fn what_is_published_on_one_is_claimed_on_the_other_and_settled_and_proven_on_either() {
    let nodes = Nodes::start();
    let [mut first, mut second] = nodes.clients();
    let id = published(&mut first, "across");
    let job = second.post("/claim", &json!({})).unwrap().json();
    assert_eq!(word(&job["id"]), id);
    for http in [&mut first, &mut second] {
        assert_eq!(status_of(http, &id), "claimed");
        assert_eq!(http.post("/claim", &json!({})).unwrap().status, 204);
    }
    let body = json!({"claim_token": job["claim_token"], "result": "done"});
    let settled = first.post(&format!("/fulfill/{id}"), &body).unwrap();
    assert_eq!(settled.status, 200, "{}", settled.text());
    let late = second.post(&format!("/fulfill/{id}"), &body).unwrap();
    assert_ne!(late.status, 200, "it is settled already");
    assert_eq!(status_of(&mut second, &id), "fulfilled");
    let receipts =
        [&mut second, &mut first].map(|http| get(http, &format!("/intents/{id}/receipt")));
    assert_eq!(receipts[0].status, 200, "{}", receipts[0].text());
    assert_eq!(receipts[0].body, receipts[1].body);
}

#[test]
fn a_key_made_on_one_is_good_on_the_other_until_it_is_revoked_on_either() {
    let nodes = Nodes::start();
    let [first, second] = &nodes.servers;
    let mut operator = first.admin_client().unwrap();
    let made = operator.post("/admin/generate_key", &json!({"owner": "ann"}));
    let key = word(&made.unwrap().json()["api_key"]);
    let mut ann = second.http().header("X-API-KEY", &key);
    published(&mut ann, "with a key");
    let revoked = operator.post("/admin/revoke_key", &json!({"api_key": key}));
    assert_eq!(revoked.unwrap().status, 200);
    assert_eq!(publish(&mut ann, "no more").status, 401);
}

#[test]
fn a_long_poll_on_one_is_woken_by_a_publish_on_the_other() {
    let nodes = Nodes::start();
    for round in 0..4 {
        let [mut publisher, mut waiting] = nodes.clients();
        let poll = thread::spawn(move || {
            let reply = waiting.send("POST", "/claim?wait=12", &[], None);
            (reply.unwrap(), Instant::now())
        });
        // The claim has found nothing and waits.
        thread::sleep(Duration::from_millis(300));
        let id = published(&mut publisher, "wake");
        let told = Instant::now();
        let (reply, woken) = poll.join().unwrap();
        assert_eq!(word(&reply.json()["id"]), id);
        let took = woken.saturating_duration_since(told);
        assert!(took < WAKE_MAX, "round {round}: {took:?}");
    }
}

#[test]
fn an_event_stream_on_one_shows_what_happens_on_the_other() {
    let nodes = Nodes::start();
    let [mut publisher, _] = nodes.clients();
    let mut stream = Stream::open(&nodes.servers[1], &main_key(&nodes));
    // Single publishes, and several in a row.
    for burst in [1, 1, 20, 1] {
        let mut expected = HashSet::new();
        for _ in 0..burst {
            expected.insert(published(&mut publisher, "shown"));
        }
        let told = Instant::now();
        let mut shown = HashSet::new();
        while shown.len() < burst {
            shown.insert(stream.next_intent());
        }
        assert_eq!(shown, expected);
        let took = told.elapsed();
        assert!(took < EVENT_MAX, "{burst} in a row: {took:?}");
    }
}

/// An uncommitted transaction may delay a stream, but not beyond its own end: the owner of the stream is not notified of the
/// commits of other publishers.
#[test]
fn an_event_stream_is_not_held_up_by_what_others_publish() {
    let nodes = Nodes::start();
    let [publishing, streaming] = &nodes.servers;
    let mut operator = publishing.admin_client().unwrap();
    let made = operator.post("/admin/generate_key", &json!({"owner": "ann"}));
    let key = word(&made.unwrap().json()["api_key"]);
    let mut ann = publishing.http().header("X-API-KEY", &key);
    let mut stream = Stream::open(streaming, &key);
    let over = AtomicBool::new(false);
    let slowest = thread::scope(|scope| {
        for number in 0..4 {
            let (nodes, over) = (&nodes, &over);
            scope.spawn(move || {
                let mut other = main_client(&nodes.servers[number % 2]);
                while !over.load(Ordering::Relaxed) {
                    published(&mut other, "noise");
                }
            });
        }
        // Also if an assertion fails here, since the scope waits for the other threads.
        let _quiet = Quiet(&over);
        let mut slowest = Duration::ZERO;
        for _ in 0..30 {
            let id = published(&mut ann, "shown");
            let told = Instant::now();
            assert_eq!(stream.next_intent(), id);
            slowest = slowest.max(told.elapsed());
            if slowest > EVENT_MAX {
                break;
            }
        }
        slowest
    });
    assert!(slowest < EVENT_MAX, "{slowest:?}");
}

/// Stops the publishing threads when it is dropped.
struct Quiet<'a>(&'a AtomicBool);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn main_key(nodes: &Nodes) -> String {
    let secret = nodes.servers[0].secret("bus_secret");
    secret.expect("the server made its key")
}

/// A reader of one event stream.
struct Stream(BufReader<std::net::TcpStream>);

impl Stream {
    fn open(server: &Server, key: &str) -> Self {
        let mut stream = server.http().connect().expect("the server accepts");
        let host = server.authority();
        let request = format!("GET /events HTTP/1.1\r\nHost: {host}\r\nX-API-KEY: {key}\r\n\r\n");
        let sent = stream.write_all(request.as_bytes());
        sent.expect("the server reads");
        // An idle stream sends a heartbeat every 15 seconds, and a lost stream must not block the test.
        stream
            .set_read_timeout(Some(Duration::from_secs(25)))
            .expect("a socket has a timeout");
        let mut opened = Self(BufReader::new(stream));
        opened.line_with(": connected");
        opened
    }

    /// The next line with this prefix, without the prefix.
    fn line_with(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.0.read_line(&mut line).expect("a line in time");
            assert_ne!(read, 0, "the stream ended");
            if let Some(rest) = line.trim_end().strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    fn next_intent(&mut self) -> String {
        let data = self.line_with("data: ");
        let data: serde_json::Value = serde_json::from_str(&data).expect("events are JSON");
        word(&data["intent"])
    }
}

#[test]
fn one_key_used_on_both_at_the_same_time_admits_once() {
    const ROUNDS: usize = 20;
    let nodes = Nodes::start();
    let barrier = Barrier::new(4);
    let answers: Vec<Vec<String>> = thread::scope(|scope| {
        let publishers: Vec<_> = (0..4)
            .map(|number| {
                let (nodes, barrier) = (&nodes, &barrier);
                let ask = move || {
                    let mut http = main_client(&nodes.servers[number % 2]);
                    let once = |round: usize| {
                        barrier.wait();
                        let (key, body) = (
                            format!("key {round}"),
                            json!({"goal": "g", "payload": round}),
                        );
                        let headers = [("Idempotency-Key", key.as_str())];
                        let reply = http.send("POST", "/intent", &headers, Some(&body)).unwrap();
                        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
                        word(&reply.json()["id"])
                    };
                    (0..ROUNDS).map(once).collect()
                };
                scope.spawn(ask)
            })
            .collect();
        publishers
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect()
    });
    assert!(answers.iter().all(|ids| *ids == answers[0]), "{answers:#?}");
    let ids: HashSet<_> = answers[0].iter().collect();
    assert_eq!(ids.len(), ROUNDS);
    let [mut http, _] = nodes.clients();
    let listed = get(&mut http, "/intents?limit=100").json();
    assert_eq!(listed["intents"].as_array().map(Vec::len), Some(ROUNDS));
}

#[test]
fn workers_of_both_share_the_work_and_nothing_is_done_twice_or_left() {
    const INTENTS: usize = 60;
    let nodes = Nodes::start();
    let [mut first, mut second] = nodes.clients();
    let mut expected = HashSet::new();
    for number in 0..INTENTS {
        let http = [&mut first, &mut second]
            .into_iter()
            .nth(number % 2)
            .unwrap();
        expected.insert(published(http, "shared"));
    }
    let done: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|number| {
                let nodes = &nodes;
                scope.spawn(move || work(&mut main_client(&nodes.servers[number % 2])))
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    assert_eq!(done.len(), INTENTS, "nothing twice");
    assert_eq!(done.into_iter().collect::<HashSet<_>>(), expected);
}

/// Claims and fulfils until no intent arrives for a second.
fn work(http: &mut Http) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        let reply = http.send("POST", "/claim?wait=1", &[], None);
        let reply = reply.expect("the server answers");
        if reply.status != 200 {
            return done;
        }
        let job = reply.json();
        let id = word(&job["id"]);
        let body = json!({"claim_token": job["claim_token"]});
        let settled = http.post(&format!("/fulfill/{id}"), &body);
        let settled = settled.expect("the server answers");
        assert_eq!(settled.status, 200, "{}", settled.text());
        done.push(id);
    }
}

/// A server compares clocks every second.
const CLOCK_MAX: Duration = Duration::from_secs(10);
const DAY_S: i64 = 86_400;

#[test]
fn a_server_whose_clock_is_wrong_gives_out_no_work_and_ends_no_lease_until_it_is_set() {
    let place = Place::new();
    let first = place.start();
    let odd = place.path("odd");
    copy_secrets(&place.data(), &odd);
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let odd = start(&shim.under(place.options_with(odd), "consign.db"));
    // The server with the wrong clock reports it at once, the other one after the next heartbeat.
    let mut asked = odd.admin_client().expect("the server made a token");
    let (mut first, mut odd) = (main_client(&first), main_client(&odd));

    for jump_s in [DAY_S, -DAY_S, 3, -3] {
        published(&mut odd, "held");
        let held = claim(&mut odd).json();
        shim.move_clock(jump_s).expect("the shim listens");
        let refused = until(&mut odd, 503);
        assert_eq!(refused.json()["error"]["code"], "node_draining");
        assert!(refused.text().contains("clock"), "{}", refused.text());
        assert_eq!(listed(&mut asked), ["serving", "wrong-clock"]);
        assert_eq!(status_of(&mut first, &word(&held["id"])), "claimed");
        assert_eq!(status_of(&mut odd, &word(&held["id"])), "claimed");

        // All requests except claims succeed there, and the other server leases intents.
        let other = published(&mut odd, "other");
        let taken = claim(&mut first).json();
        assert_eq!(taken["id"], other.as_str(), "after a jump of {jump_s} s");
        for job in [&held, &taken] {
            let body = json!({"claim_token": job["claim_token"]});
            let path = format!("/fulfill/{}", word(&job["id"]));
            let settled = odd.post(&path, &body).expect("the server answers");
            assert_eq!(settled.status, 200, "{}", settled.text());
        }
        shim.move_clock(0).expect("the shim listens");
        until(&mut odd, 204);
    }
}

/// The states of the servers, in the order of their start.
fn listed(http: &mut Http) -> Vec<String> {
    let nodes = get(http, "/admin/nodes").json();
    let nodes = nodes.as_array().expect("a list of nodes");
    nodes.iter().map(|node| word(&node["state"])).collect()
}

fn claim(http: &mut Http) -> Reply {
    http.post("/claim", &json!({})).expect("the server answers")
}

/// Claims until the response has this status.
fn until(http: &mut Http, status: u16) -> Reply {
    let began = Instant::now();
    loop {
        let reply = claim(http);
        if reply.status == status {
            return reply;
        }
        assert!(began.elapsed() < CLOCK_MAX, "{}", reply.text());
        thread::sleep(Duration::from_millis(50));
    }
}
