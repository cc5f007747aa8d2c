//! Commands for pipelines: list, show and run.

use clap::Subcommand;
use consign_automation::http::views::catalogue;
use consign_automation::program::Program;
use serde_json::Value;

use crate::commands::automation::config::tree::TreeArgs;
use crate::commands::automation::request::{cell, get, get_and_print, get_or_load, load, rows};
use crate::commands::automation::service_args::ServiceArgs;
use crate::commands::plugin::{PayloadArgs, start};
use crate::failure::{Exit, Failure};
use crate::system::path_segment;

#[derive(Debug, Subcommand)]
pub(crate) enum PipelineSubcommand {
    /// List the pipelines and what starts them
    List(PipelineListArgs),
    /// Show a pipeline, or one of its runs, as the graph of its steps
    Show(PipelineShowArgs),
    /// Start a pipeline by name
    Run(PipelineRunArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PipelineListArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PipelineShowArgs {
    /// The name of the pipeline
    #[arg(required_unless_present = "run")]
    name: Option<String>,

    /// A run instead, by its id or that of any of its jobs: each step with its status and jobs
    #[arg(long, value_name = "ID", conflicts_with = "name")]
    run: Option<String>,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PipelineRunArgs {
    /// The name of the pipeline
    #[arg(value_name = "PIPELINE")]
    name: String,

    #[command(flatten)]
    payload: PayloadArgs,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl PipelineSubcommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => list(&args),
            Self::Show(args) => show(&args),
            Self::Run(args) => run(&args),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::List(args) => &args.service.tree,
            Self::Show(args) => &args.service.tree,
            Self::Run(args) => &args.service.tree,
        }
    }
}

fn list(args: &PipelineListArgs) -> anyhow::Result<Exit> {
    let known = |program: &Program| Ok(catalogue::pipeline_list(program));
    get_or_load(&args.service, "/pipelines", known, |answer| {
        let columns = [
            ("NAME", "name"),
            ("STARTED BY", "trigger"),
            ("MODE", "execution_mode"),
            ("STEPS", "steps"),
        ];
        rows(&answer["pipelines"], &columns)
    })
}

fn show(args: &PipelineShowArgs) -> anyhow::Result<Exit> {
    if let Some(id) = &args.run {
        let path = format!("/pipeline-run/{}", path_segment(id));
        return get_and_print(&args.service, &path, run_table);
    }
    let name = args.name.as_deref().unwrap_or_default();
    let known = |program: &Program| {
        Ok(catalogue::pipeline_details(program, name).ok_or_else(|| unknown(name))?)
    };
    let path = format!("/pipeline/{}", path_segment(name));
    get_or_load(&args.service, &path, known, |answer| {
        let (name, trigger) = (cell(&answer["name"]), cell(&answer["trigger"]));
        let columns = [
            ("STEP", "id"),
            ("PLUGIN", "plugin"),
            ("COMMAND", "command"),
            ("NEXT", "next"),
            ("IF", "condition"),
            ("OTHERWISE", "otherwise"),
        ];
        // Most pipelines have no `if` and do not need its columns.
        let mut steps = answer["steps"].as_array().into_iter().flatten();
        let has_switch = steps.any(|step| step["kind"] == "switch");
        let shown = if has_switch {
            &columns[..]
        } else {
            &columns[..4]
        };
        let steps = rows(&answer["steps"], shown);
        format!("{name}, started by {trigger}\n\n{steps}")
    })
}

fn run_table(run: &Value) -> String {
    let mut steps = run["steps"].clone();
    for step in steps.as_array_mut().into_iter().flatten() {
        let jobs = step["jobs"].as_array().into_iter().flatten();
        let ids: Vec<Value> = jobs.map(|job| job["job_id"].clone()).collect();
        step["job_ids"] = ids.into();
    }
    let columns = [
        ("STEP", "id"),
        ("PLUGIN", "plugin"),
        ("STATUS", "status"),
        ("NEXT", "next"),
        ("JOBS", "job_ids"),
    ];
    let [pipeline, id, status] = ["pipeline", "instance_id", "status"].map(|key| cell(&run[key]));
    let mut text = format!(
        "{pipeline}, run {id}: {status}\n\n{}",
        rows(&steps, &columns)
    );
    if run["more"] == true {
        text.push_str("\nit has more jobs than are shown\n");
    }
    text
}

fn run(args: &PipelineRunArgs) -> anyhow::Result<Exit> {
    if args.payload.is_dry_run() {
        if args.service.api_url.is_some() {
            get(
                &args.service,
                &format!("/pipeline/{}", path_segment(&args.name)),
            )?;
        } else {
            let program = load(&args.service.tree.find()?)?;
            let known = program.router().pipeline(&args.name);
            known.ok_or_else(|| unknown(&args.name))?;
        }
    }
    // This command waits for the whole tree itself, so the service need not wait for a synchronous pipeline.
    let path = format!("/pipeline/{}?async=true", path_segment(&args.name));
    let what = format!("run the pipeline {}", args.name);
    start(&args.service, &args.payload, &path, &what)
}

fn unknown(name: &str) -> Failure {
    Failure::failed(Program::missing_pipeline(name))
}
