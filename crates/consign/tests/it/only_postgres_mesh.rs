//! A mesh on several server processes with one database: messages between them, a race for one id, a server that is killed
//! while it delivers, and a member that is connected to two of them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::mesh_members::{
    Membership, TestMember, direct_message, negotiation, pushed_body,
};
use consign_testkit::process::websocket::WebSocketClient;
use consign_testkit::process::{Http, Server, copy_secrets};
use serde_json::{Value, json};

use super::{Place, start, word};

const NODES: usize = 3;
const MESH: &str = "team";
/// A lease of a delivery. What a killed server was delivering must not wait for its end.
const LEASE: Duration = Duration::from_secs(30);
/// No frame takes longer, also while other tests run.
const FRAME_MAX: Duration = Duration::from_secs(20);

/// Servers on one database, and a mesh.
struct MeshNodes {
    servers: Vec<Server>,
    mesh_id: String,
    token: String,
    _place: Place,
}

/// A member of the mesh.
struct JoinedMember {
    member: TestMember,
    membership: Membership,
}

/// A connection of a member's daemon.
struct DaemonSocket {
    socket: WebSocketClient,
    /// Frames that arrived before the one that was waited for.
    earlier: VecDeque<Value>,
}

impl MeshNodes {
    fn start(policy: &str) -> Self {
        let place = Place::new();
        let mut servers = vec![place.start()];
        for number in 1..NODES {
            let data = place.path(&format!("node-{number}"));
            copy_secrets(&place.data(), &data).expect("there are secrets to copy");
            servers.push(start(&place.options_with(data)));
        }
        let mut operator = servers[0].admin_client().expect("an admin token");
        let mesh = json!({"slug": MESH, "clone_policy": policy});
        let mesh = posted(&mut operator, "/v1/meshes", &mesh, 201);
        let path = format!("/v1/meshes/{MESH}/invites");
        let invite = posted(&mut operator, &path, &json!({"uses": 9}), 201);
        Self {
            servers,
            mesh_id: word(&mesh["mesh_id"]),
            token: word(&invite["token"]),
            _place: place,
        }
    }

    /// A new member, which joins at one of the servers.
    fn join(&self, name: &str, seed: u8) -> JoinedMember {
        let member = TestMember::new(name, seed);
        let mut http = self.servers[usize::from(seed) % NODES].http();
        let joined = posted(&mut http, "/join", &member.join(&self.token), 200);
        JoinedMember {
            member,
            membership: Membership {
                mesh_id: self.mesh_id.clone(),
                member_id: word(&joined["memberId"]),
            },
        }
    }

    /// A run of the member's daemon at a server, which has answered its hello and its negotiation.
    fn daemon(&self, node: usize, joined: &JoinedMember, run: &str) -> DaemonSocket {
        let mut socket = self.hello(node, joined, run);
        socket.ask(negotiation());
        socket
    }

    fn hello(&self, node: usize, joined: &JoinedMember, run: &str) -> DaemonSocket {
        let authority = self.servers[node].authority();
        let socket = WebSocketClient::open(authority, "/ws").expect("the server opens a socket");
        socket
            .set_patience(FRAME_MAX)
            .expect("a socket has a timeout");
        let mut socket = DaemonSocket {
            socket,
            earlier: VecDeque::new(),
        };
        let now_us = consign_testkit::history::now_us();
        let now_ms = u64::try_from(now_us / 1_000).expect("a time after 1970");
        let mut hello = joined.member.hello(&joined.membership, now_ms);
        hello["sessionId"] = json!(run);
        socket.send(&hello);
        socket.next_where(|frame| frame["type"] == "hello_ack");
        socket
    }
}

impl DaemonSocket {
    fn send(&mut self, frame: &Value) {
        self.socket.send_json(frame).expect("the server reads");
    }

    #[track_caller]
    fn next_where(&mut self, wants: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.earlier.iter().position(&wants) {
            return self.earlier.remove(at).expect("it is there");
        }
        loop {
            let frame = self.socket.next_json().expect("a frame in time");
            if wants(&frame) {
                return frame;
            }
            self.earlier.push_back(frame);
        }
    }

    /// Sends a request and waits for its answer.
    #[track_caller]
    fn ask(&mut self, mut frame: Value) -> Value {
        frame["_reqId"] = json!("ask");
        self.send(&frame);
        self.next_where(|frame| frame["_reqId"] == "ask")
    }

    #[track_caller]
    fn deliver(&mut self, to: &JoinedMember, id: &str) {
        self.send(&direct_message(&to.member.pubkey(), id, id));
        let ack = self.next_where(|frame| frame["type"] == "ack" && frame["id"] == id);
        assert_eq!(ack["code"], 201, "{ack}");
    }

    #[track_caller]
    fn push(&mut self) -> Value {
        self.next_where(|frame| frame["type"] == "push" && frame["subtype"].is_null())
    }

    fn acknowledge(&mut self, push: &Value) {
        self.send(&json!({"type": "client_ack", "brokerMessageId": push["messageId"]}));
    }

