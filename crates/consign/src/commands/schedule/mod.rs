//! What the clock starts: listed, foretold, paused, resumed, run now.

mod next;

use clap::Subcommand;

use crate::commands::automation::ask::{Change, ask, change, rows};
use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::Exit;
use crate::system::segment;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// List the schedules and where they stand
    List(ListArgs),
    /// Tell the next instants at which the configuration would start something
    Next(next::Args),
    /// Start nothing by this schedule until it is resumed
    Pause(ChangeArgs),
    /// Let a paused schedule go on
    Resume(ChangeArgs),
    /// Start now what the schedule would start
    Run(ChangeArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ChangeArgs {
    /// The plugin whose schedule it is
    plugin: String,

    /// Which of its schedules
    #[arg(default_value = "default")]
    id: String,

    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    tree: TreeArgs,
}

impl Action {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => list(&args.tree),
            Self::Next(args) => args.run(),
            Self::Pause(args) => alter(&args, "pause"),
            Self::Resume(args) => alter(&args, "resume"),
            Self::Run(args) => alter(&args, "run"),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::List(args) => &args.tree,
            Self::Next(args) => &args.tree,
            Self::Pause(args) | Self::Resume(args) | Self::Run(args) => &args.tree,
        }
    }
}

pub(crate) fn list(tree: &TreeArgs) -> anyhow::Result<Exit> {
    ask(tree, "/schedules", |answer| {
        let columns = [
            ("PLUGIN", "plugin"),
            ("SCHEDULE", "schedule_id"),
            ("COMMAND", "command"),
            ("MODE", "mode"),
            ("STATUS", "status"),
            ("NEXT", "next_run_at"),
            ("LAST SUCCESS", "last_success_at"),
        ];
        rows(&answer["schedules"], &columns)
    })
}

fn alter(args: &ChangeArgs, verb: &str) -> anyhow::Result<Exit> {
    let (plugin, id) = (&args.plugin, &args.id);
    let wanted = Change {
        look: "/schedules",
        post: &format!("/schedule/{}/{}/{verb}", segment(plugin), segment(id)),
        body: None,
        what: &format!("{verb} the schedule {id} of {plugin}"),
    };
    change(&args.tree, args.dry_run, &wanted, |_| {
        format!("{verb}: {plugin} {id}")
    })
}
