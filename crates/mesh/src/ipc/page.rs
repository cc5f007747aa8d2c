//! Parameters of lists and downloads.

use jiff::Timestamp;

use super::IpcRefusal;
use crate::limits::{
    FILE_PAGE_DEFAULT, FILE_PAGE_MAX, INBOX_PAGE_DEFAULT, INBOX_PAGE_MAX, OUTBOX_PAGE_DEFAULT,
    OUTBOX_PAGE_MAX,
};
use crate::outbox::OutboxStatus;
use crate::query::QueryPairs;

/// `GET /v1/inbox`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxQuery {
    /// Milliseconds since 1970.
    pub since_ms: Option<i64>,
    pub topic: Option<String>,
    /// A key or a name.
    pub from: Option<String>,
    pub limit: u32,
}

impl InboxQuery {
    pub fn parse(query: &str) -> Result<Self, IpcRefusal> {
        let pairs = QueryPairs::parse(query);
        let since = pairs.get("since").map(|text| {
            let time: Result<Timestamp, _> = text.parse();
            time.map(Timestamp::as_millisecond)
                .map_err(|_| IpcRefusal::bad_request("invalid 'since'"))
        });
        Ok(Self {
            since_ms: since.transpose()?,
            topic: owned(&pairs, "topic").map(|topic| topic.trim_start_matches('#').to_owned()),
            from: owned(&pairs, "from"),
            limit: limit(&pairs, INBOX_PAGE_DEFAULT, INBOX_PAGE_MAX)?,
        })
    }
}

/// `GET /v1/outbox`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxQuery {
    pub status: Option<OutboxStatus>,
    pub limit: u32,
}

impl OutboxQuery {
    pub fn parse(query: &str) -> Result<Self, IpcRefusal> {
        let pairs = QueryPairs::parse(query);
        let status = owned(&pairs, "status").map(|word| {
            let status = OutboxStatus::parse(&word);
            status.ok_or_else(|| IpcRefusal::bad_request("invalid 'status'"))
        });
        Ok(Self {
            status: status.transpose()?,
            limit: limit(&pairs, OUTBOX_PAGE_DEFAULT, OUTBOX_PAGE_MAX)?,
        })
    }
}

/// `GET /v1/file/list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListQuery {
    /// Older than the file with this time, in milliseconds, and id.
    pub before: Option<(i64, String)>,
    pub limit: u32,
}

impl FileListQuery {
    pub fn parse(query: &str) -> Result<Self, IpcRefusal> {
        let pairs = QueryPairs::parse(query);
        let before = owned(&pairs, "before").map(|cursor| {
            let parsed = cursor
                .split_once('.')
                .and_then(|(ms, id)| Some((ms.parse().ok()?, id.to_owned())));
            parsed.ok_or_else(|| IpcRefusal::bad_request("invalid 'before'"))
        });
        Ok(Self {
            before: before.transpose()?,
            limit: limit(&pairs, FILE_PAGE_DEFAULT, FILE_PAGE_MAX)?,
        })
    }
}

/// `GET /v1/file/get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileGetQuery {
    pub id: String,
    /// The path that the file is written to.
    pub out: String,
}

impl FileGetQuery {
    pub fn parse(query: &str) -> Result<Self, IpcRefusal> {
        let pairs = QueryPairs::parse(query);
        let required = |key: &str| {
            let value = owned(&pairs, key);
            value.ok_or_else(|| IpcRefusal::bad_request(format!("missing '{key}'")))
        };
        Ok(Self {
            id: required("id")?,
            out: required("out")?,
        })
    }
}

/// An empty value counts as absent.
fn owned(pairs: &QueryPairs, key: &str) -> Option<String> {
    let value = pairs.get(key).filter(|value| !value.is_empty());
    value.map(str::to_owned)
}

/// A larger number is replaced by the maximum; what is no positive number is refused.
fn limit(pairs: &QueryPairs, default: u32, max: u32) -> Result<u32, IpcRefusal> {
    let Some(text) = owned(pairs, "limit") else {
        return Ok(default);
    };
    match text.parse::<u64>() {
        Ok(limit @ 1..) => Ok(u32::try_from(limit).unwrap_or(max).min(max)),
        _ => Err(IpcRefusal::bad_request("invalid 'limit'")),
    }
}
