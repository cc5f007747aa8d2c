//! A ledger that carries out one request at a time, when a test says so.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::command::{Reply, Request};
use consign_kernel::lane::Probe;
use consign_store::{BoxFuture, CommitListener, Error, Forwarding, News, SharedStore};
use tokio::sync::oneshot;

struct Job {
    request: Request,
    asker: oneshot::Sender<Result<Reply, Error>>,
}

pub(crate) struct Held {
    inner: SharedStore,
    line: Mutex<VecDeque<Job>>,
    /// What commits did is told as if another node had told it.
    far: bool,
}

impl Held {
    pub(crate) fn around(inner: SharedStore) -> Arc<Self> {
        Arc::new(Self {
            inner,
            line: Mutex::default(),
            far: false,
        })
    }

    /// One whose news come from afar: each lane is named once, however many rows it got.
    pub(crate) fn far_from(inner: SharedStore) -> Arc<Self> {
        Arc::new(Self {
            inner,
            line: Mutex::default(),
            far: true,
        })
    }

    /// Carries out the request that waits longest, and answers it. Whoever asked has not heard it when this returns.
    pub(crate) async fn turn(&self) {
        let job = self.next().await;
        let answer = self.inner.execute(job.request).await;
        // It may have gone away meanwhile.
        let _ = job.asker.send(answer);
    }

    /// Lets all requests of `asking` pass those that wait already, as a second writer would.
    pub(crate) async fn past<T>(&self, asking: impl Future<Output = T>) -> T {
        let waiting = self.line().len();
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
        while self.line().len() <= waiting {
            tokio::task::yield_now().await;
        }
        let job = self.line().pop_back().expect("more wait than before");
        let answer = self.inner.execute(job.request).await;
        let _ = job.asker.send(answer);
    }

    /// Refuses the request that waits longest, as a disk would.
    pub(crate) async fn refuse(&self) {
        let refusal = Err(Error::Unavailable("planned".to_owned()));
        let _ = self.next().await.asker.send(refusal);
    }

    /// Waits until somebody asks. One who went away before its turn is passed over, as every ledger does.
    pub(crate) async fn asked(&self) {
        while !self.is_asked() {
            tokio::task::yield_now().await;
        }
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_asked(&self) -> bool {
        let mut line = self.line();
        line.retain(|job| !job.asker.is_closed());
        !line.is_empty()
    }

    async fn next(&self) -> Job {
        self.asked().await;
        let mut line = self.line();
        line.pop_front().expect("somebody asked")
    }
}

impl Forwarding for Held {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        let (asker, answered) = oneshot::channel();
        let mut line = self.line();
        line.push_back(Job { request, asker });
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
