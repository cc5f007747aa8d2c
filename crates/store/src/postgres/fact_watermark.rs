//! Up to where the stream of facts is whole. Numbers become visible out of order, so nobody who reads it may pass those of the
//! oldest open transaction.
//!
//! Invariant: what was seen as settled stays so. So one look serves every stream of the node that came before it, and however many
//! of them wait for an open transaction, the database is asked a few times a second.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::load::BLOCK;
use super::readers::{PooledReader, PostgresReadPool};
use super::rows;
use crate::Error;

/// The last block of numbers that was given out. To be asked before [`OPEN_BLOCKS`].
const LAST_BLOCK: &str = "SELECT last_value FROM fact_blocks";

/// The last block that was given out before the oldest open transaction asked for its own.
const OPEN_BLOCKS: &str = "SELECT min(((classid::bigint & 65535) << 32) + objid::bigint) FROM pg_locks \
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 16 = 17230 \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Between two looks of one that waits. Transactions hardly ever take longer than the first few.
const PAUSES_MS: [u64; 6] = [5, 10, 20, 40, 80, 160];
const PAUSE_MS_MAX: u64 = 250;

/// Up to which block numbers are given out, and up to which all of them are visible to whoever asks from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactBlocks {
    pub(super) last: i64,
    pub(super) settled: i64,
}

impl FactBlocks {
    /// Whoever was given a block up to the last one either still holds its lock when the locks are looked at, or has ended
    /// before, and then its facts are visible to the statement after that.
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

/// The last look, whoever took it.
#[derive(Debug, Default)]
pub(super) struct FactWatermark(Mutex<Option<SharedLook>>);

#[derive(Clone, Debug)]
struct SharedLook {
    begun: Instant,
    /// A failure is shared as well: a database that is silent lets nobody wait twice.
    seen: Result<FactBlocks, String>,
}

impl FactWatermark {
    /// As it is now, or later.
    pub(super) async fn now(&self, readers: &PostgresReadPool) -> Result<FactBlocks, Error> {
        self.since(readers, Instant::now()).await
    }

    /// As it was at some moment after `oldest`. While one looks the others wait, and then one of them looks for all.
    async fn since(
        &self,
        readers: &PostgresReadPool,
        oldest: Instant,
    ) -> Result<FactBlocks, Error> {
        let mut last = self.0.lock().await;
        let young = last.clone().filter(|look| look.begun >= oldest);
        let look = if let Some(look) = young {
            look
        } else {
            let begun = Instant::now();
            let seen = look(readers).await.map_err(|error| error.to_string());
            last.insert(SharedLook { begun, seen }).clone()
        };
        look.seen.map_err(Error::Unavailable)
    }
}

async fn look(readers: &PostgresReadPool) -> Result<FactBlocks, Error> {
    FactBlocks::ask(&mut readers.acquire().await?).await
}

/// One that waits for open transactions to end.
pub(super) struct WatermarkWait<'h> {
    watermark: &'h FactWatermark,
    looks: usize,
}

impl<'h> WatermarkWait<'h> {
    pub(super) fn new(watermark: &'h FactWatermark) -> Self {
        Self {
            watermark,
            looks: 0,
        }
    }

    /// The next look, after a pause that grows. One that somebody else took in the second half of it will do.
    pub(super) async fn next(&mut self, readers: &PostgresReadPool) -> Result<FactBlocks, Error> {
        let pause = PAUSES_MS.get(self.looks).copied().unwrap_or(PAUSE_MS_MAX);
        self.looks += 1;
        let half = Duration::from_millis(pause) / 2;
        tokio::time::sleep(half).await;
        let oldest = Instant::now();
        tokio::time::sleep(half).await;
        self.watermark.since(readers, oldest).await
    }
}
