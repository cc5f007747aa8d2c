//! A ledger that refuses settlements, claims, cancellations and records while a test demands it. Other requests pass.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use consign_kernel::command::{Command, OnRefusal, Reply, Request};
use consign_kernel::record::{self, Kind, Put};
use consign_store::{BoxFuture, Error, Forwarding, SharedStore, TypedReads as _};
use tokio::sync::RwLock;

/// The current obstacles.
#[derive(Debug, Default)]
pub struct Obstacles {
    refusing: AtomicBool,
    refusing_ends: AtomicBool,
    claims: Mutex<Claims>,
    /// Each claim in flight reads it.
    in_flight: RwLock<()>,
    refused_kind: Mutex<Option<Kind>>,
    rivals: AtomicUsize,
    met: AtomicUsize,
}

/// How claims are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claims {
    #[default]
    Pass,
    Refused,
    /// A panic, as by a defect.
    Panic,
}

impl Obstacles {
    /// The same ledger, behind these obstacles.
    #[must_use]
    pub fn before(self: &Arc<Self>, store: &SharedStore) -> SharedStore {
        Arc::new(ObstructedStore {
            store: Arc::clone(store),
            obstacles: Arc::clone(self),
        })
    }

    /// Whether settlements are refused.
    pub fn refuse(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::SeqCst);
    }

    /// Whether cancellations are refused.
    pub fn refuse_ends(&self, refusing: bool) {
        self.refusing_ends.store(refusing, Ordering::SeqCst);
    }

    /// The number of times that a conflicting write changes a record before a settlement that expects it, if the
    /// record exists.
    pub fn send_rivals(&self, count: usize) {
        self.rivals.store(count, Ordering::SeqCst);
    }

    /// The number of settlements and records that met an obstacle.
    pub fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }

    /// Sets how claims are handled, and waits for those that are in flight: one that passed before could otherwise still
    /// claim what a test publishes next.
    pub async fn let_claims(&self, claims: Claims) {
        *self.claims.lock().unwrap_or_else(PoisonError::into_inner) = claims;
        drop(self.in_flight.write().await);
    }

    /// Sets which records cannot be written.
    pub fn refuse_records(&self, kind: Option<Kind>) {
        let refused = self.refused_kind.lock();
        *refused.unwrap_or_else(PoisonError::into_inner) = kind;
    }

    fn refuses_record(&self, request: &Request) -> bool {
        let refused = self.refused_kind.lock();
        let refused = *refused.unwrap_or_else(PoisonError::into_inner);
        let writes =
            |step: &Command| matches!(step, Command::Put(put) if Some(put.key.kind) == refused);
        let refuses = request.steps.iter().any(writes);
        self.met.fetch_add(usize::from(refuses), Ordering::SeqCst);
        refuses
    }

    fn refuses_claim(&self) -> bool {
        let fate = *self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if fate == Claims::Pass {
            return false;
        }
        assert!(fate == Claims::Refused, "planned");
        true
    }

    fn refuses(&self, request: &Request) -> bool {
        let settles = |step: &Command| matches!(step, Command::Settle(_));
        let refuses = self.refusing.load(Ordering::SeqCst) && request.steps.iter().any(settles);
        self.met.fetch_add(usize::from(refuses), Ordering::SeqCst);
        refuses
    }

    fn refuses_end(&self, request: &Request) -> bool {
        let ends =
            |step: &Command| matches!(step, Command::Cancel(_) | Command::CancelUnfinished(_));
        self.refusing_ends.load(Ordering::SeqCst) && request.steps.iter().any(ends)
    }

    /// The record of the next conflicting write, if this request gets one.
    fn contended(&self, request: &Request) -> Option<record::Key> {
        let mut steps = request.steps.iter();
        let settles = steps.any(|step| matches!(step, Command::Settle(_)));
        let expected = |step: &Command| {
            let Command::Expect(key, _) = step else {
                return None;
            };
            Some(key.clone())
        };
        let key = request.steps.iter().find_map(expected);
        let key = key.filter(|_| settles)?;
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        let one_less = |left: usize| left.checked_sub(1);
        self.rivals.fetch_update(set, fetch, one_less).ok()?;
        self.met.fetch_add(1, Ordering::SeqCst);
        Some(key)
    }
}

struct ObstructedStore {
    store: SharedStore,
    obstacles: Arc<Obstacles>,
}

impl ObstructedStore {
    /// Writes the same value again, which creates a new version.
    async fn write_again(&self, key: record::Key, seed: [u8; 32]) -> Result<(), Error> {
        let Some(known) = self.store.record(key).await? else {
            return Ok(());
        };
        let put = Put {
            key: known.key,
            value: known.value,
            expires_at: known.expires_at,
            expect: None,
        };
        let request = Request {
            gate: None,
            steps: vec![Command::Put(put)],
            on_refusal: OnRefusal::Continue,
            seed,
        };
        self.store.execute(request).await.map(drop)
    }
}

impl Forwarding for ObstructedStore {
    fn inner(&self) -> &SharedStore {
        &self.store
    }

    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        let obstacles = &self.obstacles;
        if obstacles.refuses(&request)
            || obstacles.refuses_record(&request)
            || obstacles.refuses_end(&request)
        {
            return Box::pin(async { Err(Error::Busy) });
        }
        Box::pin(async move {
            let claims = |step: &Command| matches!(step, Command::Claim(_));
            let _in_flight = if request.steps.iter().any(claims) {
                let in_flight = obstacles.in_flight.read().await;
                if obstacles.refuses_claim() {
                    return Err(Error::Busy);
                }
                Some(in_flight)
            } else {
                None
            };
            if let Some(key) = obstacles.contended(&request) {
                self.write_again(key, request.seed).await?;
            }
            self.store.execute(request).await
        })
    }
}
