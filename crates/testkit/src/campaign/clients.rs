//! The clients: publishers, workers and an intruder, each with its own connection and history.
//!
//! Invariant: nothing is sent that is not in the history first. Trouble a client lives through; an answer that does not
//! come ends it if there is one server, and sends it to the next among nodes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::endpoints::Endpoints;
use crate::history::{Act, Heard, History, now_us};
use crate::seeded_random::SeededRandom;

pub const CLIENTS: usize = 8;
/// Histories: the clients of the rounds, and the one who repeats and drains between them.
pub const AUTHORS: usize = CLIENTS + 1;
pub const SECOND_US: i64 = 1_000_000;
pub const NAMESPACE: &str = "crash";
/// The shortest lease there is, for workers that vanish.
pub const SHORT_LEASE_S: i64 = 10;
pub const LONG_LEASE_S: i64 = 60;
/// How long a slow worker thinks about its job, so that it is likely to be caught holding one.
const SLOW_WORK: Duration = Duration::from_millis(30);
/// An intruder without a token looks again after this.
const IDLE: Duration = Duration::from_millis(5);

/// A claim that somebody holds or held.
#[derive(Debug, Clone)]
pub struct Hold {
    pub id: String,
    pub token: String,
}

/// What clients of different rounds hand to each other.
#[derive(Debug, Default)]
pub struct Shared {
    /// Held on purpose when the server dies, to be settled after the restart.
    held: Mutex<Vec<Hold>>,
    /// Tokens that are worthless from the given time on.
    stale: Mutex<Vec<(Hold, i64)>>,
    /// How much later than by the clock of clients a lease may end.
    apart_us: i64,
}

impl Shared {
    pub fn clocks_apart(apart_us: i64) -> Self {
        Self {
            apart_us,
            ..Self::default()
        }
    }

    fn keep(&self, hold: Hold) {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(hold);
    }

    fn take_held(&self) -> Option<Hold> {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn is_stale_from(&self, hold: &Hold, from_us: i64) {
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        stale.push((hold.clone(), from_us));
    }

    fn pick_stale(&self, random: &mut SeededRandom) -> Option<Hold> {
        let stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        let (hold, from_us) = stale.get(usize::try_from(random.below(stale.len() as u64)).ok()?)?;
        (*from_us < now_us()).then(|| hold.clone())
    }
}

/// Where the history of a client in a round lies.
pub fn history_file(folder: &Path, client: usize, round: u64) -> PathBuf {
    folder.join(format!("round-{round}-client-{client}.jsonl"))
}

/// Some intents die at their first failure, so that there are dead letters to remember.
pub fn is_tried_once(key: &str) -> bool {
    key.ends_with('7')
}

/// What a publish with this key says; the same for everybody who uses the key.
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

/// The end of a client's work.
#[derive(Debug)]
pub enum Stop {
    /// The server is gone, or it was told to end.
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

