//! The log of attempts, ordered by their end, newest first.
//!
//! An entry may hold megabytes. So the log is scanned twice: first for the order of the matches, keeping only end and name, then
//! for the entries that are shown.

use consign_engine::Error;
use consign_kernel::record::{Kind, Record};
use jiff::Timestamp;

use super::response_budget::{PluginOutput, ResponseBudget};
use crate::runtime::job_status::JobStatus;
use crate::runtime::lifecycle::Runtime;
use crate::runtime::records;

/// The maximum number of entries that a list scans.
const SCANNED_MAX: usize = 5_000;
/// More attempts than a job has.
const ATTEMPTS_MAX: usize = 1_000;

/// Which attempts to list.
#[derive(Clone, Debug, Default)]
pub struct LogFilter {
    pub job_id: Option<String>,
    pub plugin: Option<String>,
    pub command: Option<String>,
    pub status: Option<JobStatus>,
    pub submitted_by: Option<String>,
    /// Bounds for the end of the attempt, both inclusive.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// A text that occurs in the error or the output, case-insensitive.
    pub query: Option<String>,
    pub limit: usize,
    pub include_result: bool,
    /// Only attempts after this one in the order of the list.
    pub after: Option<LogCursor>,
}

impl LogFilter {
    fn matches(&self, log: &records::JobLog) -> bool {
        let same = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        same(&self.plugin, &log.plugin)
            && same(&self.command, &log.command)
            && same(&self.submitted_by, log.submitted_by.as_str())
            && self.status.is_none_or(|status| log.status == status)
            && self.from.is_none_or(|from| log.completed_at >= from)
            && self.to.is_none_or(|to| log.completed_at <= to)
            && self.query.as_deref().is_none_or(|query| occurs(query, log))
    }
}

fn occurs(query: &str, log: &records::JobLog) -> bool {
    let query = query.to_lowercase();
    let texts = [&log.last_error, &log.stderr, &log.result];
    let mut texts = texts.into_iter().flatten();
    texts.any(|text| text.to_lowercase().contains(&query))
        || log.plugin.to_lowercase().contains(&query)
        || log.command.to_lowercase().contains(&query)
}

/// The position of an attempt in the list, written as `<end>~<job>~<attempt>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogCursor {
    completed_at: Timestamp,
    job_id: String,
    attempt: u32,
}

impl LogCursor {
    fn of(log: &records::JobLog) -> Self {
        Self {
            completed_at: log.completed_at,
            job_id: log.job_id.clone(),
            attempt: log.attempt,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('~');
        let (completed_at, job_id, attempt) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            completed_at: completed_at.parse().ok()?,
            job_id: job_id.to_owned(),
            attempt: attempt.parse().ok()?,
        })
    }
}

impl std::fmt::Display for LogCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (at, job) = (self.completed_at, &self.job_id);
        write!(f, "{at:.9}~{job}~{}", self.attempt)
    }
}

/// One attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Without the output of the plugin unless it was asked for.
    pub log: records::JobLog,
    /// The output did not fit into the response.
    pub output_left_out: bool,
}

impl PluginOutput for LogEntry {
    fn texts(
        &mut self,
    ) -> (
        &mut Option<String>,
        Option<&mut Option<String>>,
        &mut Option<String>,
    ) {
        let log = &mut self.log;
        (&mut log.result, Some(&mut log.stderr), &mut log.last_error)
    }

    fn mark_left_out(&mut self) {
        self.output_left_out = true;
    }
}

/// Attempts, the last one first.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPage {
    pub logs: Vec<LogEntry>,
    /// The number of matches among the attempts of the newest jobs, far more than a client pages through.
    pub total: usize,
    /// Where the next page starts, if there is one.
    pub next: Option<LogCursor>,
}

/// The number of records per page: smaller for large records, so that a page uses little memory.
#[derive(Clone, Copy)]
pub(super) struct PageSize(u32);

impl PageSize {
    const FIRST: Self = Self(4);
    const RECORDS_MAX: u32 = 256;
    const BYTES_WANTED: usize = 1 << 20;

    fn after(self, page: &[Record]) -> Self {
        let bytes: usize = page.iter().map(|record| record.value.len()).sum();
        Self(if bytes < Self::BYTES_WANTED {
            (self.0 * 2).min(Self::RECORDS_MAX)
        } else {
            (self.0 / 2).max(1)
        })
    }
}

