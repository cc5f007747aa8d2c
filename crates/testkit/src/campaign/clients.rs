//! The clients: publishers, workers and an intruder, each with its own connection and history.
//!
//! Invariant: every request is in the history before it is sent. A client continues after an error response. A
//! missing response ends the client if there is one server, and moves it to the next endpoint otherwise.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::endpoints::Endpoints;
use crate::history::{ClientAction, ClientOutcome, History, now_us};
use crate::seeded_random::SeededRandom;

pub const CLIENTS: usize = 8;
/// Histories: the clients of the rounds, and the one that repeats and drains between them.
pub const AUTHORS: usize = CLIENTS + 1;
pub const SECOND_US: i64 = 1_000_000;
pub const NAMESPACE: &str = "crash";
/// The shortest lease, for workers that vanish.
pub const SHORT_LEASE_S: i64 = 10;
pub const LONG_LEASE_S: i64 = 60;
/// How long a slow worker holds its intent, so that a fault is likely to hit it.
const SLOW_WORK: Duration = Duration::from_millis(30);
/// The pause of an intruder without a token.
const IDLE: Duration = Duration::from_millis(5);

/// A current or former claim.
#[derive(Debug, Clone)]
pub struct HeldClaim {
    pub id: String,
    pub token: String,
}

/// State that clients of different rounds share.
#[derive(Debug, Default)]
pub struct SharedClaims {
    /// Held on purpose when the server is killed, to be settled after the restart.
    held: Mutex<Vec<HeldClaim>>,
    /// Tokens that are invalid from the given time on.
    stale: Mutex<Vec<(HeldClaim, i64)>>,
    /// How much later than by the clients' clock a lease may end.
    apart_us: i64,
}

impl SharedClaims {
    pub fn clocks_apart(apart_us: i64) -> Self {
        Self {
            apart_us,
            ..Self::default()
        }
    }

    fn keep(&self, held_claim: HeldClaim) {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(held_claim);
    }

    fn take_held(&self) -> Option<HeldClaim> {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn is_stale_from(&self, held_claim: &HeldClaim, from_us: i64) {
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        stale.push((held_claim.clone(), from_us));
    }

    fn pick_stale(&self, random: &mut SeededRandom) -> Option<HeldClaim> {
        let stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        let (held_claim, from_us) =
            stale.get(usize::try_from(random.below(stale.len() as u64)).ok()?)?;
        (*from_us < now_us()).then(|| held_claim.clone())
    }
}

/// The history file of a client in a round.
pub fn history_file(folder: &Path, client: usize, round: u64) -> PathBuf {
    folder.join(format!("round-{round}-client-{client}.jsonl"))
}

/// Some intents have one attempt, so that there are dead letters.
pub fn is_tried_once(key: &str) -> bool {
    key.ends_with('7')
}

/// The body of a publish with this key; the same for all clients.
pub fn publish_body(key: &str) -> Value {
    let attempts_max = if is_tried_once(key) { 1 } else { 20 };
    json!({
        "goal": key,
        "payload": {"key": key},
        "namespace": NAMESPACE,
        "max_attempts": attempts_max,
        "backoff_base": 1,
    })
}

/// Why a client ended.
#[derive(Debug)]
pub enum ClientStop {
    /// The server is gone, or the client was stopped.
    Over,
    /// The history could not be written.
    History(io::Error),
}

#[derive(Debug)]
pub struct Client {
    pub index: usize,
    round: u64,
    history: History,
    endpoints: Endpoints,
    random: SeededRandom,
    slow: bool,
}

impl Client {
    pub fn new(
        index: usize,
        round: u64,
        folder: &Path,
        endpoints: Endpoints,
        random: &SeededRandom,
    ) -> io::Result<Self> {
        Ok(Self {
            index,
            round,
            history: History::open(&history_file(folder, index, round))?,
            endpoints,
            random: random.branch(index, round),
            slow: false,
        })
    }

    #[must_use]
    pub fn slow(mut self) -> Self {
        self.slow = true;
        self
    }

