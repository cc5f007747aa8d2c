//! One simulation of Beam: a seed determines its steps, and every step is checked.

use std::time::Duration;

use consign_engine::WallClock as _;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::state::State;
use consign_store::memory::simulated::{DiskFault, Turn};
use consign_testkit::beam_agents::INTENT_TYPES;
use consign_testkit::seeded_random::SeededRandom;
use tokio::time::Instant;

use super::answer_checks::AnswerChecks;
use super::describe::{answer, kind, told};
use super::recipients::SimRecipient;
use super::requests::{BeamAction, BeamReply, BeamRequest, NonceUse, SimAgents};
use super::row_checks::RowChecks;
use super::server::{self, SimServer};
use crate::ledger_checks::BrokenPromise;
use crate::log::EventLog;
use crate::machine::SimMachine;
use crate::run::{EventCounts, SeedFailure, SeedResult, simulated_runtime};

const REQUESTS_AT_ONCE_MAX: usize = 8;
/// The minimum duration of a commit.
const TICK: Duration = Duration::from_millis(1);
/// Together longer than a relay may take.
const REST_TURNS: u32 = 60;
const REST_TICK: Duration = Duration::from_millis(25);
/// Turns within which a start, or a change of the setup, is done.
const SETUP_TURNS: u32 = 100;
/// Rests within which everything comes to its end, after all deadlines have passed.
const LAST_RESTS: u32 = 40;

