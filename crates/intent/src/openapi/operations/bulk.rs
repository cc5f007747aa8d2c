//! The operator's bulk jobs.

use consign_kernel::error::Code;
use consign_kernel::limits;
use http::StatusCode;

use super::super::access;
use super::super::schemas;
use super::operate::filter;
use consign_web::openapi::Operation;
use consign_web::openapi::schema::{
    boolean, exactly, integer, list, object, optional, required, text,
};

const JOB: &str = r#"{"id":"01a1dea803707330800005a06ad96f6b","action":"retry","filter":"state:dead goal:mail.*","state":"done","matching":12,"examined":208,"done":11,"refused":{"changed":1},"refusals":[{"id":"01a1dea84e057f0880000abe27861073","code":"changed"}],"created_at":1794736915.312204,"ended_at":1794736915.402204}"#;

pub(crate) fn start_bulk() -> Operation {
    let body = object(vec![
        required("action", schemas::bulk_action()),
        required("filter", filter()),
        optional(
            "dry_run",
            boolean()
                .about("Whether the rows are only counted.")
                .by_default(false)
                .nullable(),
        ),
        optional(
            "confirm",
            boolean()
                .about("Must be true, unless the rows are only counted; a refusal without it says how many rows match.")
                .by_default(false)
                .nullable(),
        ),
    ]);
    let counted = exactly(vec![
        required("dry_run", boolean().always(true)),
        required("action", schemas::bulk_action()),
        required("filter", text()),
        required("matching", integer()),
        required(
            "complete",
            boolean().about("Whether all rows were counted; otherwise more may match."),
        ),
    ]);
    Operation::new(access::OPERATE, access::OPERATOR, "startBulk", "Retry, cancel or delete all rows that match")
        .about("A job that continues after a restart of the server, and on another node. It changes the rows that match when it begins and are unchanged when their turn comes, each at most once.")
        .takes(body, limits::BODY_BYTES_MAX, r#"{"action":"retry","filter":"state:dead goal:mail.*","confirm":true}"#)
        .answers(
            StatusCode::OK,
            "How many rows match; nothing is changed.",
            counted,
            r#"{"dry_run":true,"action":"retry","filter":"state:dead goal:mail.*","matching":12,"complete":true}"#,
        )
        .answers(StatusCode::ACCEPTED, "The job has begun.", schemas::bulk_job(), JOB)
        .refuses(&[Code::Forbidden, Code::InvalidFilter, Code::ConfirmationRequired])
}

pub(crate) fn bulk_jobs() -> Operation {
    Operation::new(
        access::OPERATE,
        access::OPERATOR,
        "listBulk",
        "List bulk jobs",
    )
    .about("The newest first; a job is kept for 30 days after its end.")
    .answers(StatusCode::OK, "The jobs.", list(schemas::bulk_job()), "[]")
}

pub(crate) fn bulk_job() -> Operation {
    one("showBulk", "Show a bulk job")
}

pub(crate) fn cancel_bulk() -> Operation {
    one("cancelBulk", "End a bulk job")
        .about("It ends after its current rows. What it has changed stays changed. A job that has ended stays as it is.")
        .refuses(&[Code::Forbidden])
}

fn one(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(access::OPERATE, access::OPERATOR, id, summary)
        .path("id", schemas::id())
        .answers(
            StatusCode::OK,
            "The job and how far it is.",
            schemas::bulk_job(),
            JOB,
        )
        .refuses(&[Code::NotFound])
}
