//! `job show`, `job tree` and `job inspect`

use std::fmt::Write as _;

use serde_json::Value;

use super::logs::entry;
use super::tree::{STEP_COLUMNS, job_tree_table};
use crate::commands::automation::request::{JOB_COLUMNS, get_and_print, members, rows};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::Exit;
use crate::system::path_segment;

#[derive(Debug, clap::Args)]
pub(crate) struct JobShowArgs {
    /// The id of the job
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl JobShowArgs {
    pub(crate) fn show(self) -> anyhow::Result<Exit> {
        get_and_print(
            &self.service,
            &format!("/job/{}", path_segment(&self.id)),
            members,
        )
    }

    pub(crate) fn tree(self) -> anyhow::Result<Exit> {
        let path = format!("/job/{}/tree", path_segment(&self.id));
        get_and_print(&self.service, &path, job_tree_table)
    }

    pub(crate) fn inspect(self) -> anyhow::Result<Exit> {
        let path = format!("/job/{}/inspect", path_segment(&self.id));
        get_and_print(&self.service, &path, inspect_text)
    }
}

/// One section below the other, each with a title; empty ones are left out.
fn inspect_text(whole: &Value) -> String {
    let mut text = members(&whole["job"]);
    let mut part = |title: &str, rows: String, list: &Value| {
        if list.as_array().is_some_and(|list| !list.is_empty()) {
            let _ = write!(text, "\n{title}\n{rows}");
        }
    };
    let lineage = [JOB_COLUMNS, STEP_COLUMNS].concat();
    let ancestors = rows(&whole["lineage"], &lineage);
    part(
        "LINEAGE, from the first ancestor on",
        ancestors,
        &whole["lineage"],
    );
    let carried = rows(&whole["contexts"], CONTEXT_COLUMNS);
    part("CONTEXTS, with their baggage", carried, &whole["contexts"]);
    let moves = rows(&whole["transitions"], MOVE_COLUMNS);
    part("TRANSITIONS", moves, &whole["transitions"]);
    let attempts = whole["attempts"].as_array().into_iter().flatten();
    let attempts = attempts.map(entry).collect::<Vec<_>>().concat();
    part("ATTEMPTS", attempts, &whole["attempts"]);
    text
}

const CONTEXT_COLUMNS: &[(&str, &str)] = &[
    ("HOP", "hop"),
    ("PIPELINE", "pipeline"),
    ("STEP", "step_id"),
    ("BAGGAGE", "baggage"),
];

const MOVE_COLUMNS: &[(&str, &str)] = &[
    ("AT", "at"),
    ("EVENT", "event"),
    ("FROM", "from"),
    ("TO", "to"),
    ("ATTEMPT", "attempt"),
    ("CAUSE", "cause"),
    ("BY", "by"),
    ("DETAIL", "detail"),
];
