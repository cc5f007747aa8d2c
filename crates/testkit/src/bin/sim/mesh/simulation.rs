//! One simulation of the mesh: a seed determines its steps, and every step is checked.

use std::time::Duration;

use consign_engine::{Error, WallClock as _};
use consign_kernel::ids::SECOND_US;
use consign_mesh::broker::Broker;
use consign_mesh::daemon::simulation::{AddedMessage, SimulatedLine, SimulatedOutbox};
use consign_mesh::keys::MeshPublicKey;
use consign_store::memory::simulated::{DiskFault, Turn};
use consign_testkit::seeded_random::SeededRandom;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::link::{MemberLink, OutboxLink};
use super::message_checks::MessageChecks;
use super::server::{self, SimMembers, SimMemberships};
use super::stranger::SimStranger;
use crate::ledger_checks::BrokenPromise;
use crate::log::EventLog;
use crate::machine::SimMachine;
use crate::run::{EventCounts, SeedFailure, SeedResult, simulated_runtime};

const REQUESTS_AT_ONCE_MAX: usize = 6;
/// The minimum duration of a commit.
const TICK: Duration = Duration::from_millis(1);
const REST_TURNS: u32 = 40;
const REST_TICK: Duration = Duration::from_millis(25);
/// Turns within which a start, or a change of the setup, is done.
const SETUP_TURNS: u32 = 200;
/// Rests within which everything comes to its end, after all deadlines have passed.
const LAST_RESTS: u32 = 60;

/// Runs one seed.
pub(crate) fn run(seed: u64, steps: u64) -> Result<SeedResult, SeedFailure> {
    simulated_runtime().block_on(async {
        let mut run = MeshSimulation::new(seed);
        let mut step = 0;
        let ended = async {
            run.set_up().await?;
            while step < steps {
                step += 1;
                run.step().await?;
            }
            run.finish().await
        };
        if let Err(broken) = ended.await {
            let tail = run.log.tail();
            return Err(SeedFailure { step, broken, tail });
        }
        Ok(SeedResult {
            digest: run.log.digest(),
            counts: run.counts,
        })
    })
}

/// The process of the daemon.
struct SimDaemon {
    outbox: SimulatedOutbox,
    lines: mpsc::UnboundedSender<SimulatedLine>,
    sending: JoinHandle<()>,
}

impl SimDaemon {
    /// A process that has recovered what an earlier one left.
    fn start(outbox: SimulatedOutbox) -> Self {
        let (lines, opened) = mpsc::unbounded_channel();
        Self {
            sending: tokio::spawn(outbox.clone().run(opened)),
            outbox,
            lines,
        }
    }
}

/// A request to the outbox.
struct AddRequest {
    id: String,
    body: String,
    task: JoinHandle<Result<AddedMessage, Error>>,
}

struct MeshSimulation {
    random: SeededRandom,
    /// The machine of the broker.
    server: SimMachine,
    broker: Broker,
    broker_starts: u64,
    /// The machine of the daemon.
    laptop: SimMachine,
    daemon: SimDaemon,
    daemon_starts: u64,
    members: SimMembers,
    memberships: Option<SimMemberships>,
    link: Option<OutboxLink>,
    recipient: Option<MemberLink>,
    /// Pushes that the recipient took and has not stored.
    taken: Vec<Value>,
    stranger: SimStranger,
    requests: Vec<AddRequest>,
    bodies: u64,
    messages: MessageChecks,
    /// The recipient acknowledges everything.
    is_helpful: bool,
    log: EventLog,
    counts: EventCounts,
}

impl MeshSimulation {
    fn new(seed: u64) -> Self {
        let far = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6d65_7368_2073_696d;
        let server = SimMachine::boot(seed, 1_000);
        let laptop = SimMachine::boot(!seed, 1_000);
        let broker = server::open(&server.engine, 0);
        let outbox = SimulatedOutbox::new(laptop.engine.clone(), &server::slug(), "0");
        Self {
            random: SeededRandom::new(far),
            server,
            broker,
            broker_starts: 0,
            laptop,
            daemon: SimDaemon::start(outbox),
            daemon_starts: 0,
            members: SimMembers::new(),
            memberships: None,
            link: None,
            recipient: None,
            taken: Vec::new(),
            stranger: SimStranger::default(),
            requests: Vec::new(),
            bodies: 0,
            messages: MessageChecks::default(),
            is_helpful: false,
            log: EventLog::default(),
            counts: EventCounts::new(),
        }
    }