    /// The id of the next message, acknowledged.
    #[track_caller]
    fn take(&mut self) -> String {
        let push = self.push();
        assert_eq!(
            pushed_body(&push).as_deref(),
            push["client_message_id"].as_str()
        );
        self.acknowledge(&push);
        word(&push["client_message_id"])
    }

    /// Waits until this connection sees so many daemons of that member that have negotiated.
    fn wait_for_peers(&mut self, joined: &JoinedMember, count: usize) {
        let deadline = Instant::now() + FRAME_MAX;
        let pubkey = joined.member.pubkey();
        loop {
            let list = self.ask(json!({"type": "list_peers"}));
            let peers = list["peers"].as_array().expect("a list").iter();
            let daemons = peers
                .filter(|peer| peer["pubkey"] == pubkey.as_str() && peer["peerRole"] == "service");
            if daemons.count() == count {
                return;
            }
            assert!(Instant::now() < deadline, "{list}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[track_caller]
fn posted(http: &mut Http, path: &str, body: &Value, status: u16) -> Value {
    let reply = http.post(path, body).expect("the server answers");
    assert_eq!(reply.status, status, "{path}: {}", reply.text());
    reply.json()
}

#[test]
fn cm_154_members_of_three_servers_exchange_messages_and_each_arrives_once() {
    let nodes = MeshNodes::start("prefer_newest");
    let members: Vec<JoinedMember> = ["alice", "bob", "carol"]
        .into_iter()
        .zip(1..)
        .map(|(name, seed)| nodes.join(name, seed))
        .collect();
    let mut sockets: Vec<DaemonSocket> = members
        .iter()
        .enumerate()
        .map(|(node, member)| nodes.daemon(node, member, "run"))
        .collect();
    let mut expected = vec![BTreeSet::new(); members.len()];
    for round in 0..5 {
        for (from, socket) in sockets.iter_mut().enumerate() {
            for to in (0..members.len()).filter(|to| *to != from) {
                let id = format!("m-{round}-{from}-{to}");
                socket.deliver(&members[to], &id);
                expected[to].insert(id);
            }
        }
    }
    drop(sockets);
    for (node, member) in members.iter().enumerate() {
        // At another server than before.
        let mut socket = nodes.daemon((node + 1) % NODES, member, "run");
        let mut received = BTreeSet::new();
        while received.len() < expected[node].len() {
            received.insert(socket.take());
        }
        assert_eq!(received, expected[node]);
    }
}

#[test]
fn cm_152_what_a_killed_server_was_delivering_goes_on_at_another_within_seconds() {
    const MESSAGES: usize = 20;
    // Under this policy a daemon is refused while another run of it is connected.
    let mut nodes = MeshNodes::start("prefer_oldest");
    let (alice, bob) = (nodes.join("alice", 1), nodes.join("bob", 2));
    let mut receiver = nodes.daemon(1, &bob, "one run");
    let mut sender = nodes.daemon(0, &alice, "run");
    let mut expected = BTreeSet::new();
    for number in 0..MESSAGES {
        let id = format!("held-{number}");
        sender.deliver(&bob, &id);
        expected.insert(id);
    }
    // The first is acknowledged; the server holds leases of all others.
    let acknowledged = receiver.take();
    for _ in 1..MESSAGES {
        receiver.push();
    }
    sender.wait_for_peers(&bob, 1);
    nodes.servers[1].kill9().expect("the server can be killed");
    let killed = Instant::now();

    // The same run of the daemon is admitted at once, and not refused because of its connection to the dead server.
    let mut receiver = nodes.daemon(2, &bob, "one run");
    sender.deliver(&bob, "afterwards");
    expected.insert("afterwards".to_owned());
    let mut received = BTreeSet::from([acknowledged]);
    while received.len() < expected.len() {
        received.insert(receiver.take());
    }
    let took = killed.elapsed();
    assert_eq!(received, expected);
    assert!(took < LEASE / 2, "{took:?}");
}

#[test]
fn cm_072_one_id_that_is_sent_to_three_servers_at_once_is_accepted_once() {
    const ROUNDS: usize = 15;
    let nodes = MeshNodes::start("prefer_newest");
    let (alice, bob) = (nodes.join("alice", 1), nodes.join("bob", 2));
    let mut operator = nodes.servers[0].admin_client().expect("an admin token");
    let key = json!({"member": alice.member.pubkey(), "capabilities": ["send"]});
    let path = format!("/v1/meshes/{MESH}/keys");
    let key = posted(&mut operator, &path, &key, 201);
    let bearer = format!("Bearer {}", word(&key["key"]));
    let barrier = Barrier::new(NODES);
    let answers: Vec<Vec<(u16, String)>> = thread::scope(|scope| {
        let senders: Vec<_> = nodes
            .servers
            .iter()
            .map(|server| {
                let (barrier, bearer, to) = (&barrier, &bearer, bob.member.pubkey());
                scope.spawn(move || {
                    let mut http = server.http().header("Authorization", bearer);
                    let send = |round: usize| {
                        let id = format!("raced-{round}");
                        let body = json!({
                            "destination_kind": "dm", "destination_ref": to, "body": id,
                            "client_message_id": id,
                        });
                        barrier.wait();
                        let reply = http.post("/v1/messages", &body);
                        let reply = reply.expect("the server answers");
                        (reply.status, word(&reply.json()["broker_message_id"]))
                    };
                    (0..ROUNDS).map(send).collect()
                })
            })
            .collect();
        let answers = senders.into_iter().map(thread::ScopedJoinHandle::join);
        answers.map(|one| one.expect("it sends")).collect()
    });
    for round in 0..ROUNDS {
        let of_round: Vec<&(u16, String)> = answers.iter().map(|one| &one[round]).collect();
        let mut statuses: Vec<u16> = of_round.iter().map(|(status, _)| *status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 201], "round {round}: {of_round:?}");
        let ids: BTreeSet<&String> = of_round.iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), 1, "round {round}: {of_round:?}");
    }
    let path = format!("/v1/meshes/{MESH}/messages?limit=100");
    let listed = operator.get(&path).expect("the server answers").json();
    assert_eq!(listed["messages"].as_array().map(Vec::len), Some(ROUNDS));
    let mut receiver = nodes.daemon(1, &bob, "run");
    let received: Vec<String> = (0..ROUNDS).map(|_| receiver.take()).collect();
    assert_eq!(received.iter().collect::<BTreeSet<_>>().len(), ROUNDS);
}

#[test]
fn cm_019_the_newest_daemon_replaces_one_at_another_server() {
    let nodes = MeshNodes::start("prefer_newest");
    let (alice, bob) = (nodes.join("alice", 1), nodes.join("bob", 2));
    let mut older = nodes.daemon(0, &alice, "one");
    let mut newer = nodes.daemon(1, &alice, "two");
    let closed = older.socket.until_closed().expect("it is closed");
    assert_eq!(closed, (4003, "replaced_by_newer_connection".to_owned()));
    nodes.daemon(2, &bob, "run").deliver(&alice, "to-the-newer");
    assert_eq!(newer.take(), "to-the-newer");
}

#[test]
fn cm_020_the_oldest_daemon_stays_also_if_the_second_is_at_another_server() {
    let nodes = MeshNodes::start("prefer_oldest");
    let (alice, bob) = (nodes.join("alice", 1), nodes.join("bob", 2));
    let mut older = nodes.daemon(0, &alice, "one");
    let mut watching = nodes.daemon(1, &bob, "run");
    // Its server has published that it negotiated.
    watching.wait_for_peers(&alice, 1);
    let mut newer = nodes.hello(2, &alice, "two");
    newer.send(&negotiation());
    let closed = newer.socket.until_closed().expect("it is closed");
    assert_eq!(closed, (4004, "member_already_connected".to_owned()));
    watching.deliver(&alice, "to-the-older");
    assert_eq!(older.take(), "to-the-older");

    // It connects again, to another server, and continues its own connection.
    let mut again = nodes.daemon(1, &alice, "one");
    let closed = older.socket.until_closed().expect("it is closed");
    assert_eq!(closed, (1000, "session_replaced".to_owned()));
    watching.deliver(&alice, "after-the-move");
    assert_eq!(again.take(), "after-the-move");
}

#[test]
fn cm_020_two_daemons_at_two_servers_coexist_if_the_mesh_allows_it() {
    let nodes = MeshNodes::start("allow_concurrent");
    let (alice, bob) = (nodes.join("alice", 1), nodes.join("bob", 2));
    let mut one = nodes.daemon(0, &alice, "one");
    let mut two = nodes.daemon(1, &alice, "two");
    // Each server knows both by now.
    one.wait_for_peers(&alice, 2);
    two.wait_for_peers(&alice, 2);
    let mut sender = nodes.daemon(2, &bob, "run");
    sender.deliver(&alice, "to-either");
    drop(one);
    sender.wait_for_peers(&alice, 2);
    // What the first had not acknowledged is the second's.
    assert_eq!(two.take(), "to-either");
}

#[test]
fn cm_020_of_daemons_that_connect_to_two_servers_at_once_one_stays() {
    for policy in ["prefer_newest", "prefer_oldest"] {
        let nodes = MeshNodes::start(policy);
        let alice = nodes.join("alice", 1);
        let barrier = Barrier::new(2);
        let stayed: Vec<bool> = thread::scope(|scope| {
            let runs: Vec<_> = (0..2)
                .map(|node| {
                    let (nodes, alice, barrier) = (&nodes, &alice, &barrier);
                    scope.spawn(move || {
                        let mut socket = nodes.hello(node, alice, &format!("run-{node}"));
                        barrier.wait();
                        socket.send(&negotiation());
                        // Two intervals in which nodes read who is connected to others.
                        let until = Duration::from_secs(6);
                        socket
                            .socket
                            .set_patience(until)
                            .expect("a socket has a timeout");
                        socket.socket.until_closed().is_err()
                    })
                })
                .collect();
            let stayed = runs.into_iter().map(|run| run.join().expect("it runs"));
            stayed.collect()
        });
        let count = stayed.iter().filter(|stayed| **stayed).count();
        assert_eq!(count, 1, "{policy}: {stayed:?}");
    }
}
