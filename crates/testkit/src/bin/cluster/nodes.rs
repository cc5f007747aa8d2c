//! The nodes: server processes with the same secrets, each with its own proxied connections to both databases.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use consign_testkit::campaign::endpoints::Endpoints;
use consign_testkit::process::{Http, Options, Server, copy_secrets};
use consign_testkit::proxy::{Mode, Wire};
use consign_testkit::shim::Clock;
use serde_json::json;

use crate::campaign::ClusterCampaign;
use crate::database::{DATABASE, ReplicatedPair};

pub(crate) const NODES: usize = 3;
/// After this time without a response a client uses another node.
const PATIENCE: Duration = Duration::from_secs(2);
const END_LIMIT: Duration = Duration::from_secs(30);
/// For the final checks, which may wait for timeouts of a node.
const CHECK_PATIENCE: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub(crate) struct ClusterNode {
    options: Options,
    wires: [Wire; 2],
    server: Server,
}

impl ClusterNode {
    fn start(options: Options, wires: [Wire; 2]) -> io::Result<Self> {
        let server = Server::start(&options)?;
        // It restarts on the same port.
        let options = options.listen(server.authority());
        Ok(Self {
            options,
            wires,
            server,
        })
    }

    pub(crate) fn operator(&self) -> io::Result<Http> {
        self.server.admin_client()
    }

    pub(crate) fn kill9(&mut self) -> io::Result<()> {
        self.server.kill9().map(drop)
    }

    pub(crate) fn start_again(&mut self) -> io::Result<()> {
        self.server = Server::start(&self.options)?;
        Ok(())
    }

    /// Stops it in order and starts it again.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.server.terminate(END_LIMIT)?;
        self.start_again()
    }

    /// Restarts it with all migrations of its binary.
    pub(crate) fn upgrade(&mut self) -> io::Result<()> {
        self.options.env.retain(|(name, _)| name != HOLD);
        self.restart()
    }

    pub(crate) fn signal(&self, name: &str) -> io::Result<()> {
        self.server.signal(name)
    }

    pub(crate) fn set_wires(&self, mode: Mode) {
        self.wires.iter().for_each(|wire| wire.set(mode));
    }

    pub(crate) fn forget_wires(&self) {
        self.wires.iter().for_each(Wire::forget);
    }

    /// Whether it refuses writes.
    pub(crate) fn refuses(&self) -> bool {
        let body = json!({"goal": "refused", "payload": {}, "namespace": "probe"});
        let http = self.server.main_client();
        let sent = http.and_then(|http| http.patience(PATIENCE).post("/intent", &body));
        sent.is_ok_and(|reply| reply.status >= 500)
    }

    /// Publishes, claims, fulfils and reads an intent until that works, at most until `deadline`; else returns the
    /// last error.
    pub(crate) fn works(&self, goal: &str, deadline: Instant) -> Result<(), String> {
        loop {
            let tried = self.cycle(goal);
            if tried.is_ok() || Instant::now() > deadline {
                return tried;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits on this node for an intent and fulfils it; returns its id.
    pub(crate) fn wait_for(
        &self,
        goal: &str,
    ) -> io::Result<JoinHandle<io::Result<Option<String>>>> {
        let mut http = self.server.main_client()?.patience(CHECK_PATIENCE);
        let path = format!("/claim?namespace=probe&goal={goal}&wait=20");
        Ok(thread::spawn(move || {
            let claimed = http.send("POST", &path, &[], None)?.json();
            let Some(id) = claimed["id"].as_str() else {
                return Ok(None);
            };
            let body = json!({"claim_token": claimed["claim_token"], "result": 1});
            let done = http.post(&format!("/fulfill/{id}"), &body)?;
            Ok((done.status == 200).then(|| id.to_owned()))
        }))
    }

    /// Publishes this many intents at once.
    pub(crate) fn publish_many(&self, goal: &str, count: usize) -> io::Result<()> {
        let one = json!({"goal": goal, "payload": {}, "namespace": "probe"});
        let body = json!({"intents": vec![one; count]});
        let mut http = self.server.main_client()?.patience(CHECK_PATIENCE);
        let reply = http.post("/intents", &body)?;
        if reply.status == 201 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "/intents: {} {}",
            reply.status,
            reply.text()
        )))
    }

    fn cycle(&self, goal: &str) -> Result<(), String> {
        let http = self.server.main_client();
        let mut http = http.map_err(|error| error.to_string())?.patience(PATIENCE);
        let mut ask = |method: &str, path: &str, body: Option<&serde_json::Value>| {
            let sent = http.send(method, path, &[], body);
            let reply = sent.map_err(|error| format!("{path}: {error}"))?;
            match reply.status {
                200 | 201 => Ok(reply.json()),
                status => Err(format!("{path}: {status} {}", reply.text())),
            }
        };
        let body = json!({"goal": goal, "payload": {}, "namespace": "probe"});
        ask("POST", "/intent", Some(&body))?;
        let path = format!("/claim?namespace=probe&goal={goal}");
        let claimed = ask("POST", &path, None)?;
        let id = claimed["id"].as_str().unwrap_or_default();
        let body = json!({"claim_token": claimed["claim_token"], "result": 1});
        ask("POST", &format!("/fulfill/{id}"), Some(&body))?;
        let known = ask("GET", &format!("/result/{id}"), None)?;
        match known["status"].as_str() {
            Some("fulfilled") => Ok(()),
            _ => Err(format!("{id} was fulfilled, and is now {known}")),
        }
    }
}