impl Runtime {
    pub async fn job_logs(&self, filter: &LogFilter) -> Result<LogPage, Error> {
        let mut wanted: Vec<LogCursor> = Vec::new();
        let mut see = |log: &records::JobLog| {
            if filter.matches(log) {
                wanted.push(LogCursor::of(log));
            }
            true
        };
        match &filter.job_id {
            Some(id) => self.each_log_of(id, &mut see).await?,
            None => self.each_log(SCANNED_MAX, &mut see).await?,
        }
        let total = wanted.len();
        if let Some(after) = &filter.after {
            wanted.retain(|one| one < after);
        }
        wanted.sort_unstable_by(|one, other| other.cmp(one));
        let more = wanted.len() > filter.limit;
        wanted.truncate(filter.limit);
        let mut budget = ResponseBudget::new();
        let mut logs = Vec::with_capacity(wanted.len());
        for one in &wanted {
            let key = records::log_key(&one.job_id, one.attempt);
            // An entry that retention deleted meanwhile is left out.
            if let Some(mut log) = self.stored::<records::JobLog>(key).await? {
                log.result = log.result.filter(|_| filter.include_result);
                logs.push(budget.fit(LogEntry {
                    log,
                    output_left_out: false,
                }));
            }
        }
        let next = wanted.pop().filter(|_| more);
        Ok(LogPage { logs, total, next })
    }

    /// Calls `see` with the attempts of the newest jobs, until there are no more, `max` were read, or `see` returns false.
    pub(super) async fn each_log(
        &self,
        max: usize,
        mut see: impl FnMut(&records::JobLog) -> bool,
    ) -> Result<(), Error> {
        let (mut before, mut scanned) = (String::new(), 0);
        let mut size = PageSize::FIRST;
        while scanned < max {
            let page = self
                .engine()
                .last_records(Kind::JobLog, "", &before, size.0)
                .await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            before.clone_from(&last.key.name);
            scanned += page.len();
            size = size.after(&page);
            if !page.iter().filter_map(read).all(|log| see(&log)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Calls `see` with all attempts of a job, whether or not it is still in the queue.
    pub(super) async fn each_log_of(
        &self,
        id: &str,
        mut see: impl FnMut(&records::JobLog) -> bool,
    ) -> Result<(), Error> {
        let prefix = format!("{id}-");
        let (mut after, mut scanned) = (prefix.clone(), 0);
        let mut size = PageSize::FIRST;
        while scanned < ATTEMPTS_MAX {
            let page = self
                .engine()
                .records(Kind::JobLog, "", &after, size.0)
                .await?;
            let own = page
                .iter()
                .take_while(|record| record.key.name.starts_with(&prefix));
            let is_last = own.clone().count() < page.len() || page.is_empty();
            if !own.filter_map(read).all(|log| see(&log)) || is_last {
                return Ok(());
            }
            scanned += page.len();
            size = size.after(&page);
            if let Some(last) = page.last() {
                after.clone_from(&last.key.name);
            }
        }
        Ok(())
    }
}

/// One unreadable entry must not hide the others.
fn read(record: &Record) -> Option<records::JobLog> {
    serde_json::from_str(&record.value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_nonsense_is_none() {
        let cursor = LogCursor {
            completed_at: "2026-02-25T10:00:00.000000001Z".parse().unwrap(),
            job_id: "018bcfe5-6800-7000-8000-080e072a033d".to_owned(),
            attempt: 12,
        };
        assert_eq!(LogCursor::parse(&cursor.to_string()), Some(cursor));
        for text in [
            "",
            "x",
            "2026-02-25T10:00:00Z~a",
            "2026-02-25T10:00:00Z~a~b",
        ] {
            assert_eq!(LogCursor::parse(text), None, "{text}");
        }
    }

    #[test]
    fn pages_of_large_records_are_small() {
        let record = |bytes: usize| Record {
            key: records::log_key("a", 1),
            value: "x".repeat(bytes),
            version: 1,
            expires_at: None,
        };
        let small = vec![record(10); 4];
        let grown = (0..20).fold(PageSize::FIRST, |size, _| size.after(&small));
        assert_eq!(grown.0, PageSize::RECORDS_MAX);
        let large = [record(PageSize::BYTES_WANTED)];
        let shrunk = (0..20).fold(grown, |size, _| size.after(&large));
        assert_eq!(shrunk.0, 1);
    }
}
