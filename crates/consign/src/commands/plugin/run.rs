//! `plugin run`, and what it shares with `pipeline run`

use std::fmt::Write as _;
use std::path::PathBuf;

use consign_automation::http::views::catalogue;
use serde_json::{Map, Value, json};

use crate::commands::automation::request::{
    block, block_on, cell, get, load, print, print_would, wait_for_job,
};
use crate::commands::automation::service_args::ServiceArgs;
use crate::commands::job::job_tree_table;
use crate::failure::{Exit, Failure};
use crate::input;
use crate::system::{ServiceClient, WhenStopped, path_segment};

const AFTER_HELP: &str = "\
With a running service, or with --api-url, the job is queued there, and --wait waits
until it and all that follows from it are over. Without a service the command runs the
job itself and exits when it and all that follows from it are over; other queued jobs
are left to the service.

Examples:
  consign plugin run hello
  consign plugin run mail --command send --payload '{\"to\": \"ada@example.org\"}' --wait";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PluginRunArgs {
    /// The name of the plugin
    #[arg(value_name = "PLUGIN")]
    name: String,

    /// The command of the plugin
    #[arg(long, value_name = "NAME", default_value = "poll")]
    command: String,

    #[command(flatten)]
    payload: PayloadArgs,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// The payload of a job, and whether to wait for it.
#[derive(Debug, clap::Args)]
pub(crate) struct PayloadArgs {
    /// The payload as a JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,

    /// A file with the payload, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    payload_file: Option<PathBuf>,

    /// Wait until the job and all that follows from it are over
    #[arg(long)]
    wait: bool,

    /// Show what would be run, and run nothing
    #[arg(long)]
    dry_run: bool,
}

impl PluginRunArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (plugin, command) = (&self.name, &self.command);
        if self.payload.dry_run {
            self.require_command()?;
        }
        let path = format!("/plugin/{}/{}", path_segment(plugin), path_segment(command));
        start(
            &self.service,
            &self.payload,
            &path,
            &format!("run {plugin} {command}"),
        )
    }
}

impl PluginRunArgs {
    fn require_command(&self) -> anyhow::Result<()> {
        let (plugin, command) = (&self.name, &self.command);
        let sheet = if self.service.api_url.is_some() {
            let path = format!("/plugin/{}", path_segment(plugin));
            get(&self.service, &path)?
        } else {
            let program = load(&self.service.tree.find()?)?;
            let missing = || Failure::failed(program.missing_plugin(plugin));
            catalogue::plugin_details(&program, plugin).ok_or_else(missing)?
        };
        let mut commands = sheet["commands"].as_array().into_iter().flatten();
        if commands.any(|known| known["name"] == command.as_str()) {
            return Ok(());
        }
        let message = format!("the plugin `{plugin}` has no command `{command}`");
        let hint = format!("see `plugin show {plugin}`");
        Err(Failure::failed(message).hint(hint).into())
    }
}

/// Starts a job with a request to `path`. Waits for it if requested, or if no service runs it.
pub(crate) fn start(
    service: &ServiceArgs,
    given: &PayloadArgs,
    path: &str,
    what: &str,
) -> anyhow::Result<Exit> {
    let args = &service.tree;
    let payload = given.read()?;
    if given.dry_run {
        return print_would(args, what);
    }
    let body = json!({ "payload": payload });
    let (answer, jobs) = block_on(async {
        let client = service.client(WhenStopped::RunJobs).await?;
        let waits = given.wait || client.is_local();
        let started = async {
            let answer = client.post(path, Some(&body)).await?.body;
            let jobs = if waits {
                Some(followed(&client, &answer).await?)
            } else {
                None
            };
            anyhow::Ok((answer, jobs))
        };
        let started = started.await;
        client.close().await?;
        started
    })?;
    let Some(jobs) = jobs else {
        return print(args, &answer, |answer| {
            format!("{}  {}", cell(&answer["job_id"]), cell(&answer["status"]))
        });
    };
    let failed = jobs.iter().any(|job| job["status"] != "succeeded");
    let first = jobs.first().cloned().unwrap_or_default();
    let mut whole = json!({
        "job_id": first["job_id"], "status": first["status"], "result": first["result"], "tree": jobs,
    });
    if let Some(ids) = answer.get("job_ids") {
        whole["job_ids"] = ids.clone();
    }
    print(args, &whole, |whole| {
        let mut text = job_tree_table(&whole["tree"]);
        for job in whole["tree"].as_array().into_iter().flatten() {
            let (plugin, result) = (cell(&job["plugin"]), &job["result"]["result"]);
            if !result.is_null() {
                let _ = writeln!(text, "{plugin}: {}", cell(result));
            }
            if !job["last_error"].is_null() {
                let error = block(&job["last_error"]);
                let space = if error.starts_with('\n') { "" } else { " " };
                let _ = writeln!(text, "{plugin}: error:{space}{error}");
            }
        }
        text
    })?;
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

/// A pipeline may start with several jobs; returns all of them, one tree after the other.
async fn followed(client: &ServiceClient, answer: &Value) -> anyhow::Result<Vec<Value>> {
    let several = answer["job_ids"].as_array().map(Vec::as_slice);
    let ids = several.unwrap_or(std::slice::from_ref(&answer["job_id"]));
    let mut jobs = Vec::new();
    for id in ids.iter().filter_map(Value::as_str) {
        jobs.extend(wait_for_job(client, id).await?);
    }
    Ok(jobs)
}

impl PayloadArgs {
    fn read(&self) -> anyhow::Result<Map<String, Value>> {
        let text = match (&self.payload, &self.payload_file) {
            (Some(text), _) => text.clone(),
            (None, Some(path)) => input::file("the payload", &path.display().to_string())?,
            (None, None) => return Ok(Map::new()),
        };
        serde_json::from_str(&text).map_err(|error| {
            Failure::failed(format!("the payload is not a JSON object: {error}"))
                .hint(r#"write it like --payload '{"name": "Ada"}'"#)
                .into()
        })
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}
