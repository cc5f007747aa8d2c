//! The newest intents of the directory, page by page.

use consign_engine::{Error, MessageFilter, MessagesOf, SeqPage};
use consign_kernel::ids::Micros;
use consign_kernel::profile::ProfileId;

use crate::overview::IntentSample;
use crate::relay::IntentRow;
use crate::service::Beam;
use crate::timestamp;

/// How many intents one request examines at most.
pub const SCAN_ROWS_MAX: usize = 20_000;
/// Rows of one page; a row has a payload and a result.
const PAGE_ROWS: u32 = 100;

const HOUR_MS: i64 = 60 * 60 * 1_000;
/// Rows are in the order of their arrival, and the window is in the time of their senders, whose clocks may differ.
const ORDER_MARGIN_US: i64 = 2 * timestamp::WINDOW_MS * 1_000;

/// Whose intents of which time.
#[derive(Clone, Debug)]
pub struct ScanWindow {
    pub of: MessagesOf,
    /// Milliseconds of the wall clock.
    pub since_ms: Option<i64>,
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    Complete,
    /// The limit was reached before the window ended; older intents are not included.
    Truncated,
}

impl IntentRow {
    /// What the figures need to know.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a latency is far below the limit"
    )]
    pub fn sample(&self) -> IntentSample<'_> {
        IntentSample {
            intent: &self.intent_type,
            state: self.state,
            requested_at_ms: self.requested_at_ms,
            latency_ms: self.latency_ms.map(|ms| ms as f64),
            error_code: self.error_code.as_deref(),
        }
    }
}

impl Beam {
    /// The start of a window that ends now.
    pub(crate) fn window_start_ms(&self, hours: u32) -> i64 {
        self.now_ms() - i64::from(hours) * HOUR_MS
    }

    /// Calls `each` with the intents of a window, newest first.
    pub(crate) async fn scan(
        &self,
        window: ScanWindow,
        mut each: impl FnMut(IntentRow) + Send,
    ) -> Result<ScanEnd, Error> {
        let mut page = SeqPage::NEWEST;
        let mut examined = 0;
        let end_at = window
            .since_ms
            .map(|ms| Micros(ms.saturating_mul(1_000).saturating_sub(ORDER_MARGIN_US)));
        while examined < SCAN_ROWS_MAX {
            let rows = self
                .engine()
                .messages(MessageFilter {
                    profile: ProfileId::BeamDirectory,
                    of: window.of.clone(),
                    page,
                    limit: PAGE_ROWS,
                })
                .await?;
            let Some(last) = rows.last() else {
                return Ok(ScanEnd::Complete);
            };
            page = SeqPage::Before(last.seq);
            let is_past_window = end_at.is_some_and(|end_at| last.created_at < end_at);
            examined += rows.len();
            let views = rows.iter().filter_map(IntentRow::of);
            let is_in_window =
                |row: &IntentRow| window.since_ms.is_none_or(|ms| row.requested_at_ms >= ms);
            views.filter(is_in_window).for_each(&mut each);
            if is_past_window || rows.len() < PAGE_ROWS as usize {
                return Ok(ScanEnd::Complete);
            }
        }
        Ok(ScanEnd::Truncated)
    }
}