/// Runs one seed.
pub(crate) fn run(seed: u64, steps: u64) -> Result<SeedResult, SeedFailure> {
    simulated_runtime().block_on(async {
        let mut run = BeamSimulation::new(seed);
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

struct BeamSimulation {
    random: SeededRandom,
    world: SimMachine,
    agents: SimAgents,
    server: SimServer,
    starts: u64,
    recipients: [SimRecipient; 2],
    requests: Vec<BeamRequest>,
    sent: u64,
    /// Used nonces, first those of intents.
    nonces: Vec<(String, NonceUse)>,
    bus_nonces: Vec<(String, NonceUse)>,
    rows: RowChecks,
    answers: AnswerChecks,
    /// Recipients answer everything at once.
    is_helpful: bool,
    log: EventLog,
    counts: EventCounts,
}

impl BeamSimulation {
    fn new(seed: u64) -> Self {
        let far = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6265_616d_2073_696d;
        let world = SimMachine::boot(seed, 1_000);
        let agents = SimAgents::new();
        let beam = server::open(&world.engine, 0, &agents.bus_sender);
        Self {
            random: SeededRandom::new(far),
            server: SimServer::start(beam),
            world,
            agents,
            starts: 0,
            recipients: Default::default(),
            requests: Vec::new(),
            sent: 0,
            nonces: Vec::new(),
            bus_nonces: Vec::new(),
            rows: RowChecks::default(),
            answers: AnswerChecks::default(),
            is_helpful: false,
            log: EventLog::default(),
            counts: EventCounts::new(),
        }
    }

    async fn set_up(&mut self) -> Result<(), BrokenPromise> {
        let records = self.agents.all().map(server::agent_record).collect();
        let engine = self.world.engine.clone();
        let stored = tokio::spawn(server::store_agents(engine, records));
        for _ in 0..SETUP_TURNS {
            if stored.is_finished() {
                break;
            }
            self.world.pass(TICK).await;
            self.world.turn(DiskFault::None);
        }
        let stored = stored.await.map_err(|error| error.to_string())?;
        stored.map_err(|error| error.to_string())?;
        self.connect(0);
        self.connect(1);
        Ok(())
    }

    async fn step(&mut self) -> Result<(), BrokenPromise> {
        match self.random.below(100) {
            0..12 => self.rest().await?,
            12..17 => self.sleep(),
            17..20 => self.set_wall(),
            20..26 => self.toggle_connection(),
            _ => {
                for _ in 0..=self.random.below(2) {
                    self.ask();
                }
                if self.random.percent(10) {
                    self.cut();
                }
                self.world.pass(TICK).await;
                if self.random.percent(75) {
                    let fault = self.fault();
                    self.turn(fault).await?;
                }
            }
        }
        self.world.pass(TICK).await;
        self.judge().await
    }

    fn fault(&mut self) -> DiskFault {
        match self.random.below(100) {
            0..3 => DiskFault::Refused,
            3..7 => DiskFault::CrashBefore,
            7..11 => DiskFault::CrashAfter,
            11 => DiskFault::Lost,
            12 => DiskFault::Gone,
            13..25 => DiskFault::Slow,
            _ => DiskFault::None,
        }
    }

    async fn turn(&mut self, fault: DiskFault) -> Result<(), BrokenPromise> {
        match self.world.turn(fault) {
            Turn::Failed if fault == DiskFault::None => {
                Err("a commit failed although the disk is fine".to_owned())
            }
            Turn::Idle | Turn::Slow | Turn::Committed | Turn::Failed => Ok(()),
            Turn::Crashed => {
                self.count("beam: crashes");
                self.note(&format!("the machine dies: {fault:?}"));
                // Responses and messages that were sent before the crash still arrive.
                self.world.pass(TICK).await;
                self.judge().await?;
                self.restart().await
            }
        }
    }

    /// Starts new processes until one has recovered what the earlier ones left.
    async fn restart(&mut self) -> Result<(), BrokenPromise> {
        for request in &self.requests {
            request.task.abort();
        }
        for recipient in &mut self.recipients {
            recipient.client = None;
        }
        self.server.kill();
        self.world.restart();
        loop {
            self.starts += 1;
            let beam = server::open(&self.world.engine, self.starts, &self.agents.bus_sender);
            let recovering = beam.clone();
            let recovered = tokio::spawn(async move { recovering.recover().await });
            let mut has_crashed = false;
            for _ in 0..SETUP_TURNS {
                self.world.pass(TICK).await;
                if recovered.is_finished() {
                    break;
                }
                let fault = match self.random.below(100) {
                    0..4 => DiskFault::CrashAfter,
                    4..8 => DiskFault::CrashBefore,
                    _ => DiskFault::None,
                };
                has_crashed = self.world.turn(fault) == Turn::Crashed;
                self.look().await?;
                if has_crashed {
                    break;
                }
            }
            if has_crashed {
                self.count("beam: crashes in a recovery");
                self.note("the machine dies while it recovers");
                recovered.abort();
                self.world.restart();
                continue;
            }
            let recovered = recovered.await.map_err(|error| error.to_string())?;
            let recovered = recovered.map_err(|error| format!("nothing starts: {error}"))?;
            self.note(&format!("start {} recovered {recovered}", self.starts));
            self.server = SimServer::start(beam);
            break;
        }
        for index in 0..self.recipients.len() {
            if self.random.percent(80) {
                self.connect(index);
            }
        }
        self.look().await
    }

    /// No new requests and no faults: every request must be answered.
    async fn rest(&mut self) -> Result<(), BrokenPromise> {
        self.note("rest");
        let began = Instant::now();
        for _ in 0..REST_TURNS {
            self.world.pass(REST_TICK).await;
            match self.world.turn(DiskFault::None) {
                Turn::Idle => self.receive()?,
                Turn::Failed => {
                    return Err("a commit failed although the disk is fine".to_owned());
                }
                Turn::Committed | Turn::Slow | Turn::Crashed => self.look().await?,
            }
        }
        self.world.pass(TICK).await;
        self.judge().await?;
        let waiting = self.requests.iter().find(|request| request.since <= began);
        waiting.map_or(Ok(()), |request| {
            Err(format!("#{} was not answered", request.number))
        })
    }

    /// Leases and timeouts pass meanwhile, and no timer of the process fires.
    fn sleep(&mut self) {
        let us = self.random.one_of(&[1, 3, 11, 61, 130]) * SECOND_US;
        self.note(&format!("the machine sleeps for {} s", us / SECOND_US));
        self.world.sleep(us);
    }

    fn set_wall(&mut self) {
        let by_s = self.random.one_of(&[-3_600, -61, -5, 5, 61, 3_600]);
        self.note(&format!("the wall clock is set by {by_s} s"));
        self.world.set_wall(by_s * SECOND_US);
    }

    fn toggle_connection(&mut self) {
        let index = self.random.index(self.recipients.len());
        if self.recipients[index].client.take().is_none() {
            self.connect(index);
        } else {
            self.note(&format!("recipient {index} disconnects"));
        }
    }

    fn connect(&mut self, index: usize) {
        self.note(&format!("recipient {index} connects"));
        let client = self.server.connect(&self.agents.recipients[index]);
        self.recipients[index].client = Some(client);
    }

    /// Cuts the connection of a waiting client.
    fn cut(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let chosen = self.random.index(self.requests.len());
        let number = self.requests[chosen].number;
        self.requests[chosen].task.abort();
        self.note(&format!("#{number} is cut off"));
    }

    /// Sends one more request.
    fn ask(&mut self) {
        if self.requests.len() >= REQUESTS_AT_ONCE_MAX {
            return;
        }
        let Some(action) = self.choose() else { return };
        self.sent += 1;
        self.answers.sent(&action);
        self.note(&format!("#{} {}", self.sent, told(&action)));
        let (beam, agents) = (&self.server.beam, &self.agents);
        let wall = self.world.clocks.wall();
        let request = BeamRequest::send(self.sent, action, beam, agents, wall);
        self.requests.push(request);
    }

    fn choose(&mut self) -> Option<BeamAction> {
        match self.random.below(100) {
            0..50 => {
                let (nonce, used) = self.nonce(false);
                let by_socket = self.random.percent(40);
                Some(BeamAction::Send {
                    nonce,
                    used,
                    by_socket,
                })
            }
            50..72 => {
                let (nonce, used) = self.nonce(true);
                Some(BeamAction::BusSend { nonce, used })
            }
            72..92 => {
                let id = self.message_in(&[State::Delivered])?;
                let is_failure = self.random.percent(15);
                let response = format!(r#"{{"response":{}}}"#, self.sent);
                Some(BeamAction::Ack {
                    id,
                    is_failure,
                    response,
                })
            }
            _ => {
                let id = self.message_in(&[State::Failed, State::DeadLetter])?;
                Some(BeamAction::BusRequeue(id))
            }
        }
    }

    /// A new nonce, a repeated one, or one that was used for something else.
    fn nonce(&mut self, on_bus: bool) -> (String, NonceUse) {
        let used = NonceUse {
            recipient: self.random.index(self.recipients.len()),
            intent: self.random.one_of(&INTENT_TYPES),
            message: u32::try_from(self.random.below(3)).unwrap_or(0),
        };
        let again = self.random.percent(45);
        let is_other = self.random.percent(12);
        let nonces = if on_bus {
            &mut self.bus_nonces
        } else {
            &mut self.nonces
        };
        if again && !nonces.is_empty() {
            let back = 1 + self.random.index(nonces.len().min(6));
            let (nonce, first) = nonces[nonces.len() - back].clone();
            return (nonce, if is_other { used } else { first });
        }
        let kind = if on_bus { "m" } else { "n" };
        let nonce = format!("{kind}-{}", nonces.len());
        nonces.push((nonce.clone(), used));
        (nonce, used)
    }

    /// Mostly a message in one of these states.
    fn message_in(&mut self, states: &[State]) -> Option<IntentId> {
        let any = self.random.percent(20);
        let rows = self.rows.messages.values();
        let rows = rows.filter(|row| any || states.contains(&row.state));
        let ids: Vec<IntentId> = rows.map(|row| row.id).collect();
        ids.get(self.random.index(ids.len())).copied()
    }

    /// Checks the ledger; then the recipients work.
    async fn look(&mut self) -> Result<(), BrokenPromise> {
        let trouble = |error: consign_store::Error| format!("the store cannot be read: {error}");
        let dump = self.world.store.dump().await.map_err(trouble)?;
        self.rows.look(&dump)?;
        self.answers
            .look(&self.rows, &self.recipients, &self.agents)?;
        self.receive()
    }

    /// The recipients take their messages, and send what is due.
    fn receive(&mut self) -> Result<(), BrokenPromise> {
        for index in 0..self.recipients.len() {
            for nonce in self.recipients[index].take_intents() {
                self.note(&format!("recipient {index} gets {nonce}"));
                self.count("beam: deliveries");
                self.rows.received(&nonce)?;
                if self.is_helpful {
                    self.recipients[index].answer(&nonce);
                } else {
                    self.recipients[index].handle(&nonce, &mut self.random);
                }
                if self.random.percent(10) {
                    self.recipients[1 - index].forge(&nonce);
                }
            }
            self.recipients[index].send_due();
        }
        self.rows.all_received();
        Ok(())
    }

    /// Checks the ledger, then the replies.
    async fn judge(&mut self) -> Result<(), BrokenPromise> {
        self.look().await?;
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.requests)
            .into_iter()
            .partition(|request| request.task.is_finished());
        self.requests = waiting;
        for BeamRequest {
            number,
            action,
            since,
            task,
        } in done
        {
            let reply: Option<BeamReply> = task.await.ok();
            self.note(&format!("#{number} got {}", answer(reply.as_ref())));
            self.count(kind(reply.as_ref()));
            if let Some(reply) = &reply {
                let is_calm = self.world.calm_since <= since;
                let (rows, agents) = (&self.rows, &self.agents);
                self.answers
                    .concluded(&action, reply, is_calm, rows, agents)?;
            }
        }
        Ok(())
    }

    /// All deadlines pass, the recipients answer, and everything must come to its end.
    async fn finish(&mut self) -> Result<(), BrokenPromise> {
        self.is_helpful = true;
        for index in 0..self.recipients.len() {
            self.connect(index);
        }
        for _ in 0..LAST_RESTS {
            self.world.sleep(130 * SECOND_US);
            self.rest().await?;
            if self.rows.unfinished().is_none() {
                return self.answer_late().await;
            }
        }
        let row = self.rows.unfinished();
        Err(format!("an intent or a message never ends: {row:?}"))
    }

    /// The recipients answer what failed without a result, and every such result must be stored.
    async fn answer_late(&mut self) -> Result<(), BrokenPromise> {
        let late = self.rows.unanswered();
        for (nonce, owner) in &late {
            for (agent, recipient) in self.agents.recipients.iter().zip(&mut self.recipients) {
                if agent.beam_id == *owner {
                    recipient.answer(nonce);
                }
            }
        }
        self.rest().await?;
        let lost = late.iter().find(|(nonce, _)| {
            let row = self.rows.intents.get(nonce);
            row.is_none_or(|row| row.state != State::Acked)
        });
        lost.map_or(Ok(()), |(nonce, _)| {
            Err(format!("the late result of {nonce} was not stored"))
        })
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn note(&mut self, text: &str) {
        self.log.line(self.world.now(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_history_of_beam() {
        let digests = [1, 2, 1].map(|seed| run(seed, 100).unwrap().digest);
        assert_eq!(digests[0], digests[2]);
        assert_ne!(digests[0], digests[1]);
    }

    #[test]
    fn a_few_seeds_see_every_kind_of_event_of_beam() {
        let mut counts = EventCounts::new();
        for seed in 1..=10 {
            for (what, count) in run(seed, 100).unwrap().counts {
                *counts.entry(what).or_default() += count;
            }
        }
        assert_eq!(counts.len(), 14, "{counts:?}");
    }
}