    async fn set_up(&mut self) -> Result<(), BrokenPromise> {
        let members = &self.members;
        let keys = [&members.sender, &members.recipient, &members.stranger]
            .map(|member| parse_key(&member.pubkey()));
        let joining = tokio::spawn(server::set_up(self.broker.clone(), keys));
        for _ in 0..SETUP_TURNS {
            if joining.is_finished() {
                break;
            }
            self.server.pass(TICK).await;
            self.server.turn(DiskFault::None);
        }
        let joined = joining.await.map_err(|error| error.to_string())?;
        self.memberships = Some(joined.map_err(|error| error.to_string())?);
        self.connect_daemon();
        self.connect_recipient();
        self.connect_stranger();
        Ok(())
    }

    async fn step(&mut self) -> Result<(), BrokenPromise> {
        match self.random.below(100) {
            0..10 => self.rest().await?,
            10..14 => self.sleep(),
            14..17 => self.set_wall(),
            17..25 => self.toggle_daemon_link(),
            25..31 => self.toggle_recipient(),
            31..34 => self.toggle_stranger(),
            _ => {
                for _ in 0..=self.random.below(2) {
                    self.ask();
                }
                if self.random.percent(40) {
                    self.ask_as_stranger();
                }
                self.pass(TICK).await?;
                if self.random.percent(75) {
                    let fault = self.fault();
                    self.turn_laptop(fault).await?;
                }
                self.pass(TICK).await?;
                if self.random.percent(75) {
                    let fault = self.fault();
                    self.turn_server(fault).await?;
                }
            }
        }
        self.pass(TICK).await?;
        self.judge().await
    }

    fn fault(&mut self) -> DiskFault {
        match self.random.below(100) {
            0..3 => DiskFault::Refused,
            3..6 => DiskFault::CrashBefore,
            6..9 => DiskFault::CrashAfter,
            9 => DiskFault::Lost,
            10 => DiskFault::Gone,
            11..22 => DiskFault::Slow,
            _ => DiskFault::None,
        }
    }

    /// Time passes, and the connections carry what was written.
    async fn pass(&mut self, time: Duration) -> Result<(), BrokenPromise> {
        self.server.pass(time).await;
        if let Some(link) = &mut self.link {
            link.carry(&self.daemon.lines);
        }
        self.server.pass(TICK).await;
        for code in self.stranger.receive()? {
            self.note(&format!("the stranger gets {code}"));
            self.count(match code {
                201 => "mesh: messages of the stranger",
                200 => "mesh: repeated ids of the stranger",
                409 => "mesh: ids in conflict",
                _ => "mesh: refused frames",
            });
        }
        self.drop_closed_links();
        Ok(())
    }

    /// Members notice that the broker has ended their connection.
    fn drop_closed_links(&mut self) {
        if self.link.as_ref().is_some_and(OutboxLink::is_closed) {
            self.note("the broker ends the connection of the daemon");
            self.cut_daemon_link();
        }
        if self.recipient.as_ref().is_some_and(MemberLink::is_closed) {
            self.note("the broker ends the connection of the recipient");
            self.recipient = None;
        }
        let stranger = &mut self.stranger;
        if stranger.link.as_ref().is_some_and(MemberLink::is_closed) {
            stranger.disconnect();
        }
    }

    async fn turn_server(&mut self, fault: DiskFault) -> Result<(), BrokenPromise> {
        match self.server.turn(fault) {
            Turn::Failed if fault == DiskFault::None => {
                Err("a commit of the broker failed although the disk is fine".to_owned())
            }
            Turn::Idle | Turn::Slow | Turn::Committed | Turn::Failed => Ok(()),
            Turn::Crashed => {
                self.count("mesh: crashes of the broker");
                self.note(&format!("the broker dies: {fault:?}"));
                // Frames that were sent before the crash still arrive.
                self.pass(TICK).await?;
                self.judge().await?;
                self.restart_server().await
            }
        }
    }

