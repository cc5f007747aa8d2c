//! Intents by their parties, their type, their state and a text.

use consign_engine::{Error, MessagesOf};

use super::scan::{ScanEnd, ScanWindow};
use crate::lifecycle::StatusFilter;
use crate::relay::IntentRow;
use crate::service::Beam;

pub const SEARCH_LIMIT_DEFAULT: u32 = 100;
pub const SEARCH_LIMIT_MAX: u32 = 500;

/// Which intents a search returns. An absent part matches all.
#[derive(Clone, Debug, Default)]
pub struct IntentSearch {
    /// A part of the nonce, a party, the type or the error code; case does not count.
    pub text: Option<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub intent_type: Option<String>,
    /// A word of [`StatusFilter`].
    pub status: Option<String>,
    pub error_code: Option<String>,
    pub hours: Option<u32>,
    pub limit: u32,
}

/// The newest matches, and how many there are.
#[derive(Clone, Debug)]
pub struct FoundIntents {
    pub intents: Vec<IntentRow>,
    pub total: u64,
    pub end: ScanEnd,
}

impl Beam {
    pub async fn search_intents(&self, search: &IntentSearch) -> Result<FoundIntents, Error> {
        let mut found = FoundIntents {
            intents: Vec::new(),
            total: 0,
            end: ScanEnd::Complete,
        };
        let Some(matcher) = IntentMatcher::of(search) else {
            return Ok(found);
        };
        let of = match (&search.from, &search.to) {
            (Some(from), _) => MessagesOf::Sender(from.clone()),
            (None, Some(to)) => MessagesOf::Recipient(to.clone()),
            (None, None) => MessagesOf::All,
        };
        let window = ScanWindow {
            of,
            since_ms: search.hours.map(|hours| self.window_start_ms(hours)),
        };
        let limit = search.limit.min(SEARCH_LIMIT_MAX) as usize;
        let (intents, total) = (&mut found.intents, &mut found.total);
        found.end = self
            .scan(window, |row| {
                if matcher.matches(&row) {
                    *total += 1;
                    if intents.len() < limit {
                        intents.push(row);
                    }
                }
            })
            .await?;
        Ok(found)
    }
}

struct IntentMatcher<'a> {
    search: &'a IntentSearch,
    status: StatusFilter,
    text: Option<String>,
}

impl<'a> IntentMatcher<'a> {
    /// `None` if no intent can match.
    fn of(search: &'a IntentSearch) -> Option<Self> {
        let word = search.status.as_deref().unwrap_or_default();
        Some(Self {
            search,
            status: StatusFilter::parse(word)?,
            text: search.text.as_deref().map(str::to_lowercase),
        })
    }

    fn matches(&self, row: &IntentRow) -> bool {
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == value)
        };
        let code = row.error_code.as_deref().unwrap_or_default();
        let has = |text: &String| {
            let fields = [&row.nonce, &row.from, &row.to, &row.intent_type, code];
            let mut fields = fields.into_iter();
            fields.any(|field| field.to_lowercase().contains(text))
        };
        self.status.matches(row.state)
            && is(&self.search.from, &row.from)
            && is(&self.search.to, &row.to)
            && is(&self.search.intent_type, &row.intent_type)
            && is(&self.search.error_code, code)
            && self.text.as_ref().is_none_or(has)
    }
}
