//! One load client: each workload as the requests it consists of.
//!
//! Invariant: a cycle counts only if all its requests succeeded. After an error the client pauses briefly,
//! so that a failing server is not flooded and the number of errors stays readable.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Error;
use crate::connection::BenchConnection;
use crate::pace::StartPace;
use crate::plan::{BenchPlan, TransactionOrder, Workload};
use crate::request::{ClaimOptions, RequestWriter, hold};
use crate::response::{is_settled, leases, number_member, refused_items};
use crate::tally::{Op, RunTally};

pub(crate) const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);
const SENT: &[u8] = b"\"sent_ns\":";

/// The role of a client in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientRole {
    Cycle,
    Publish,
    Work,
    Drain,
    Next,
    Batch,
    Empty,
    HandoffPublish,
    HandoffWork,
    Transact,
}

/// The clients of a plan. Handoff has one publisher besides the requested workers.
pub(crate) fn roles(plan: &BenchPlan) -> Vec<ClientRole> {
    let all = |role| vec![role; plan.clients];
    match plan.work {
        Workload::Cycle => all(ClientRole::Cycle),
        Workload::Publish => all(ClientRole::Publish),
        Workload::Drain => all(ClientRole::Drain),
        Workload::Next => all(ClientRole::Next),
        Workload::Batch => all(ClientRole::Batch),
        Workload::Empty => all(ClientRole::Empty),
        Workload::Transact => all(ClientRole::Transact),
        // They have clients of their own.
        Workload::Relay | Workload::RelaySocket | Workload::Mesh | Workload::IdleSockets => {
            Vec::new()
        }
        // The server restarts between requests, so no client stays connected.
        Workload::Restart => Vec::new(),
        Workload::Pairs => {
            let role = |index| {
                if index % 2 == 0 {
                    ClientRole::Publish
                } else {
                    ClientRole::Work
                }
            };
            (0..plan.clients).map(role).collect()
        }
        Workload::Handoff => {
            let mut roles = all(ClientRole::HandoffWork);
            roles.insert(0, ClientRole::HandoffPublish);
            roles
        }
    }
}

