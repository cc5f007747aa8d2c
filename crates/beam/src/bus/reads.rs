//! The history of messages and the list of dead letters.

use std::cmp::Reverse;

use consign_engine::{Error, MessagesOf, Operator, SeqPage};
use consign_kernel::ids::{Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;

use super::message::BusMessage;
use super::scan::ScanStep;
use crate::service::Beam;

/// Dead letters of the directory and the bus that an unfiltered list examines.
const DEAD_ROWS_MAX: u32 = 1_000;
const PAGE_ROWS: u32 = 100;

/// Which messages a list shows; an absent part matches all.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    pub sender: Option<String>,
    pub recipient: Option<String>,
    pub intent: Option<String>,
    pub state: Option<State>,
    /// The earliest and the latest creation.
    pub since: Option<Micros>,
    pub until: Option<Micros>,
    pub limit: u32,
}

impl HistoryFilter {
    fn matches(&self, row: &Intent) -> bool {
        let is = |wish: &Option<String>, given: Option<&str>| {
            wish.as_deref().is_none_or(|wish| Some(wish) == given)
        };
        is(&self.sender, row.ties.sender.as_deref())
            && is(&self.recipient, Some(&row.owner))
            && is(&self.intent, Some(&row.goal))
            && self.state.is_none_or(|state| row.state == state)
            && self.since.is_none_or(|since| row.created_at >= since)
            && self.until.is_none_or(|until| row.created_at <= until)
    }

    /// The messages among which an index finds the wanted ones.
    fn of(&self) -> MessagesOf {
        match (&self.recipient, &self.sender) {
            (Some(recipient), _) => MessagesOf::Recipient(recipient.clone()),
            (None, Some(sender)) => MessagesOf::Sender(sender.clone()),
            (None, None) => MessagesOf::All,
        }
    }
}

impl Beam {
    /// Messages, newest first.
    pub async fn message_history(&self, filter: &HistoryFilter) -> Result<Vec<BusMessage>, Error> {
        let of = filter.of();
        // Rows at or before the position were created earlier than the first wanted one.
        let first = match filter.since {
            Some(since) => self.position_before(&of, since.minus(1)).await?,
            None => Seq(0),
        };
        let step = |row: &Intent| {
            if row.seq <= first {
                ScanStep::Stop
            } else if filter.matches(row) {
                ScanStep::Keep
            } else {
                ScanStep::Skip
            }
        };
        let page = match filter.until {
            Some(until) => self.page_until(&of, until).await?,
            None => SeqPage::NEWEST,
        };
        let rows = self.scan_messages(&of, page, filter.limit, step).await?;
        Ok(rows.iter().filter_map(BusMessage::of).collect())
    }

    /// Dead letters, the last ones first.
    pub async fn dead_messages(&self, filter: &HistoryFilter) -> Result<Vec<BusMessage>, Error> {
        let limit = filter.limit as usize;
        let mut dead: Vec<Intent>;
        let of = filter.of();
        if of == MessagesOf::All && filter.intent.is_none() {
            let operator = Operator::vouched();
            let rows = self.engine().dead(operator, Face::Beam, DEAD_ROWS_MAX);
            dead = rows.await?;
            dead.retain(|row| row.profile == ProfileId::BeamBus);
        } else {
            dead = Vec::new();
            let collect = |row: Intent| {
                if row.state == State::DeadLetter && filter.matches(&row) {
                    dead.push(row);
                    // The memory of a list is bounded, whatever it examines.
                    if dead.len() >= limit * 2 {
                        last_first(&mut dead);
                        dead.truncate(limit);
                    }
                }
                true
            };
            self.visit_messages(&of, SeqPage::NEWEST, PAGE_ROWS, collect)
                .await?;
        }
        last_first(&mut dead);
        dead.truncate(limit);
        Ok(dead.iter().filter_map(BusMessage::of).collect())
    }
}

fn last_first(dead: &mut [Intent]) {
    dead.sort_by_key(|row| Reverse((row.settled_at, row.created_at, row.seq)));
}
