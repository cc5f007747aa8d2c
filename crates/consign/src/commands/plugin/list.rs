//! `plugin list` and `plugin show`

use consign_automation::http::views::catalogue;

use crate::commands::automation::request::{cell, get_or_load, rows};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::{Exit, Failure};
use crate::system::path_segment;

#[derive(Debug, clap::Args)]
pub(crate) struct PluginListArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PluginShowArgs {
    /// The name of the plugin
    name: String,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl PluginListArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let known =
            |program: &consign_automation::program::Program| Ok(catalogue::plugin_list(program));
        get_or_load(&self.service, "/plugins", known, |answer| {
            let columns = [
                ("NAME", "name"),
                ("VERSION", "version"),
                ("COMMANDS", "commands"),
                ("DESCRIPTION", "description"),
            ];
            rows(&answer["plugins"], &columns)
        })
    }
}

impl PluginShowArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let name = &self.name;
        let path = format!("/plugin/{}", path_segment(name));
        let known = |program: &consign_automation::program::Program| {
            let missing = || Failure::failed(program.missing_plugin(name));
            Ok(catalogue::plugin_details(program, name).ok_or_else(missing)?)
        };
        get_or_load(&self.service, &path, known, |answer| {
            let (name, version) = (cell(&answer["name"]), cell(&answer["version"]));
            let about = cell(&answer["description"]);
            let columns = [
                ("COMMAND", "name"),
                ("TYPE", "type"),
                ("DESCRIPTION", "description"),
            ];
            let commands = rows(&answer["commands"], &columns);
            format!("{name} {version}  {about}\n\n{commands}")
        })
    }
}