    async fn turn_laptop(&mut self, fault: DiskFault) -> Result<(), BrokenPromise> {
        match self.laptop.turn(fault) {
            Turn::Failed if fault == DiskFault::None => {
                Err("a commit of the daemon failed although the disk is fine".to_owned())
            }
            Turn::Idle | Turn::Slow | Turn::Committed | Turn::Failed => Ok(()),
            Turn::Crashed => {
                self.count("mesh: crashes of the daemon");
                self.note(&format!("the daemon dies: {fault:?}"));
                self.pass(TICK).await?;
                self.judge().await?;
                self.restart_laptop().await
            }
        }
    }

    /// Starts a process of the broker, which recovers what the earlier one left.
    async fn restart_server(&mut self) -> Result<(), BrokenPromise> {
        self.cut_daemon_link();
        self.recipient = None;
        self.stranger.disconnect();
        self.server.restart();
        self.broker_starts += 1;
        let broker = server::open(&self.server.engine, self.broker_starts);
        let recovering = broker.clone();
        let recovered = tokio::spawn(async move { recovering.recover().await });
        for _ in 0..SETUP_TURNS {
            if recovered.is_finished() {
                break;
            }
            self.server.pass(TICK).await;
            self.server.turn(DiskFault::None);
        }
        let recovered = recovered.await.map_err(|error| error.to_string())?;
        let recovered = recovered.map_err(|error| format!("no broker starts: {error}"))?;
        self.note(&format!("the broker recovers {recovered}"));
        self.broker = broker;
        if self.random.percent(70) {
            self.connect_daemon();
        }
        if self.random.percent(70) {
            self.connect_recipient();
        }
        self.look().await
    }

    /// Starts processes of the daemon until one has recovered what the earlier ones left.
    async fn restart_laptop(&mut self) -> Result<(), BrokenPromise> {
        for request in std::mem::take(&mut self.requests) {
            request.task.abort();
        }
        self.daemon.sending.abort();
        self.cut_daemon_link();
        self.laptop.restart();
        loop {
            self.daemon_starts += 1;
            let start = self.daemon_starts.to_string();
            let engine = self.laptop.engine.clone();
            let outbox = SimulatedOutbox::new(engine, &server::slug(), &start);
            let recovering = outbox.clone();
            let recovered = tokio::spawn(async move { recovering.recover().await });
            let mut has_crashed = false;
            for _ in 0..SETUP_TURNS {
                self.laptop.pass(TICK).await;
                if recovered.is_finished() {
                    break;
                }
                let fault = match self.random.below(100) {
                    0..4 => DiskFault::CrashAfter,
                    4..8 => DiskFault::CrashBefore,
                    _ => DiskFault::None,
                };
                has_crashed = self.laptop.turn(fault) == Turn::Crashed;
                if has_crashed {
                    break;
                }
            }
            if has_crashed {
                self.count("mesh: crashes in a recovery");
                self.note("the daemon dies while it recovers");
                recovered.abort();
                self.laptop.restart();
                continue;
            }
            let recovered = recovered.await.map_err(|error| error.to_string())?;
            let recovered = recovered.map_err(|error| format!("no daemon starts: {error}"))?;
            self.note(&format!("the daemon recovers {recovered}"));
            self.daemon = SimDaemon::start(outbox);
            break;
        }
        if self.random.percent(70) {
            self.connect_daemon();
        }
        self.look().await
    }

    /// No faults: every request must be answered.
    async fn rest(&mut self) -> Result<(), BrokenPromise> {
        self.note("rest");
        for _ in 0..REST_TURNS {
            self.pass(REST_TICK).await?;
            let turns = [
                self.laptop.turn(DiskFault::None),
                self.server.turn(DiskFault::None),
            ];
            if turns.contains(&Turn::Failed) {
                return Err("a commit failed although the disk is fine".to_owned());
            }
            self.look().await?;
        }
        self.pass(TICK).await?;
        self.judge().await?;
        let waiting = self.requests.first();
        waiting.map_or(Ok(()), |request| {
            Err(format!("the request for {} was not answered", request.id))
        })
    }

