//! The log of attempts, newest jobs first.

use consign_engine::Error;
use consign_kernel::record::Kind;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{parsed, put, written};
use crate::runtime::keep;
use crate::runtime::service::Runtime;

/// An entry may hold megabytes, so few are read at a time.
const PAGE_RECORDS: u32 = 20;
/// Entries that a list looks at before it is content with what it found.
const LOOKED_AT_MAX: usize = 5_000;
/// Once an answer holds so much output, further entries come without theirs.
const OUTPUT_BYTES_MAX: usize = 8 << 20;

/// Which attempts to list. `status` is one of the protocol's words.
#[derive(Clone, Debug, Default)]
pub struct LogFilter {
    pub job_id: Option<String>,
    pub plugin: Option<String>,
    pub command: Option<String>,
    pub status: Option<&'static str>,
    pub submitted_by: Option<String>,
    /// By the end of the attempt; both included.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// A text that occurs in the error or the output, in whatever case.
    pub query: Option<String>,
    pub limit: usize,
    pub include_result: bool,
}

impl LogFilter {
    fn wants(&self, log: &keep::Log) -> bool {
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

fn occurs(query: &str, log: &keep::Log) -> bool {
    let query = query.to_lowercase();
    let texts = [&log.last_error, &log.stderr, &log.result];
    let mut texts = texts.into_iter().flatten();
    texts.any(|text| text.to_lowercase().contains(&query))
        || log.plugin.to_lowercase().contains(&query)
        || log.command.to_lowercase().contains(&query)
}

/// What was found so far.
struct Found<'f> {
    filter: &'f LogFilter,
    logs: Vec<Value>,
    total: u64,
    output_bytes: usize,
}

impl Found<'_> {
    fn see(&mut self, log: &keep::Log) {
        if !self.filter.wants(log) {
            return;
        }
        self.total += 1;
        if self.logs.len() < self.filter.limit {
            let room = self.output_bytes < OUTPUT_BYTES_MAX;
            self.output_bytes += log.stderr.as_ref().map_or(0, String::len);
            if self.filter.include_result {
                self.output_bytes += log.result.as_ref().map_or(0, String::len);
            }
            let entry = entry(log, room, self.filter.include_result);
            self.logs.push(Value::Object(entry));
        }
    }
}

impl Runtime {
    /// `total` counts what the filter wants among the newest entries, far more of them than anybody pages through.
    pub async fn job_logs(&self, filter: &LogFilter) -> Result<Value, Error> {
        let mut found = Found {
            filter,
            logs: Vec::new(),
            total: 0,
            output_bytes: 0,
        };
        if let Some(id) = &filter.job_id {
            let mut logs = self.logs_of(id).await?;
            logs.sort_by_key(|log| std::cmp::Reverse(log.attempt));
            for log in &logs {
                found.see(log);
            }
        } else {
            self.each_log(LOOKED_AT_MAX, |log| {
                found.see(log);
                true
            })
            .await?;
        }
        Ok(json!({"logs": found.logs, "total": found.total}))
    }

    /// Shows the attempts of the newest jobs, until there are no more, `max` were seen, or `see` says no.
    pub(super) async fn each_log(
        &self,
        max: usize,
        mut see: impl FnMut(&keep::Log) -> bool,
    ) -> Result<(), Error> {
        let mut before = String::new();
        let mut looked_at = 0;
        while looked_at < max {
            let page = self
                .engine()
                .last_records(Kind::JobLog, "", &before, PAGE_RECORDS)
                .await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            before.clone_from(&last.key.name);
            looked_at += page.len();
            for record in &page {
                let Ok(log) = serde_json::from_str(&record.value) else {
                    continue;
                };
                if !see(&log) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn entry(log: &keep::Log, with_output: bool, with_result: bool) -> Map<String, Value> {
    let mut object = Map::new();
    let log_id = keep::log(&log.job_id, log.attempt).name;
    put(&mut object, "job_id", Some(log.job_id.clone()));
    put(&mut object, "log_id", Some(log_id));
    put(&mut object, "plugin", Some(log.plugin.clone()));
    put(&mut object, "command", Some(log.command.clone()));
    put(&mut object, "status", Some(log.status.clone()));
    put(&mut object, "attempt", Some(log.attempt));
    put(&mut object, "submitted_by", Some(log.submitted_by.as_str()));
    put(&mut object, "created_at", Some(written(log.created_at)));
    put(&mut object, "started_at", Some(written(log.started_at)));
    put(&mut object, "completed_at", Some(written(log.completed_at)));
    put(&mut object, "last_error", log.last_error.clone());
    put(&mut object, "reason", log.reason.clone());
    put(&mut object, "parent_job_id", log.parent_job_id.clone());
    if with_output {
        put(&mut object, "stderr", log.stderr.clone());
        let result = log.result.as_deref().filter(|_| with_result);
        put(&mut object, "result", result.map(parsed));
    } else {
        put(&mut object, "output_left_out", Some(true));
    }
    object
}