    /// Works until the server is gone or the client is stopped.
    pub fn work(mut self, shared: &SharedClaims) -> io::Result<()> {
        let mut step = 0;
        let stop = loop {
            if self.endpoints.is_over() {
                break ClientStop::Over;
            }
            step += 1;
            let done = match self.index {
                // The first two race for the same keys.
                0 | 1 => self.publish(&format!("r{}-shared-{step}", self.round)),
                2 => self.publish_and_repeat(step),
                7 => self.intrude(shared),
                _ => self.serve(shared, step),
            };
            if let Err(stop) = done {
                break stop;
            }
        };
        match stop {
            ClientStop::Over => Ok(()),
            ClientStop::History(error) => Err(error),
        }
    }

    pub fn publish(&mut self, key: &str) -> Result<(), ClientStop> {
        self.action(&ClientAction::Publish {
            key: key.to_owned(),
        })
        .map(drop)
    }

    fn publish_and_repeat(&mut self, step: u64) -> Result<(), ClientStop> {
        let key = format!("r{}-solo-{step}", self.round);
        self.publish(&key)?;
        if self.random.percent(25) {
            self.publish(&key)?;
        }
        Ok(())
    }

    /// Claims one intent and handles it in a randomly chosen way.
    fn serve(&mut self, shared: &SharedClaims, step: u64) -> Result<(), ClientStop> {
        if step == 1
            && let Some(held_claim) = shared.take_held()
        {
            return self.fulfil(&held_claim, shared);
        }
        let Some(held_claim) = self.claim("")? else {
            return Ok(());
        };
        if self.slow {
            thread::sleep(SLOW_WORK);
        }
        if self.random.percent(10) {
            let path = self.any_path();
            let forged = HeldClaim {
                id: held_claim.id.clone(),
                token: self.random.token(),
            };
            self.forge(&forged, path)?;
        }
        // In each round one worker vanishes early, so that there is always something to check.
        let fate = if self.index == 3 && step == 2 {
            0
        } else {
            self.random.below(100)
        };
        match fate {
            0..5 => {
                // Without a clear response the lease may be the old one or the new one.
                let lease_s = match self.extend(&held_claim, SHORT_LEASE_S)? {
                    ClientOutcome::Yes { .. } => SHORT_LEASE_S,
                    ClientOutcome::Nothing
                    | ClientOutcome::Refused { .. }
                    | ClientOutcome::Lost => LONG_LEASE_S,
                };
                let over_us = now_us() + (lease_s + 1) * SECOND_US;
                shared.is_stale_from(&held_claim, over_us + shared.apart_us);
            }
            5..12 => shared.keep(held_claim),
            12..27 => self.fail(&held_claim, shared)?,
            27..40 => {
                self.extend(&held_claim, LONG_LEASE_S)?;
                self.fulfil(&held_claim, shared)?;
            }
            _ => self.fulfil(&held_claim, shared)?,
        }
        Ok(())
    }

    /// Tries former tokens on their intents.
    fn intrude(&mut self, shared: &SharedClaims) -> Result<(), ClientStop> {
        if let Some(held_claim) = shared.pick_stale(&mut self.random) {
            let path = self.any_path();
            return self.forge(&held_claim, path);
        }
        thread::sleep(IDLE);
        // No token is stale yet. This also detects that the server is gone.
        self.claim_elsewhere()
    }

    /// Claims an intent with this goal, or any.
    pub fn claim(&mut self, goal: &str) -> Result<Option<HeldClaim>, ClientStop> {
        let goal = goal.to_owned();
        Ok(match self.action(&ClientAction::Claim { goal })? {
            ClientOutcome::Yes { id, token } => Some(HeldClaim { id, token }),
            ClientOutcome::Nothing | ClientOutcome::Refused { .. } | ClientOutcome::Lost => None,
        })
    }

    fn claim_elsewhere(&mut self) -> Result<(), ClientStop> {
        let path = "/claim?namespace=empty";
        let answer = self.endpoints.http().send("POST", path, &[], None);
        match answer {
            Ok(_) => Ok(()),
            Err(_) => self.endpoints.after(&ClientOutcome::Lost),
        }
    }

    fn extend(
        &mut self,
        held_claim: &HeldClaim,
        lease_s: i64,
    ) -> Result<ClientOutcome, ClientStop> {
        self.action(&ClientAction::Extend {
            id: held_claim.id.clone(),
            token: held_claim.token.clone(),
            lease_s,
        })
    }