    /// Leases and pauses end meanwhile, and no timer of the process fires.
    fn sleep(&mut self) {
        let us = self.random.one_of(&[1, 3, 11, 61]) * SECOND_US;
        let of_laptop = self.random.percent(50);
        self.note(&format!(
            "the {} sleeps for {} s",
            machine_name(of_laptop),
            us / SECOND_US
        ));
        self.machine(of_laptop).sleep(us);
    }

    fn set_wall(&mut self) {
        let by_s = self.random.one_of(&[-61, -5, 5, 61]);
        let of_laptop = self.random.percent(50);
        let machine = machine_name(of_laptop);
        self.note(&format!("the clock of the {machine} is set by {by_s} s"));
        self.machine(of_laptop).set_wall(by_s * SECOND_US);
    }

    const fn machine(&mut self, of_laptop: bool) -> &mut SimMachine {
        if of_laptop {
            &mut self.laptop
        } else {
            &mut self.server
        }
    }

    fn toggle_daemon_link(&mut self) {
        if self.link.is_some() {
            self.note("the daemon is cut off");
            self.count("mesh: cut connections");
            self.cut_daemon_link();
        } else {
            self.connect_daemon();
        }
    }

    fn cut_daemon_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.cut();
        }
    }

    fn toggle_recipient(&mut self) {
        if self.recipient.take().is_some() {
            self.note("the recipient disconnects");
        } else {
            self.connect_recipient();
        }
    }

    fn toggle_stranger(&mut self) {
        if self.stranger.link.is_some() {
            self.note("the stranger disconnects");
            self.stranger.disconnect();
        } else {
            self.connect_stranger();
        }
    }

    fn connect_daemon(&mut self) {
        self.note("the daemon connects");
        self.cut_daemon_link();
        let joined = self.joined();
        let link = self.connect(&self.members.sender, &joined.sender);
        self.link = Some(OutboxLink::new(link));
    }

    fn connect_recipient(&mut self) {
        self.note("the recipient connects");
        let joined = self.joined();
        let link = self.connect(&self.members.recipient, &joined.recipient);
        self.recipient = Some(link);
    }

    fn connect_stranger(&mut self) {
        self.note("the stranger connects");
        self.stranger.disconnect();
        let joined = self.joined();
        let link = self.connect(&self.members.stranger, &joined.stranger);
        self.stranger.link = Some(link);
    }

    fn joined(&self) -> SimMemberships {
        let joined = self.memberships.as_ref();
        joined.expect("the members have joined").clone()
    }

    /// Members agree with the clock of the broker.
    fn connect(
        &self,
        member: &consign_testkit::mesh_members::TestMember,
        membership: &consign_testkit::mesh_members::Membership,
    ) -> MemberLink {
        let now = self.server.clocks.wall();
        MemberLink::connect(&self.broker, member, membership, now)
    }

    /// Sends one more request to the outbox: a new id, a known one, or a known one with another body.
    fn ask(&mut self) {
        if self.requests.len() >= REQUESTS_AT_ONCE_MAX {
            return;
        }
        let known = self.messages.ids();
        let again = known > 0 && self.random.percent(30);
        let repeated = if again {
            let recent = self.random.index(known);
            self.messages.sent(recent)
        } else {
            None
        };
        let (id, body) = match repeated {
            Some((id, body)) if self.random.percent(70) => (id, body),
            Some((id, _)) => (id, self.body()),
            None => (format!("m-{known}"), self.body()),
        };
        self.note(&format!("the outbox gets {id}: {body}"));
        self.messages.sends(&id, &body);
        let outbox = self.daemon.outbox.clone();
        let to = parse_key(&self.members.recipient.pubkey());
        let (of, text) = (id.clone(), body.clone());
        let task = tokio::spawn(async move { outbox.add(&of, &to, &text).await });
        self.requests.push(AddRequest { id, body, task });
    }

    fn body(&mut self) -> String {
        self.bodies += 1;
        format!("body {}", self.bodies)
    }

    fn ask_as_stranger(&mut self) {
        let done = self.messages.done_count();
        let foreign = self.messages.done(self.random.index(done.max(1)));
        let to = self.members.recipient.pubkey();
        let told = self.stranger.send(&to, foreign, &mut self.random);
        if let Some(told) = told {
            self.note(&told);
        }
    }

    /// Checks both ledgers; then the recipient works.
    async fn look(&mut self) -> Result<(), BrokenPromise> {
        let trouble = |error: consign_store::Error| format!("the store cannot be read: {error}");
        let broker = self.server.store.dump().await.map_err(trouble)?;
        let outbox = self.laptop.store.dump().await.map_err(trouble)?;
        self.messages.look_at_broker(&broker)?;
        self.messages.look_at_outbox(&outbox)?;
        self.messages.check_accepted(&self.stranger.accepted)?;
        self.receive()
    }

    /// The recipient stores what it took before, acknowledges most of it, and takes what has arrived since.
    fn receive(&mut self) -> Result<(), BrokenPromise> {
        let Some(recipient) = &mut self.recipient else {
            self.taken.clear();
            return Ok(());
        };
        let arrived = recipient.take();
        let taken = std::mem::take(&mut self.taken);
        if !taken.is_empty() && !self.is_helpful && self.random.percent(4) {
            self.note("the recipient dies with what it took");
            self.recipient = None;
            return Ok(());
        }
        for push in taken {
            let id = self.messages.received(&push);
            let acknowledges = self.is_helpful || self.random.percent(75);
            self.note(&format!(
                "the recipient stores {id}, acknowledged: {acknowledges}"
            ));
            self.count("mesh: deliveries");
            if let Some(recipient) = self.recipient.as_ref().filter(|_| acknowledges) {
                let ack = json!({"type": "client_ack", "brokerMessageId": push["messageId"]});
                recipient.send(&ack);
            }
        }
        for frame in arrived {
            if frame["type"] == "push" && frame["subtype"] != "system" {
                self.messages.check_pushed(&frame)?;
                self.taken.push(frame);
            }
        }
        Ok(())
    }

    /// Checks the ledgers, then the answers of the outbox.
    async fn judge(&mut self) -> Result<(), BrokenPromise> {
        self.look().await?;
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.requests)
            .into_iter()
            .partition(|request| request.task.is_finished());
        self.requests = waiting;
        for AddRequest { id, body, task } in done {
            let added = task.await.map_err(|error| error.to_string())?;
            let text = match &added {
                Ok(added) => format!("{added:?}"),
                Err(error) => error.to_string(),
            };
            self.note(&format!("the outbox answers {id}: {text}"));
            self.count(match &added {
                Ok(AddedMessage::New) => "mesh: messages of the outbox",
                Ok(AddedMessage::Same) => "mesh: repeated ids of the outbox",
                Ok(AddedMessage::Different) => "mesh: other messages with a known id",
                Err(_) => "mesh: refused requests",
            });
            self.messages.added(&id, &body, &added)?;
        }
        Ok(())
    }

    /// All deadlines pass, the recipient acknowledges, and everything must come to its end.
    async fn finish(&mut self) -> Result<(), BrokenPromise> {
        self.is_helpful = true;
        for _ in 0..LAST_RESTS {
            self.server.sleep(61 * SECOND_US);
            self.laptop.sleep(61 * SECOND_US);
            if self.link.is_none() {
                self.connect_daemon();
            }
            if self.recipient.is_none() {
                self.connect_recipient();
            }
            self.rest().await?;
            if self.messages.unfinished().is_none() {
                return Ok(());
            }
        }
        let what = self.messages.unfinished().unwrap_or_default();
        Err(format!("it never ends: {what}"))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn note(&mut self, text: &str) {
        self.log.line(self.server.now(), text);
    }
}

const fn machine_name(is_laptop: bool) -> &'static str {
    if is_laptop {
        "daemon's machine"
    } else {
        "broker's machine"
    }
}

fn parse_key(text: &str) -> MeshPublicKey {
    MeshPublicKey::parse(text).expect("it was made from a key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_history_of_the_mesh() {
        let digests = [1, 2, 1].map(|seed| run(seed, 60).unwrap().digest);
        assert_eq!(digests[0], digests[2]);
        assert_ne!(digests[0], digests[1]);
    }

    #[test]
    fn a_few_seeds_see_every_kind_of_event_of_the_mesh() {
        let mut counts = EventCounts::new();
        for seed in 1..=10 {
            for (what, count) in run(seed, 60).unwrap().counts {
                *counts.entry(what).or_default() += count;
            }
        }
        assert_eq!(counts.len(), 13, "{counts:?}");
    }
}
