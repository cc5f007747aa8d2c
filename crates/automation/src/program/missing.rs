//! Explains why a name cannot be run: unknown, disabled or skipped.

use super::Program;

impl Program {
    /// Why [`Program::plugin`] has no plugin with this name, and where to find out more.
    pub fn missing_plugin(&self, name: &str) -> String {
        match self.config.plugins.get(name) {
            Some(configured) if !configured.enabled => {
                format!("the plugin `{name}` is disabled: the configuration has `enabled: false`")
            }
            Some(_) => format!(
                "the plugin `{name}` was skipped because it cannot be run; see `config check`"
            ),
            // A plugin that is installed but not configured may lack something, too.
            None => format!(
                "no plugin has the name `{name}`; see `plugin list`, or `config check --verbose` for skipped plugins"
            ),
        }
    }

    /// Why a plugin has no command with this name.
    pub fn missing_command(&self, plugin: &str, command: &str) -> String {
        let known = self.plugin(plugin);
        let commands = known.into_iter().flat_map(|one| &one.manifest.commands);
        let commands: Vec<&str> = commands.map(|one| one.name.as_str()).collect();
        let commands = commands.join(", ");
        format!("the plugin `{plugin}` has no command `{command}`; it has {commands}")
    }

    pub fn missing_pipeline(name: &str) -> String {
        format!("no pipeline has the name `{name}`; see `pipeline list`")
    }
}
