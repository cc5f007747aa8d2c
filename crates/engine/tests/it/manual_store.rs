//! A ledger that executes one request at a time, on demand of the test.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::command::{Reply, Request};
use consign_kernel::lane::Probe;
use consign_store::{BoxFuture, CommitListener, Error, Forwarding, News, SharedStore};
use tokio::sync::oneshot;

struct PendingRequest {
    request: Request,
    reply: oneshot::Sender<Result<Reply, Error>>,
}

pub(crate) struct ManualStore {
    inner: SharedStore,
    pending: Mutex<VecDeque<PendingRequest>>,
    /// Reports commits as if they were made by another node.
    far: bool,
}

impl ManualStore {
    pub(crate) fn around(inner: SharedStore) -> Arc<Self> {
        Arc::new(Self {
            inner,
            pending: Mutex::default(),
            far: false,
        })
    }

    /// A store that reports commits as remote ones: each lane is named once, however many rows it received.
    pub(crate) fn far_from(inner: SharedStore) -> Arc<Self> {
        Arc::new(Self {
            inner,
            pending: Mutex::default(),
            far: true,
        })
    }

    /// Executes the oldest pending request and answers it. The caller has not yet received the answer when this returns.
    pub(crate) async fn turn(&self) {
        let job = self.next().await;
        let answer = self.inner.execute(job.request).await;
        // The caller may have been cancelled.
        let _ = job.reply.send(answer);
    }

    /// Executes all requests of `asking` before those that are already pending, as a second writer would.
    pub(crate) async fn past<T>(&self, asking: impl Future<Output = T>) -> T {
        let waiting = self.pending().len();
        tokio::pin!(asking);
        loop {
            tokio::select! {
                biased;
                done = &mut asking => return done,
                () = self.turn_behind(waiting) => {}
            }
        }
    }

    async fn turn_behind(&self, waiting: usize) {
        while self.pending().len() <= waiting {
            tokio::task::yield_now().await;
        }
        let job = self.pending().pop_back().expect("more wait than before");
        let answer = self.inner.execute(job.request).await;
        let _ = job.reply.send(answer);
    }

    /// Refuses the oldest pending request, as a failing disk would.
    pub(crate) async fn refuse(&self) {
        let refusal = Err(Error::Unavailable("planned".to_owned()));
        let _ = self.next().await.reply.send(refusal);
    }

    /// Waits for a pending request. Requests of cancelled callers are skipped, as in every ledger.
    pub(crate) async fn asked(&self) {
        while !self.is_asked() {
            tokio::task::yield_now().await;
        }
    }

    fn pending(&self) -> MutexGuard<'_, VecDeque<PendingRequest>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_asked(&self) -> bool {
        let mut pending = self.pending();
        pending.retain(|job| !job.reply.is_closed());
        !pending.is_empty()
    }

    async fn next(&self) -> PendingRequest {
        self.asked().await;
        let mut pending = self.pending();
        pending.pop_front().expect("somebody asked")
    }
}

impl Forwarding for ManualStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        let (reply, answered) = oneshot::channel();
        let mut pending = self.pending();
        pending.push_back(PendingRequest { request, reply });
        Box::pin(async { answered.await.map_err(|_| Error::Closed)? })
    }

    fn listen(&self, listener: CommitListener) {
        if !self.far {
            return self.inner.listen(listener);
        }
        self.inner.listen(Box::new(move |news| {
            let lanes: HashSet<Probe> = news.ripe.iter().copied().collect();
            listener(&News {
                ripe: lanes.into_iter().collect(),
                heard: true,
                ..news.clone()
            });
        }));
    }
}