    pub fn fulfil(
        &mut self,
        held_claim: &HeldClaim,
        shared: &SharedClaims,
    ) -> Result<(), ClientStop> {
        let result = format!("{}-{}", self.index, self.random.token());
        let outcome = self.action(&ClientAction::Fulfil {
            id: held_claim.id.clone(),
            token: held_claim.token.clone(),
            result,
        })?;
        self.settled(held_claim, &outcome, shared)
    }

    fn fail(&mut self, held_claim: &HeldClaim, shared: &SharedClaims) -> Result<(), ClientStop> {
        let outcome = self.action(&ClientAction::Fail {
            id: held_claim.id.clone(),
            token: held_claim.token.clone(),
        })?;
        self.settled(held_claim, &outcome, shared)
    }

    /// A token is invalid once its claim is settled; some clients use it again at once.
    fn settled(
        &mut self,
        held_claim: &HeldClaim,
        outcome: &ClientOutcome,
        shared: &SharedClaims,
    ) -> Result<(), ClientStop> {
        if !matches!(outcome, ClientOutcome::Yes { .. }) {
            return Ok(());
        }
        shared.is_stale_from(held_claim, now_us());
        if self.random.percent(20) {
            let path = self.any_path();
            self.forge(held_claim, path)?;
        }
        Ok(())
    }

    fn forge(&mut self, held_claim: &HeldClaim, path: &str) -> Result<(), ClientStop> {
        self.action(&ClientAction::Forge {
            id: held_claim.id.clone(),
            path: path.to_owned(),
            token: held_claim.token.clone(),
        })
        .map(drop)
    }

    fn any_path(&mut self) -> &'static str {
        ["extend_claim", "fulfill", "fail"][usize::try_from(self.random.below(3)).unwrap_or(0)]
    }

    /// Writes the intention, sends the request, writes the outcome, in this order.
    fn action(&mut self, action: &ClientAction) -> Result<ClientOutcome, ClientStop> {
        self.history
            .intend(self.round, action)
            .map_err(ClientStop::History)?;
        let outcome = self.send(action);
        self.history
            .conclude(&outcome)
            .map_err(ClientStop::History)?;
        self.endpoints.after(&outcome)?;
        Ok(outcome)
    }

    fn send(&mut self, action: &ClientAction) -> ClientOutcome {
        let (path, headers, body) = match action {
            ClientAction::Publish { key } => {
                let headers = vec![("Idempotency-Key", key.as_str())];
                ("/intent".to_owned(), headers, Some(publish_body(key)))
            }
            ClientAction::Claim { goal } if goal.is_empty() => {
                let path = format!("/claim?namespace={NAMESPACE}&wait=1");
                (path, Vec::new(), None)
            }
            ClientAction::Claim { goal } => {
                let path = format!("/claim?namespace={NAMESPACE}&goal={goal}");
                (path, Vec::new(), None)
            }
            ClientAction::Extend { id, token, lease_s } => {
                let body = json!({"claim_token": token, "seconds": lease_s});
                (format!("/extend_claim/{id}"), Vec::new(), Some(body))
            }
            ClientAction::Fulfil { id, token, result } => {
                let body = json!({"claim_token": token, "result": {"by": result}});
                (format!("/fulfill/{id}"), Vec::new(), Some(body))
            }
            ClientAction::Fail { id, token } => {
                let body = json!({"claim_token": token, "error": "did not work"});
                (format!("/fail/{id}"), Vec::new(), Some(body))
            }
            ClientAction::Forge { id, path, token } => {
                let body = json!({"claim_token": token, "seconds": 60, "error": "forged"});
                (format!("/{path}/{id}"), Vec::new(), Some(body))
            }
        };
        let http = self.endpoints.http();
        let Ok(reply) = http.send("POST", &path, &headers, body.as_ref()) else {
            return ClientOutcome::Lost;
        };
        let json = reply.json();
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        match reply.status {
            204 => ClientOutcome::Nothing,
            200..=299 => ClientOutcome::Yes {
                id: text("id"),
                token: text("claim_token"),
            },
            status => ClientOutcome::Refused { status },
        }
    }
}
