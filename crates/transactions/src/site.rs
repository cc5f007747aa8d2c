//! A site: takes agents' requests, keeps what they allowed and what was done of it in the ledger, and has the rail do it.
//!
//! `records` says how a permission and a transaction lie in records; each operation of the protocol has a file; `carry` brings
//! one transaction to its end, whoever began it, and `sweep` finds those that nobody holds. Nothing that matters is kept in
//! memory; what `recent` remembers saves a look, and is never believed.
//! Invariant: the rail is called only after the commit that shows who may call it, and nobody is answered before the commit
//! that makes the answer true.

mod answer;
mod authorize;
mod by_path;
mod cancel;
pub mod compat;
mod compensate;
mod create;
mod drive;
mod execute;
mod expiry;
mod keys;
mod lists;
mod reads;
mod recent;
mod records;
mod resolve;
mod sweep;

use std::collections::BTreeSet;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use consign_engine::{Engine, Error, LedgerHealth, StoreError};
use consign_kernel::command::{Command, Hold, Recover};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Micros, Seq};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::document::{AtpDocument, SiteSigner};
use crate::envelope::{RequestEnvelope, RequestOperation};
use crate::intent::SignedIntent;
use crate::keyring::Keyring;
use crate::problem::Problem;
use crate::rail::{ManualRail, Rail};

use recent::RecentPermissions;

pub use answer::SiteAnswer;
pub use keys::SiteKeyError;
pub use sweep::SweepCounts;

/// To whom all rows of this face belong: the site. Who signed is told by the permission.
pub const OWNER: &str = "atp";

/// Who asks for something.
#[derive(Clone, Copy, Debug)]
enum SiteCaller<'a> {
    /// An agent, by what it signed or knows.
    Agent,
    /// A user of the compatibility profile, whose token the face has checked.
    User(&'a str),
    /// Whoever runs the site, and only looks.
    Operator,
}

/// Whose signatures count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentKeys {
    /// Any key that an intent names: for development and tests.
    Open,
    /// Those with these ids.
    Registered(BTreeSet<String>),
}

#[derive(Clone, Debug)]
pub struct Options {
    /// The origin that intents must be for.
    pub site: String,
    pub agent_keys: AgentKeys,
    pub rail: Arc<dyn Rail>,
    /// Names this process among those on one ledger, and this start of it.
    pub node: String,
    pub start: String,
    /// How long whoever carries a transaction holds it without showing that it is alive. A few calls of the rail fit in.
    pub lease: Duration,
    /// How long a transaction that nobody could bring to its end waits before it is looked at again.
    pub sweep: Duration,
    /// How long a request waits for the end of its transaction.
    pub execute_wait: Duration,
    /// How long a rail may take to make a payment visible.
    pub settle_delay: Duration,
    /// Within which an action with the same key counts as the same; zero for never.
    pub dedup_window_s: u32,
    pub freshness_s: u32,
    /// Whether execute, compensate and cancel must be signed.
    pub signed_requests: bool,
    /// How many intents that nobody consented to may be kept: for one agent key or user, and for all together.
    pub open_per_key: u64,
    pub open_max: u64,
    /// How many requests at once wait for what another one began. Beyond them the answer is how far it is.
    pub waiting_max: usize,
    /// How many transactions are carried by requests at once. Beyond them an agent is asked to come back.
    pub drivers_max: usize,
}