/// Migrations above this number are held back.
const HOLD: &str = "CONSIGN_HOLD_MIGRATIONS";

/// How the nodes of a trial are started.
#[derive(Debug)]
pub(crate) struct NodeSetup<'a> {
    pub(crate) campaign: &'a ClusterCampaign,
    pub(crate) folder: &'a Path,
    /// The schema version they start with, if it is not the newest.
    pub(crate) hold: Option<i32>,
}

/// Starts the nodes one after the other: the first creates the secrets, and all use them.
pub(crate) fn start(setup: &NodeSetup<'_>, pair: &ReplicatedPair) -> io::Result<Vec<ClusterNode>> {
    let carrier = &setup.campaign.carrier;
    let mut nodes = Vec::new();
    for index in 0..NODES {
        let data = setup.folder.join(format!("node-{index}"));
        if index > 0 {
            copy_secrets(&setup.folder.join("node-0"), &data)?;
        }
        let [first, second] = pair.ports();
        let wires = [carrier.wire(first)?, carrier.wire(second)?];
        let url = format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{DATABASE}",
            wires[0].port, wires[1].port
        );
        let options = setup.campaign.options(&data);
        let (name, number) = clock(index).variable();
        let mut options = options.arg("--store").arg(&url).env(name, &number);
        if let Some(version) = setup.hold {
            options = options.env(HOLD, &version.to_string());
        }
        nodes.push(ClusterNode::start(options, wires)?);
    }
    Ok(nodes)
}

/// The wall clock of a node. The first clock of the shim is not used.
pub(crate) fn clock(index: usize) -> Clock {
    Clock(1 + index as u64)
}

/// The endpoints of a client; it begins at node `first`.
pub(crate) fn endpoints(
    nodes: &[ClusterNode],
    first: usize,
    end: &Arc<AtomicBool>,
) -> io::Result<Endpoints> {
    let servers: io::Result<Vec<Http>> = nodes
        .iter()
        .map(|node| Ok(node.server.main_client()?.patience(PATIENCE)))
        .collect();
    Ok(Endpoints::nodes(servers?, first, Arc::clone(end)))
}

/// A client for reads.
pub(crate) fn asker(nodes: &[ClusterNode], index: usize) -> io::Result<Http> {
    let node = &nodes[index % nodes.len()];
    Ok(node.server.main_client()?.patience(CHECK_PATIENCE))
}
