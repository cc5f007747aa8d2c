//! Timeouts of commands, from the configuration to the killed process.

use std::time::Duration;

use consign_automation::plugin::outcome::{PluginOutcome, classify};

use crate::plugin_world::{OK, World, configured, finish};

const CONFIG: &str = "
plugin_roots: [plugins]
plugins:
  plain: {}
  hasty: {timeouts: {poll: 300ms, sync: 2h}}
";

#[test]
fn commands_have_their_defaults_and_a_plugin_changes_only_what_it_names_du_045() {
    let world = World::new();
    let config = configured(&world, CONFIG).unwrap();
    let seconds = |plugin: &str, command: &str| {
        let timeout = config.plugins[plugin].timeouts.of(command);
        timeout.as_secs_f64()
    };
    for (command, default) in [
        ("poll", 60.0),
        ("handle", 120.0),
        ("health", 10.0),
        ("init", 30.0),
        ("sync", 60.0),
    ] {
        assert!(
            (seconds("plain", command) - default).abs() < 1e-9,
            "{command}"
        );
    }
    assert!((seconds("hasty", "poll") - 0.3).abs() < 1e-9);
    assert!((seconds("hasty", "sync") - 7_200.0).abs() < 1e-9);
    assert!((seconds("hasty", "handle") - 120.0).abs() < 1e-9);
    let error = configured(&world, &CONFIG.replace("300ms", "300")).unwrap_err();
    assert!(error.contains("plugins.hasty.timeouts.poll"), "{error}");
}

#[tokio::test]
async fn a_command_is_ended_at_the_time_that_the_configuration_gives_it_du_045() {
    let world = World::new();
    let config = configured(&world, CONFIG).unwrap();
    for (command, is_ended) in [("poll", true), ("handle", false)] {
        let mut job = world.bash(&format!("sleep 2\n{OK}"));
        job.timeout = config.plugins["hasty"].timeouts.of(command);
        let ended = finish(job).await;
        let outcome = classify(&ended);
        assert_eq!(
            outcome == PluginOutcome::TimedOut,
            is_ended,
            "{command}: {ended:?}"
        );
        assert_eq!(ended.elapsed < Duration::from_secs(2), is_ended);
    }
}
