//! The watermark up to which the stream of facts is complete. Numbers become visible out of order, so a reader must not pass
//! those of the oldest open transaction.
//!
//! Invariant: the watermark never goes back. So one query serves every stream of the node that asked before it, and however
//! many streams wait for an open transaction, the database gets only a few queries a second.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::load::BLOCK;
use super::readers::{PooledReader, PostgresReadPool};
use super::rows;
use crate::Error;

/// The last assigned block of numbers. Must be queried before [`OPEN_BLOCKS`].
const LAST_BLOCK: &str = "SELECT last_value FROM fact_blocks";

/// The last block that was assigned before the oldest open transaction got its own.
const OPEN_BLOCKS: &str = "SELECT min(((classid::bigint & 65535) << 32) + objid::bigint) FROM pg_locks \
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 16 = 17230 \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Pauses between the queries of a waiting stream. Transactions rarely take longer than the first few.
const PAUSES_MS: [u64; 6] = [5, 10, 20, 40, 80, 160];
const PAUSE_MS_MAX: u64 = 250;

/// The last assigned block, and the last block of which all facts are visible from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactBlocks {
    pub(super) last: i64,
    pub(super) settled: i64,
}

impl FactBlocks {
    /// A transaction with a block up to the last one either still holds its lock when the locks are read, or has ended before,
    /// and then its facts are visible to the next statement.
    async fn ask(reader: &mut PooledReader<'_>) -> Result<Self, Error> {
        let last = reader.query(LAST_BLOCK, &[]).await?;
        let last: i64 = last.first().map_or(Ok(0), |row| rows::get(row, 0))?;
        let open = reader.query(OPEN_BLOCKS, &[]).await?;
        let open: Option<i64> = open.first().map_or(Ok(None), |row| rows::get(row, 0))?;
        Ok(Self {
            last,
            settled: open.unwrap_or(last).min(last),
        })
    }
}

/// The first number after a block.
pub(super) fn end_of(block: i64) -> i64 {
    let size = i64::try_from(BLOCK).unwrap_or(i64::MAX);
    (block + 1).saturating_mul(size)
}

/// The result of the last query, shared by all streams.
#[derive(Debug, Default)]
pub(super) struct FactWatermark(Mutex<Option<SharedLook>>);

#[derive(Clone, Debug)]
struct SharedLook {
    begun: Instant,
    /// A failure is shared too: with an unresponsive database no stream waits twice.
    seen: Result<FactBlocks, String>,
}

impl FactWatermark {
    /// The blocks as of now, or later.
    pub(super) async fn now(&self, readers: &PostgresReadPool) -> Result<FactBlocks, Error> {
        self.since(readers, Instant::now()).await
    }

    /// The blocks as of some moment after `oldest`. While one stream queries the others wait, and share its result.
    async fn since(
        &self,
        readers: &PostgresReadPool,
        oldest: Instant,
    ) -> Result<FactBlocks, Error> {
        let mut last = self.0.lock().await;
        let young = last.clone().filter(|shared| shared.begun >= oldest);
        let shared = if let Some(shared) = young {
            shared
        } else {
            let begun = Instant::now();
            let seen = query(readers).await.map_err(|error| error.to_string());
            last.insert(SharedLook { begun, seen }).clone()
        };
        shared.seen.map_err(Error::Unavailable)
    }
}

async fn query(readers: &PostgresReadPool) -> Result<FactBlocks, Error> {
    FactBlocks::ask(&mut readers.acquire().await?).await
}

/// A wait for open transactions to end.
pub(super) struct WatermarkWait<'h> {
    watermark: &'h FactWatermark,
    queries: usize,
}

impl<'h> WatermarkWait<'h> {
    pub(super) fn new(watermark: &'h FactWatermark) -> Self {
        Self {
            watermark,
            queries: 0,
        }
    }

    /// The next query, after a growing pause. A result of another stream from the second half of the pause is reused.
    pub(super) async fn next(&mut self, readers: &PostgresReadPool) -> Result<FactBlocks, Error> {
        let pause = PAUSES_MS.get(self.queries).copied().unwrap_or(PAUSE_MS_MAX);
        self.queries += 1;
        let half = Duration::from_millis(pause) / 2;
        tokio::time::sleep(half).await;
        let oldest = Instant::now();
        tokio::time::sleep(half).await;
        self.watermark.since(readers, oldest).await
    }
}