/// Shared by the clients of a thread.
#[derive(Debug, Clone)]
pub(crate) struct RunContext {
    pub(crate) plan: Arc<BenchPlan>,
    pub(crate) server: SocketAddr,
    pub(crate) goal: Arc<str>,
    pub(crate) pace: Arc<StartPace>,
    /// The zero point of the timestamps in handed-off intents.
    pub(crate) epoch: Instant,
    /// The index of the next unused order.
    pub(crate) next_order: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(crate) struct LoadClient {
    role: ClientRole,
    connection: BenchConnection,
    writer: RequestWriter,
    request: Vec<u8>,
    /// Leases to settle, as items of the next settle request.
    held: Vec<u8>,
    pace: Arc<StartPace>,
    epoch: Instant,
    orders: Arc<[TransactionOrder]>,
    next_order: Arc<AtomicUsize>,
    /// When the pending request was sent.
    waiting_since: Option<Instant>,
    tally: Rc<RefCell<RunTally>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallOutcome {
    Done,
    /// An empty claim, or no order is left.
    Nothing,
    Failed,
}

impl LoadClient {
    pub(crate) async fn connect(
        around: &RunContext,
        role: ClientRole,
        index: usize,
        tally: Rc<RefCell<RunTally>>,
    ) -> Result<Self, Error> {
        let plan = &around.plan;
        let connection = BenchConnection::open(around.server);
        let connection = connection.await.map_err(|source| Error::Connect {
            server: plan.target.server.to_string(),
            source,
        })?;
        let waits = matches!(role, ClientRole::Work | ClientRole::HandoffWork);
        let claiming = ClaimOptions {
            max: (role == ClientRole::Batch).then_some(plan.batch),
            wait: if waits { plan.wait } else { Duration::ZERO },
        };
        Ok(Self {
            role,
            connection,
            writer: RequestWriter::new(plan, &around.goal, claiming, &index.to_string())?,
            request: Vec::new(),
            held: Vec::new(),
            pace: Arc::clone(&around.pace),
            epoch: around.epoch,
            orders: Arc::clone(&plan.orders),
            next_order: Arc::clone(&around.next_order),
            waiting_since: None,
            tally,
        })
    }

    /// Runs until it is dropped, or until nothing is left to drain.
    pub(crate) async fn run(mut self) {
        loop {
            let outcome = match self.role {
                ClientRole::Cycle => self.cycle().await,
                ClientRole::Publish => self.publish_alone().await,
                ClientRole::Work | ClientRole::HandoffWork | ClientRole::Drain => self.work().await,
                ClientRole::Next => self.next().await,
                ClientRole::Batch => self.batch().await,
                ClientRole::Empty => self.empty().await,
                ClientRole::HandoffPublish => self.publish_stamped().await,
                ClientRole::Transact => self.transact().await,
            };
            match outcome {
                CallOutcome::Done => {}
                CallOutcome::Nothing
                    if matches!(self.role, ClientRole::Drain | ClientRole::Transact) =>
                {
                    return;
                }
                CallOutcome::Nothing => {}
                CallOutcome::Failed => tokio::time::sleep(PAUSE_AFTER_ERROR).await,
            }
        }
    }

    async fn cycle(&mut self) -> CallOutcome {
        let due = self.pace.next().await;
        self.writer.publish(&mut self.request);
        let published = self.call(Op::Publish, due).await;
        if published != CallOutcome::Done {
            return published;
        }
        self.claim_and_fulfil(due).await
    }

    async fn publish_alone(&mut self) -> CallOutcome {
        let due = self.pace.next().await;
        self.writer.publish(&mut self.request);
        self.call(Op::Publish, due).await
    }

    async fn publish_stamped(&mut self) -> CallOutcome {
        let due = self.pace.next().await;
        let since_epoch = due.saturating_duration_since(self.epoch).as_nanos();
        let sent_ns = u64::try_from(since_epoch).unwrap_or(u64::MAX);
        self.writer.publish_stamped(&mut self.request, sent_ns);
        self.call(Op::Publish, due).await
    }

    async fn work(&mut self) -> CallOutcome {
        self.claim_and_fulfil(Instant::now()).await
    }

    /// `began` is the start of the whole cycle.
    async fn claim_and_fulfil(&mut self, began: Instant) -> CallOutcome {
        let claimed = self.claim().await;
        if claimed != CallOutcome::Done {
            return claimed;
        }
        let Some(lease) = leases(self.connection.body()).next() else {
            return self.strange(Op::Claim);
        };
        self.writer.fulfil(&mut self.request, lease);
        let began = self.note_handoff().unwrap_or(began);
        let fulfilled = self.call(Op::Fulfil, Instant::now()).await;
        if fulfilled == CallOutcome::Done {
            self.tally.borrow_mut().cycle(1, began, Instant::now());
        }
        fulfilled
    }

    async fn claim(&mut self) -> CallOutcome {
        self.writer.claim(&mut self.request);
        self.call(Op::Claim, Instant::now()).await
    }

    /// The start of the publish that this claim returned, if it has a timestamp.
    fn note_handoff(&mut self) -> Option<Instant> {
        if self.role != ClientRole::HandoffWork {
            return None;
        }
        let sent_ns = number_member(self.connection.body(), SENT)?;
        let sent = self.epoch + Duration::from_nanos(sent_ns);
        let mut tally = self.tally.borrow_mut();
        tally.done(Op::Handoff, sent, Instant::now());
        Some(sent)
    }

    /// Two requests per intent: publish one, then settle the held one and claim the next.
    async fn next(&mut self) -> CallOutcome {
        let due = self.pace.next().await;
        self.writer.publish(&mut self.request);
        let published = self.call(Op::Publish, due).await;
        if published != CallOutcome::Done {
            return published;
        }
        if self.held.is_empty() {
            let claimed = self.claim().await;
            if claimed == CallOutcome::Done {
                self.hold_claimed();
            }
            return claimed;
        }
        self.writer.settle(&mut self.request, &self.held, true);
        self.held.clear();
        let outcome = self.call(Op::Settle, Instant::now()).await;
        if outcome == CallOutcome::Done {
            self.note_settled(1, due);
            self.hold_claimed();
        }
        outcome
    }

    async fn batch(&mut self) -> CallOutcome {
        let due = self.pace.next().await;
        self.writer.publish_batch(&mut self.request);
        let published = self.call(Op::Publish, due).await;
        if published != CallOutcome::Done {
            return published;
        }
        let claimed = self.claim().await;
        if claimed != CallOutcome::Done {
            return claimed;
        }
        self.held.clear();
        let count = self.hold_claimed();
        if count == 0 {
            return self.strange(Op::Claim);
        }
        self.writer.settle(&mut self.request, &self.held, false);
        let outcome = self.call(Op::Settle, Instant::now()).await;
        if outcome == CallOutcome::Done {
            self.note_settled(count, due);
        }
        outcome
    }

    async fn empty(&mut self) -> CallOutcome {
        let due = self.pace.next().await;
        for step in 0..3 {
            self.writer.publish(&mut self.request);
            let from = if step == 0 { due } else { Instant::now() };
            let outcome = self.call(Op::Post, from).await;
            if outcome != CallOutcome::Done {
                return outcome;
            }
        }
        self.tally.borrow_mut().cycle(1, due, Instant::now());
        CallOutcome::Done
    }

    /// Two requests per transaction: one creates and authorizes the intent, one executes it.
    async fn transact(&mut self) -> CallOutcome {
        let due = self.pace.next().await;
        let orders = Arc::clone(&self.orders);
        let Some(order) = orders.get(self.next_order.fetch_add(1, Ordering::Relaxed)) else {
            // Otherwise the rest of the run would look like a slow server.
            let what = "no intent is left".to_owned();
            let mut tally = self.tally.borrow_mut();
            tally.fault(Op::Authorize, what, 1, b"", Instant::now());
            return CallOutcome::Nothing;
        };
        let (writer, request) = (&self.writer, &mut self.request);
        writer.post_once(request, "/api/atp/authorize", &order.key, &order.authorize);
        let authorized = self.call(Op::Authorize, due).await;
        if authorized != CallOutcome::Done {
            return authorized;
        }
        let (writer, request) = (&self.writer, &mut self.request);
        writer.post_once(request, "/api/atp/execute", &order.key, &order.execute);
        let executed = self.call(Op::Execute, Instant::now()).await;
        if executed != CallOutcome::Done {
            return executed;
        }
        if !is_settled(self.connection.body()) {
            return self.strange(Op::Execute);
        }
        self.tally.borrow_mut().cycle(1, due, Instant::now());
        CallOutcome::Done
    }

    fn hold_claimed(&mut self) -> u64 {
        let mut count = 0;
        for lease in leases(self.connection.body()) {
            hold(&mut self.held, lease);
            count += 1;
        }
        count
    }

    fn note_settled(&mut self, items: u64, began: Instant) {
        let now = Instant::now();
        let body = self.connection.body();
        let refused = refused_items(body);
        let mut tally = self.tally.borrow_mut();
        if refused > 0 {
            let what = "refused item".to_owned();
            tally.fault(Op::Settle, what, refused, body, now);
        }
        tally.cycle(items.saturating_sub(refused), began, now);
    }

    /// Sends the prepared request and counts the result.
    async fn call(&mut self, op: Op, from: Instant) -> CallOutcome {
        self.waiting_since = Some(from);
        let exchanged = self.connection.exchange(&self.request).await;
        self.waiting_since = None;
        let now = Instant::now();
        let mut tally = self.tally.borrow_mut();
        match exchanged {
            Ok(204) if op == Op::Claim => {
                tally.empty_claim(now);
                CallOutcome::Nothing
            }
            Ok(200..=299) => {
                tally.done(op, from, now);
                CallOutcome::Done
            }
            Ok(status) => {
                tally.fault(op, status.to_string(), 1, self.connection.body(), now);
                CallOutcome::Failed
            }
            Err(error) => {
                tally.fault(op, trouble(&error), 1, b"", now);
                CallOutcome::Failed
            }
        }
    }

    /// A success with an unexpected body.
    fn strange(&mut self, op: Op) -> CallOutcome {
        let mut tally = self.tally.borrow_mut();
        let what = "unexpected body".to_owned();
        tally.fault(op, what, 1, self.connection.body(), Instant::now());
        CallOutcome::Failed
    }
}

/// The end of the run drops clients during a request. Their waiting time is reported, because a server that
/// stalls at the end would otherwise look good.
impl Drop for LoadClient {
    fn drop(&mut self) {
        let waits_for_work = matches!(self.role, ClientRole::Work | ClientRole::HandoffWork);
        if let Some(since) = self.waiting_since.filter(|_| !waits_for_work) {
            self.tally.borrow_mut().unfinished(since.elapsed());
        }
    }
}

/// A short text that is the same for the same error, because errors are counted by it.
pub(crate) fn trouble(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::Other {
        return error.to_string();
    }
    error.kind().to_string()
}
