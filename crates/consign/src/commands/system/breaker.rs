//! `system breaker`, `system reset` and `system plugin-facts`: the breaker and facts of one plugin

use crate::commands::automation::request::{
    ChangeRequest, cell, change, get_and_print, members, rows,
};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::Exit;
use crate::system::{path_segment, query_string};

#[derive(Debug, clap::Args)]
pub(crate) struct BreakerShowArgs {
    /// The name of the plugin
    plugin: String,

    /// The command of the plugin
    #[arg(long, value_name = "NAME")]
    command: Option<String>,

    /// The maximum number of transitions
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResetArgs {
    /// The name of the plugin
    plugin: String,

    /// The command of the plugin
    #[arg(long, value_name = "NAME")]
    command: Option<String>,

    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FactsArgs {
    /// The name of the plugin
    plugin: String,

    /// Only facts of this type
    #[arg(long, value_name = "TYPE")]
    fact_type: Option<String>,

    /// The maximum number of facts
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl BreakerShowArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let wanted = query_string(&[
            ("command", self.command),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ]);
        let path = format!("/breaker/{}{wanted}", path_segment(&self.plugin));
        get_and_print(&self.service, &path, |answer| {
            let mut own = answer.clone();
            let transitions = own["transitions"].take();
            if let Some(own) = own.as_object_mut() {
                own.retain(|_, value| !value.is_null());
            }
            let columns = [
                ("AT", "at"),
                ("FROM", "from"),
                ("TO", "to"),
                ("WHY", "reason"),
                ("JOB", "job_id"),
            ];
            format!("{}\n{}", members(&own), rows(&transitions, &columns))
        })
    }
}

impl ResetArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let plugin = path_segment(&self.plugin);
        let command = query_string(&[("command", self.command)]);
        let wanted = ChangeRequest {
            look: &format!("/breaker/{plugin}{command}"),
            post: &format!("/breaker/{plugin}/reset{command}"),
            body: None,
            what: &format!("close the breaker of {}", self.plugin),
        };
        change(&self.service, self.dry_run, &wanted, |_| {
            format!("closed: {}", self.plugin)
        })
    }
}

impl FactsArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let wanted = query_string(&[
            ("fact_type", self.fact_type),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ]);
        let path = format!("/facts/{}{wanted}", path_segment(&self.plugin));
        get_and_print(&self.service, &path, |answer| {
            let facts = answer["facts"].as_array().into_iter().flatten();
            let lines = facts.map(|fact| {
                let (at, kind) = (cell(&fact["created_at"]), cell(&fact["fact_type"]));
                format!("{at}  {kind}  {}\n", cell(&fact["fact"]))
            });
            lines.collect::<Vec<_>>().concat()
        })
    }
}
