//! Reads of many messages, in the order in which they were stored.
//!
//! Invariant: a read examines a limited number of rows. Times follow that order, except of messages that were imported
//! later than others were sent.

use consign_engine::{Error, MessageFilter, MessagesOf, SeqPage};
use consign_kernel::ids::{Micros, SECOND_US, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;

use crate::service::Beam;

/// Rows that one read examines.
pub(super) const SCAN_ROWS_MAX: usize = 10_000;
const PAGE_ROWS_MIN: u32 = 10;
const PAGE_ROWS_MAX: u32 = 100;
/// How far the clocks of two nodes of one ledger may differ.
pub(super) const CLOCK_MARGIN_US: i64 = 10 * SECOND_US;

/// What a read does with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanStep {
    Keep,
    Skip,
    /// No later row is wanted.
    Stop,
}

impl Beam {
    /// Collects up to `limit` rows.
    pub(super) async fn scan_messages(
        &self,
        of: &MessagesOf,
        page: SeqPage,
        limit: u32,
        step: impl Fn(&Intent) -> ScanStep,
    ) -> Result<Vec<Intent>, Error> {
        let mut found: Vec<Intent> = Vec::new();
        let page_rows = limit.clamp(PAGE_ROWS_MIN, PAGE_ROWS_MAX);
        let collect = |row: Intent| {
            let step = step(&row);
            if step == ScanStep::Keep {
                found.push(row);
            }
            step != ScanStep::Stop && found.len() < limit as usize
        };
        self.visit_messages(of, page, page_rows, collect).await?;
        Ok(found)
    }

    /// Shows rows to `visit` until it returns false, all were shown, or the limit of a read is reached.
    pub(super) async fn visit_messages(
        &self,
        of: &MessagesOf,
        mut page: SeqPage,
        page_rows: u32,
        mut visit: impl FnMut(Intent) -> bool,
    ) -> Result<(), Error> {
        let mut examined = 0;
        while examined < SCAN_ROWS_MAX {
            let rows = self.message_page(of, page, page_rows).await?;
            let Some(last) = rows.last().map(|row| row.seq) else {
                return Ok(());
            };
            examined += rows.len();
            let is_last_page = rows.len() < page_rows as usize;
            page = match page {
                SeqPage::After(_) => SeqPage::After(last),
                SeqPage::Before(_) => SeqPage::Before(last),
            };
            for row in rows {
                if !visit(row) {
                    return Ok(());
                }
            }
            if is_last_page {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A position such that every row at or before it was created at `at` or earlier. It is found by halving, so that a read
    /// from there on examines few earlier rows.
    pub(super) async fn position_before(&self, of: &MessagesOf, at: Micros) -> Result<Seq, Error> {
        let at = at.minus(CLOCK_MARGIN_US);
        let newest = self.message_page(of, SeqPage::NEWEST, 1).await?;
        let Some(newest) = newest.first() else {
            return Ok(Seq(0));
        };
        let (mut low, mut high) = (0, newest.seq.0);
        while low < high {
            let middle = low + (high - low) / 2;
            let next = self
                .message_page(of, SeqPage::After(Seq(middle)), 1)
                .await?;
            match next.first() {
                Some(row) if row.created_at <= at => low = row.seq.0,
                _ => high = middle,
            }
        }
        Ok(Seq(low))
    }

    /// The page of the rows that were created at `at` or earlier, newest first. A few later rows may be among them.
    pub(super) async fn page_until(&self, of: &MessagesOf, at: Micros) -> Result<SeqPage, Error> {
        let last = self
            .position_before(of, at.plus(2 * CLOCK_MARGIN_US))
            .await?;
        Ok(SeqPage::Before(Seq(last.0 + 1)))
    }

    async fn message_page(
        &self,
        of: &MessagesOf,
        page: SeqPage,
        limit: u32,
    ) -> Result<Vec<Intent>, Error> {
        let filter = MessageFilter {
            profile: ProfileId::BeamBus,
            of: of.clone(),
            page,
            limit,
        };
        self.engine().messages(filter).await
    }
}