impl Options {
    /// With the protocol's own defaults.
    pub fn new(site: impl Into<String>, rail: Arc<dyn Rail>) -> Self {
        Self {
            site: site.into(),
            agent_keys: AgentKeys::Open,
            rail,
            node: "node".to_owned(),
            start: "1".to_owned(),
            lease: Duration::from_mins(1),
            sweep: Duration::from_mins(1),
            execute_wait: Duration::from_secs(10),
            settle_delay: Duration::from_secs(30),
            dedup_window_s: 0,
            freshness_s: crate::intent::FRESHNESS_S,
            signed_requests: false,
            open_per_key: OPEN_PER_KEY,
            open_max: OPEN_MAX,
            waiting_max: WAITING_MAX,
            drivers_max: DRIVERS_MAX,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Site {
    inner: Arc<SiteInner>,
}

#[derive(Debug)]
struct SiteInner {
    engine: Engine,
    options: Options,
    keys: RwLock<Arc<LoadedKeys>>,
    /// Of transactions that requests carry at once: a rail that hangs must not gather connections without end.
    driver_slots: Arc<Semaphore>,
    recent: RecentPermissions,
    /// Of requests that wait for what another one carries.
    waiting: Semaphore,
}

/// The keys as they were when they were read last.
#[derive(Debug)]
struct LoadedKeys {
    signer: SiteSigner,
    ring: Keyring,
}

const DRIVERS_MAX: usize = 1_024;
const WAITING_MAX: usize = 1_024;
/// What an agent has under way at once, and no more than a disk holds of the longest intents.
pub const OPEN_PER_KEY: u64 = 1_000;
pub const OPEN_MAX: u64 = 100_000;

impl Site {
    /// Opens the site's keys, making the first one if there is none.
    pub async fn open(engine: Engine, options: Options) -> Result<Self, SiteKeyError> {
        let keys = keys::open(&engine, &options.site).await?;
        Ok(Self {
            inner: Arc::new(SiteInner {
                engine,
                waiting: Semaphore::new(options.waiting_max),
                driver_slots: Arc::new(Semaphore::new(options.drivers_max)),
                options,
                keys: RwLock::new(Arc::new(keys)),
                recent: RecentPermissions::default(),
            }),
        })
    }

    pub fn origin(&self) -> &str {
        &self.inner.options.site
    }

    fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The time of day. Whatever somebody signed a time for goes by it; leases and pauses go by engine time.
    pub fn now(&self) -> Micros {
        self.engine().time_of_day()
    }

    /// The ledger's own time, which never goes back: for leases, pauses, and records that the ledger forgets.
    fn engine_now(&self) -> Micros {
        self.engine().now()
    }

    /// What the ledger is fit for at the moment; unless it is well, nothing can be kept.
    pub async fn ledger_health(&self) -> LedgerHealth {
        self.engine().ledger_health().await
    }

    /// Whether callbacks of this rail are for this site.
    pub fn has_rail(&self, name: &str) -> bool {
        name == self.rail().name()
    }

    fn rail(&self) -> &dyn Rail {
        &*self.inner.options.rail
    }

    fn recent(&self) -> &RecentPermissions {
        &self.inner.recent
    }

    /// What takes the effect of this transaction.
    fn rail_of(&self, transaction: &records::TransactionRecord) -> Arc<dyn Rail> {
        match &transaction.manual {
            None => Arc::clone(&self.inner.options.rail),
            Some(manual) => Arc::new(ManualRail::new(manual.reported, manual.error.clone())),
        }
    }

    fn keys(&self) -> Arc<LoadedKeys> {
        let keys = self.inner.keys.read();
        Arc::clone(&keys.unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// A place among those that are carried, to be had before anything is begun.
    fn driver_slot(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = Arc::clone(&self.inner.driver_slots).try_acquire_owned();
        place.map_err(|_| Problem::RateLimited { retry_after_s: 1 })
    }

    /// A place among those that wait for others; whoever finds none does not wait.
    fn waiting_slot(&self) -> Option<SemaphorePermit<'_>> {
        self.inner.waiting.try_acquire().ok()
    }

    fn hold(&self) -> Hold {
        let Options {
            node, start, lease, ..
        } = self.options();
        Hold {
            holder: Recover::holder(node, start),
            lease_us: micros(*lease),
        }
    }

    /// What a request says it is for, which must be this operation at this site.
    fn envelope(
        &self,
        body: &AtpDocument,
        operation: RequestOperation,
    ) -> Result<RequestEnvelope, Problem> {
        RequestEnvelope::read(body, operation, self.origin())
    }

    /// Agents go by their wall clocks, and so does this.
    fn check_fresh(&self, envelope: RequestEnvelope) -> Result<(), Problem> {
        envelope.check_fresh(self.engine().wall(), self.options().freshness_s)
    }

    /// A repetition is recognised without its signature where it may be signed anew, so that is looked at by itself.
    fn check_repeated(&self, intent: &SignedIntent, body: &AtpDocument) -> Result<(), Problem> {
        if body.names_its_operation() {
            intent.check_request(body, self.options().signed_requests)?;
        }
        Ok(())
    }

    /// A name for a new row.
    fn fresh_id(&self) -> IntentId {
        let mut entropy = self.engine().entropy();
        // The ledger's own order is not known yet; chance takes its place.
        let chance = entropy.draw();
        IntentId::new(self.engine_now(), Seq((chance >> 64) as u64), chance)
    }

    /// Commits steps of which those that may be refused come first. `None` if somebody else was quicker: look again.
    async fn commit(
        &self,
        steps: Vec<Command>,
    ) -> Result<Option<Vec<consign_kernel::command::Answer>>, Problem> {
        match self.engine().together(steps).await {
            Ok(answers) => Ok(Some(answers)),
            Err(Error::Refused(
                Refusal::VersionMismatch
                | Refusal::IllegalState
                | Refusal::LeaseLost
                | Refusal::Held
                | Refusal::NotFound,
            )) => Ok(None),
            Err(Error::Refused(Refusal::CapReached { limit, .. })) => {
                let of_one = limit == self.options().open_per_key;
                Err(Problem::TooManyOpen { of_one, limit })
            }
            Err(error) => Err(unavailable(&error)),
        }
    }
}

/// How often a request looks again because others change the same thing at the same time.
const TRIES_MAX: u32 = 64;

/// The same request may be sent again: nothing happened, unless a commit was cut off.
fn unavailable(error: &Error) -> Problem {
    tracing::warn!(%error, "a transaction's request could not be kept");
    match error {
        Error::Store(StoreError::Unsure(_) | StoreError::Lost) => Problem::StoreUnsure,
        Error::Store(_) => Problem::StoreUnavailable,
        Error::Refused(_) | Error::Seal(_) | Error::NotSettled | Error::Internal(_) => {
            Problem::InternalError
        }
    }
}

fn damaged(what: &str) -> Problem {
    tracing::error!(what, "a stored transaction cannot be read");
    Problem::InternalError
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_was_cut_off_is_not_said_to_be_nothing() {
        for cut_off in [StoreError::Unsure("reset".to_owned()), StoreError::Lost] {
            let problem = unavailable(&Error::Store(cut_off));
            let said = problem.to_string();
            assert!(said.contains("may have happened"), "{said}");
            assert!(said.contains("same key"), "{said}");
            assert_eq!((problem.status(), problem.retry_after_s()), (503, Some(1)));
        }
        let problem = unavailable(&Error::Store(StoreError::Busy));
        assert_eq!(problem, Problem::StoreUnavailable);
    }
}
