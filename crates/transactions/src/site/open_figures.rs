//! How many transactions are open, which of them are stuck, and since when the oldest one is.

use consign_kernel::ids::{Micros, Seq};
use consign_kernel::state::State;

use super::Site;
use super::lists::is_transaction;
use crate::problem::Problem;

/// Open transactions that are examined in each state; each costs a read of its record.
const EXAMINED_MAX: usize = 100;

/// The open transactions of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenTransactions {
    /// Without a reported effect.
    pub executing: u64,
    /// With an effect that is not settled yet.
    pub executed: u64,
    /// With an alert: they wait for an operator. Only the oldest hundred of each state are examined.
    pub stuck: u64,
    /// When the oldest one was begun.
    pub oldest_at: Option<Micros>,
}

impl Site {
    /// The open transactions, oldest first; at most a page of each state is counted.
    pub async fn open_transactions(&self) -> Result<OpenTransactions, Problem> {
        let mut open = OpenTransactions::default();
        for state in [State::Dispatched, State::Delivered] {
            let rows = self.open_after(state, Seq(0)).await?;
            let rows: Vec<_> = rows.into_iter().filter(is_transaction).collect();
            let count = rows.len() as u64;
            if state == State::Delivered {
                open.executed = count;
            } else {
                open.executing = count;
            }
            let first = rows.first().map(|row| row.created_at);
            open.oldest_at = open.oldest_at.into_iter().chain(first).min();
            for row in rows.iter().take(EXAMINED_MAX) {
                let entry = self.transaction_entry(row).await?;
                open.stuck += u64::from(entry.is_some_and(|entry| entry.alert.is_some()));
            }
        }
        Ok(open)
    }
}
