//! Parses query strings and path segments.

use axum::extract::{FromRequestParts, Path, Query};
use http::request::Parts;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::runtime::JobStatus;
use crate::runtime::reads::{JobFilter, LogCursor, LogFilter};
use crate::runtime::{SubmittedBy, job_id, parse_job_id};

use super::api_error::ApiError;

/// Longer than any valid query.
const QUERY_BYTES_MAX: usize = 4 << 10;
pub(super) const LIMIT_DEFAULT: usize = 50;
pub(super) const JOBS_LIMIT_MAX: usize = 1_000;
pub(super) const LOGS_LIMIT_MAX: usize = 200;
const SUBMITTERS: [SubmittedBy; 8] = [
    SubmittedBy::Scheduler,
    SubmittedBy::Webhook,
    SubmittedBy::Route,
    SubmittedBy::Cli,
    SubmittedBy::Api,
    SubmittedBy::Hook,
    SubmittedBy::Intent,
    SubmittedBy::Message,
];

/// The first value of a repeated name counts, and an empty value counts as absent.
#[derive(Debug)]
pub(super) struct ApiQuery(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for ApiQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let bytes = parts.uri.query().map_or(0, str::len);
        if bytes > QUERY_BYTES_MAX {
            let error = format!("the query has {bytes} bytes; {QUERY_BYTES_MAX} are allowed");
            return Err(ApiError::bad(error));
        }
        let Query(pairs) = Query::try_from_uri(&parts.uri)
            .map_err(|_| ApiError::bad("the query cannot be decoded"))?;
        Ok(Self(pairs))
    }
}

impl ApiQuery {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(_) => Err(ApiError::bad(format!("{name} must be true or false"))),
        }
    }

    pub(super) fn limit(&self, default: usize, max: usize) -> Result<usize, ApiError> {
        let Some(text) = self.get("limit") else {
            return Ok(default);
        };
        let limit = text.parse().ok().filter(|limit| (1..=max).contains(limit));
        limit.ok_or_else(|| ApiError::bad(format!("limit must be a whole number from 1 to {max}")))
    }

    fn status(&self) -> Result<Option<JobStatus>, ApiError> {
        let Some(text) = self.get("status") else {
            return Ok(None);
        };
        let unknown = "status must be queued, running, succeeded, failed, timed_out or dead";
        let word = JobStatus::parse(text).ok_or_else(|| ApiError::bad(unknown))?;
        Ok(Some(word))
    }

    fn instant(&self, name: &str) -> Result<Option<Timestamp>, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        // An unencoded plus sign arrives as a space.
        let at = text.replace(' ', "+").parse();
        let unknown = format!("{name} must be a timestamp such as 2026-02-25T10:00:00Z");
        at.map(Some).map_err(|_| ApiError::bad(unknown))
    }

    pub(super) fn jobs(&self) -> Result<JobFilter, ApiError> {
        Ok(JobFilter {
            plugin: self.text("plugin"),
            command: self.text("command"),
            status: self.status()?,
            limit: self.limit(LIMIT_DEFAULT, JOBS_LIMIT_MAX)?,
        })
    }

    fn cursor(&self) -> Result<Option<LogCursor>, ApiError> {
        let Some(text) = self.get("cursor") else {
            return Ok(None);
        };
        let unknown = "cursor must come from a response of /job-logs";
        let cursor = LogCursor::parse(text).ok_or_else(|| ApiError::bad(unknown))?;
        Ok(Some(cursor))
    }

    pub(super) fn queue_limit(&self) -> Result<usize, ApiError> {
        self.limit(JOBS_LIMIT_MAX, JOBS_LIMIT_MAX)
    }

    pub(super) fn logs(&self) -> Result<LogFilter, ApiError> {
        let id = self.get("job_id").map(|text| {
            let id = parse_job_id(text).map(job_id);
            id.ok_or_else(|| ApiError::bad("job_id is not a job id"))
        });
        let submitted_by = self.text("submitted_by");
        let known = SUBMITTERS.map(SubmittedBy::as_str);
        if let Some(by) = &submitted_by
            && !known.contains(&by.as_str())
        {
            let known = known.join(", ");
            return Err(ApiError::bad(format!(
                "submitted_by must be one of {known}"
            )));
        }
        let (from, to) = (self.instant("from")?, self.instant("to")?);
        if let (Some(from), Some(to)) = (from, to)
            && from > to
        {
            return Err(ApiError::bad("from is later than to"));
        }
        Ok(LogFilter {
            job_id: id.transpose()?,
            plugin: self.text("plugin"),
            command: self.text("command"),
            status: self.status()?,
            submitted_by,
            from,
            to,
            query: self.text("query"),
            limit: self.limit(LIMIT_DEFAULT, LOGS_LIMIT_MAX)?,
            include_result: self.flag("include_result")?,
            after: self.cursor()?,
        })
    }
}

/// The variable segments of a path; those that cannot be decoded are not found.
#[derive(Debug)]
pub(super) struct Segments<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let decoded = Path::<T>::from_request_parts(parts, state).await;
        let unknown = |_| ApiError::not_found("this path does not exist");
        decoded
            .map(|Path(segments)| Self(segments))
            .map_err(unknown)
    }
}
