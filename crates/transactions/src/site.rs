//! The site: accepts requests of agents, stores permissions and transactions in the ledger, and executes them on the payment
//! rail.
//!
//! `records` defines how permissions and transactions are stored. Each operation of the protocol has a file. `drive` takes one
//! transaction to its final state, and `sweep` finds transactions without a lease. All state is in the ledger; `recent` is a
//! cache whose content is verified by version at commit. Operations return values (`answer`, `views`, `compat::views`); their
//! form on the wire is in [`crate::http`].
//! Invariant: the rail is called only after a commit that proves the lease, and a request is answered only after the commit
//! that its answer reports.

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
mod open_figures;
mod reads;
mod recent;
mod records;
mod resolve;
mod stored_answer;
mod sweep;
mod views;

use std::collections::BTreeSet;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use consign_engine::{Committed, Engine, Error, LedgerHealth, StoreError, UnitOfWork};
use consign_kernel::command::{Hold, Recover};
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

pub use answer::{CancelledIntent, ConsentAnswer, CreatedIntent, TransactionAnswer};
pub use keys::SiteKeyError;
pub use open_figures::OpenTransactions;
pub use sweep::SweepCounts;
pub use views::{
    CompensationView, IntentView, IntentViewPage, RailView, ReceiptList, ReceiptView,
    TransactionEntry, TransactionPage, TransactionView, Transition, TransitionPage, VerdictView,
};

/// The owner of all rows of this face: the site itself. The permission names the agent that signed it.
pub const OWNER: &str = "atp";

/// The origin of a request.
#[derive(Clone, Copy, Debug)]
enum SiteCaller<'a> {
    /// An agent, identified by its signature or by the ids that it knows.
    Agent,
    /// A user of the compatibility profile. The face has verified the token.
    User(&'a str),
    /// The operator of the site; read access only.
    Operator,
}

/// The agent keys that the site accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentKeys {
    /// Any key that an intent names; for development and tests.
    Open,
    /// Only keys with these ids.
    Registered(BTreeSet<String>),
}

#[derive(Clone, Debug)]
pub struct Options {
    /// The origin that an intent must name.
    pub site: String,
    pub agent_keys: AgentKeys,
    pub rail: Arc<dyn Rail>,
    /// Identifies this process, and this start of it, among all nodes of the ledger.
    pub node: String,
    pub start: String,
    /// How long a driver holds a transaction without extending its lease. It must be longer than a few rail calls.
    pub lease: Duration,
    /// Delay before a transaction that could not be finished is checked again.
    pub sweep: Duration,
    /// How long an execute request waits for the final state.
    pub execute_wait: Duration,
    /// How long a rail may take before a payment becomes visible.
    pub settle_delay: Duration,
    /// Within this window, two actions with the same deduplication key are the same action; zero disables the check.
    pub dedup_window_s: u32,
    pub freshness_s: u32,
    /// Whether execute, compensate and cancel requests must be signed.
    pub signed_requests: bool,
    /// Limits on stored intents without consent: per agent key or user, and in total.
    pub open_per_key: u64,
    pub open_max: u64,
    /// Limit on concurrent requests that wait for a transaction driven elsewhere. Further requests get the current state at
    /// once.
    pub waiting_max: usize,
    /// Limit on transactions that requests drive concurrently. Further requests are refused with a retry delay.
    pub drivers_max: usize,
}

impl Options {
    /// Options with the protocol's defaults.
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
    /// Slots for transactions that requests drive concurrently. They bound the open connections to a rail that hangs.
    driver_slots: Arc<Semaphore>,
    recent: RecentPermissions,
    /// Slots for requests that wait for a transaction driven elsewhere.
    waiting: Semaphore,
}

/// The keys as of the last read.
#[derive(Debug)]
struct LoadedKeys {
    signer: SiteSigner,
    ring: Keyring,
}

const DRIVERS_MAX: usize = 1_024;
const WAITING_MAX: usize = 1_024;
/// The first limit allows an agent many concurrent intents; the second bounds the disk space for intents of maximal size.
pub const OPEN_PER_KEY: u64 = 1_000;
pub const OPEN_MAX: u64 = 100_000;

impl Site {
    /// Opens the site's keys; creates the first key if none exists.
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

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The time of day. Signed times are compared with it; leases and delays use engine time.
    pub fn now(&self) -> Micros {
        self.engine().time_of_day()
    }

    /// The ledger's own time, which never goes back: for leases, delays and expiring records.
    fn engine_now(&self) -> Micros {
        self.engine().now()
    }

    /// The current health of the ledger; if it is not healthy, nothing can be stored.
    pub async fn ledger_health(&self) -> LedgerHealth {
        self.engine().ledger_health().await
    }

    /// Whether callbacks of this rail belong to this site.
    pub fn has_rail(&self, name: &str) -> bool {
        name == self.rail().name()
    }

    fn rail(&self) -> &dyn Rail {
        &*self.inner.options.rail
    }

    fn recent(&self) -> &RecentPermissions {
        &self.inner.recent
    }

    /// The rail that executes this transaction.
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

    /// A driver slot; it is acquired before a transaction is begun.
    fn driver_slot(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = Arc::clone(&self.inner.driver_slots).try_acquire_owned();
        place.map_err(|_| Problem::RateLimited { retry_after_s: 1 })
    }

    /// A waiting slot; without one, a request does not wait.
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

    fn lease_us(&self) -> i64 {
        micros(self.options().lease)
    }

    /// Reads the envelope of a request, which must name this operation and this site.
    fn envelope(
        &self,
        body: &AtpDocument,
        operation: RequestOperation,
    ) -> Result<RequestEnvelope, Problem> {
        RequestEnvelope::read(body, operation, self.origin())
    }

    /// Agents sign with their wall clock, so this check uses the wall clock too.
    fn check_fresh(&self, envelope: RequestEnvelope) -> Result<(), Problem> {
        envelope.check_fresh(self.engine().wall(), self.options().freshness_s)
    }

    /// The fingerprint of a repeated request excludes its signature if it may be signed again, so the signature is verified
    /// separately.
    fn check_repeated(&self, intent: &SignedIntent, body: &AtpDocument) -> Result<(), Problem> {
        if body.names_its_operation() {
            intent.check_request(body, self.options().signed_requests)?;
        }
        Ok(())
    }

    /// An id for a new row.
    fn fresh_id(&self) -> IntentId {
        let mut entropy = self.engine().entropy();
        // The sequence number of the row is not known yet; a random number replaces it.
        let chance = entropy.draw();
        IntentId::new(self.engine_now(), Seq((chance >> 64) as u64), chance)
    }

    /// Commits a unit of work. Returns `None` if another commit changed a record or row in between: load and try again.
    async fn commit(&self, unit: UnitOfWork) -> Result<Option<Committed>, Problem> {
        match self.engine().commit(unit).await {
            Ok(committed) => Ok(Some(committed)),
            Err(Error::Refused(
                Refusal::VersionMismatch
                | Refusal::IllegalState
                | Refusal::LeaseLost
                | Refusal::Held
                | Refusal::Changed
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

/// The request may be repeated: nothing was stored, unless a commit was interrupted.
fn unavailable(error: &Error) -> Problem {
    tracing::warn!(%error, "a transaction request could not be stored");
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
            assert_eq!(problem, Problem::StoreUnsure);
            let said = problem.to_string();
            assert!(said.contains("may have happened"), "{said}");
            assert!(said.contains("same key"), "{said}");
        }
        let problem = unavailable(&Error::Store(StoreError::Busy));
        assert_eq!(problem, Problem::StoreUnavailable);
    }
}