    /// Works until the server is gone or it is told to end.
    pub fn work(mut self, shared: &Shared) -> io::Result<()> {
        let mut step = 0;
        let stop = loop {
            if self.endpoints.is_over() {
                break Stop::Over;
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
            Stop::Over => Ok(()),
            Stop::History(error) => Err(error),
        }
    }

    pub fn publish(&mut self, key: &str) -> Result<(), Stop> {
        self.act(&Act::Publish {
            key: key.to_owned(),
        })
        .map(drop)
    }

    fn publish_and_repeat(&mut self, step: u64) -> Result<(), Stop> {
        let key = format!("r{}-solo-{step}", self.round);
        self.publish(&key)?;
        if self.random.percent(25) {
            self.publish(&key)?;
        }
        Ok(())
    }

    /// Claims one intent and does with it what random says.
    fn serve(&mut self, shared: &Shared, step: u64) -> Result<(), Stop> {
        if step == 1
            && let Some(hold) = shared.take_held()
        {
            return self.fulfil(&hold, shared);
        }
        let Some(hold) = self.claim("")? else {
            return Ok(());
        };
        if self.slow {
            thread::sleep(SLOW_WORK);
        }
        if self.random.percent(10) {
            let path = self.any_path();
            let forged = Hold {
                id: hold.id.clone(),
                token: self.random.token(),
            };
            self.forge(&forged, path)?;
        }
        // In each round somebody vanishes at once, so that there is always something to prove.
        let fate = if self.index == 3 && step == 2 {
            0
        } else {
            self.random.below(100)
        };
        match fate {
            0..5 => {
                // Without a clear answer the lease may be the old one or the new one.
                let lease_s = match self.extend(&hold, SHORT_LEASE_S)? {
                    Heard::Yes { .. } => SHORT_LEASE_S,
                    Heard::Nothing | Heard::Refused { .. } | Heard::Lost => LONG_LEASE_S,
                };
                let over_us = now_us() + (lease_s + 1) * SECOND_US;
                shared.is_stale_from(&hold, over_us + shared.apart_us);
            }
            5..12 => shared.keep(hold),
            12..27 => self.fail(&hold, shared)?,
            27..40 => {
                self.extend(&hold, LONG_LEASE_S)?;
                self.fulfil(&hold, shared)?;
            }
            _ => self.fulfil(&hold, shared)?,
        }
        Ok(())
    }

    /// Tries tokens that were good once, on whatever became of their intents.
    fn intrude(&mut self, shared: &Shared) -> Result<(), Stop> {
        if let Some(hold) = shared.pick_stale(&mut self.random) {
            let path = self.any_path();
            return self.forge(&hold, path);
        }
        thread::sleep(IDLE);
        // Nothing is stale yet. Also notices that the server is gone.
        self.claim_elsewhere()
    }

    /// Claims what has this goal, or anything.
    pub fn claim(&mut self, goal: &str) -> Result<Option<Hold>, Stop> {
        let goal = goal.to_owned();
        Ok(match self.act(&Act::Claim { goal })? {
            Heard::Yes { id, token } => Some(Hold { id, token }),
            Heard::Nothing | Heard::Refused { .. } | Heard::Lost => None,
        })
    }

    fn claim_elsewhere(&mut self) -> Result<(), Stop> {
        let path = "/claim?namespace=empty";
        let answer = self.endpoints.http().send("POST", path, &[], None);
        match answer {
            Ok(_) => Ok(()),
            Err(_) => self.endpoints.after(&Heard::Lost),
        }
    }

    fn extend(&mut self, hold: &Hold, lease_s: i64) -> Result<Heard, Stop> {
        self.act(&Act::Extend {
            id: hold.id.clone(),
            token: hold.token.clone(),
            lease_s,
        })
    }

    pub fn fulfil(&mut self, hold: &Hold, shared: &Shared) -> Result<(), Stop> {
        let result = format!("{}-{}", self.index, self.random.token());
        let heard = self.act(&Act::Fulfil {
            id: hold.id.clone(),
            token: hold.token.clone(),
            result,
        })?;
        self.settled(hold, &heard, shared)
    }

    fn fail(&mut self, hold: &Hold, shared: &Shared) -> Result<(), Stop> {
        let heard = self.act(&Act::Fail {
            id: hold.id.clone(),
            token: hold.token.clone(),
        })?;
        self.settled(hold, &heard, shared)
    }

    /// A token is worthless once its claim is settled; some try it again at once.
    fn settled(&mut self, hold: &Hold, heard: &Heard, shared: &Shared) -> Result<(), Stop> {
        if !matches!(heard, Heard::Yes { .. }) {
            return Ok(());
        }
        shared.is_stale_from(hold, now_us());
        if self.random.percent(20) {
            let path = self.any_path();
            self.forge(hold, path)?;
        }
        Ok(())
    }

    fn forge(&mut self, hold: &Hold, path: &str) -> Result<(), Stop> {
        self.act(&Act::Forge {
            id: hold.id.clone(),
            path: path.to_owned(),
            token: hold.token.clone(),
        })
        .map(drop)
    }

    fn any_path(&mut self) -> &'static str {
        ["extend_claim", "fulfill", "fail"][usize::try_from(self.random.below(3)).unwrap_or(0)]
    }

    /// Intention, request, answer; each on disk before the next.
    fn act(&mut self, act: &Act) -> Result<Heard, Stop> {
        self.history
            .intend(self.round, act)
            .map_err(Stop::History)?;
        let heard = self.send(act);
        self.history.conclude(&heard).map_err(Stop::History)?;
        self.endpoints.after(&heard)?;
        Ok(heard)
    }

    fn send(&mut self, act: &Act) -> Heard {
        let (path, headers, body) = match act {
            Act::Publish { key } => {
                let headers = vec![("Idempotency-Key", key.as_str())];
                ("/intent".to_owned(), headers, Some(publish_body(key)))
            }
            Act::Claim { goal } if goal.is_empty() => {
                let path = format!("/claim?namespace={NAMESPACE}&wait=1");
                (path, Vec::new(), None)
            }
            Act::Claim { goal } => {
                let path = format!("/claim?namespace={NAMESPACE}&goal={goal}");
                (path, Vec::new(), None)
            }
            Act::Extend { id, token, lease_s } => {
                let body = json!({"claim_token": token, "seconds": lease_s});
                (format!("/extend_claim/{id}"), Vec::new(), Some(body))
            }
            Act::Fulfil { id, token, result } => {
                let body = json!({"claim_token": token, "result": {"by": result}});
                (format!("/fulfill/{id}"), Vec::new(), Some(body))
            }
            Act::Fail { id, token } => {
                let body = json!({"claim_token": token, "error": "did not work"});
                (format!("/fail/{id}"), Vec::new(), Some(body))
            }
            Act::Forge { id, path, token } => {
                let body = json!({"claim_token": token, "seconds": 60, "error": "forged"});
                (format!("/{path}/{id}"), Vec::new(), Some(body))
            }
        };
        let http = self.endpoints.http();
        let Ok(reply) = http.send("POST", &path, &headers, body.as_ref()) else {
            return Heard::Lost;
        };
        let json = reply.json();
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        match reply.status {
            204 => Heard::Nothing,
            200..=299 => Heard::Yes {
                id: text("id"),
                token: text("claim_token"),
            },
            status => Heard::Refused { status },
        }
    }
}
