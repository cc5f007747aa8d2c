//! A recipient on a socket: it works on intents at once, slowly, after the timeout, twice, after a restart, or never.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::history::{BeamCall, BeamHistory};
use super::setup::RESULT_TIMEOUT;
use crate::beam_agents::{result_message, result_text};
use crate::campaign::socket::CampaignSocket;
use crate::process::Http;
use crate::seeded_random::SeededRandom;

/// A failure that ends an intent for good.
const FINAL_FAILURE: &str = "OUT_OF_STOCK";
const SLOW: Duration = Duration::from_millis(30);

/// A result that is sent later.
#[derive(Clone, Debug)]
pub(super) struct PlannedResult {
    nonce: String,
    frame: String,
    /// `None`: in the next round.
    due: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct RecipientClient {
    pub(super) beam_id: String,
    pub(super) http: Http,
    pub(super) history: BeamHistory,
    pub(super) random: SeededRandom,
    pub(super) left: Arc<Mutex<Vec<PlannedResult>>>,
    /// Set when the client must end; it also ends with its server.
    pub(super) end: Arc<AtomicBool>,
    /// Answers everything at once.
    pub(super) is_helpful: bool,
}

impl RecipientClient {
    pub(super) fn work(mut self) -> io::Result<()> {
        let mut planned: Vec<PlannedResult> = self.take_left();
        for result in &mut planned {
            result.due = Some(Instant::now());
        }
        while !self.is_over() {
            let authority = self.http.authority().to_owned();
            let path = format!("/ws?beamId={}", self.beam_id);
            let Ok(mut socket) = CampaignSocket::connect(&self.http, &authority, &path) else {
                break;
            };
            self.serve(&mut socket, &mut planned)?;
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(planned);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    fn take_left(&self) -> Vec<PlannedResult> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *left)
    }

    /// Until the socket is closed. Errors are those of the history.
    fn serve(
        &mut self,
        socket: &mut CampaignSocket,
        planned: &mut Vec<PlannedResult>,
    ) -> io::Result<()> {
        while !self.is_over() {
            match socket.look() {
                Ok(Some(text)) => {
                    let message: Value = serde_json::from_str(&text).unwrap_or_default();
                    if message["type"] == "intent" {
                        let nonce = message["frame"]["nonce"].as_str().unwrap_or_default();
                        self.history.begin(BeamCall::Receive, nonce, "")?;
                        self.plan(nonce, planned);
                    }
                }
                Ok(None) => {}
                Err(_) => return Ok(()),
            }
            let now = Instant::now();
            let (due, later) = std::mem::take(planned)
                .into_iter()
                .partition(|result: &PlannedResult| result.due.is_some_and(|due| due <= now));
            *planned = later;
            for result in due {
                self.history
                    .begin(BeamCall::Answer, &result.nonce, &result.frame)?;
                if socket.send(&result_message(&result.frame)).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn plan(&mut self, nonce: &str, planned: &mut Vec<PlannedResult>) {
        let now = Instant::now();
        let fate = self.random.below(100);
        let mut answer = |failure: Option<&str>, due: Option<Instant>| {
            let answer = self.random.token();
            planned.push(PlannedResult {
                nonce: nonce.to_owned(),
                frame: result_text(nonce, &answer, failure),
                due,
            });
        };
        if self.is_helpful {
            return answer(None, Some(now));
        }
        match fate {
            0..60 => answer(None, Some(now)),
            60..74 => answer(None, Some(now + SLOW)),
            74..84 => {
                answer(None, Some(now));
                answer(None, Some(now));
            }
            84..92 => {
                answer(Some(FINAL_FAILURE), Some(now));
                answer(None, Some(now + SLOW));
            }
            92..94 => answer(None, Some(now + RESULT_TIMEOUT + SLOW)),
            94..98 => answer(None, None),
            _ => {}
        }
    }
}
