//! Programs that another user could have replaced are not run.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use crate::automation_world::{OK, World};
use crate::place::{code, text};

fn chmod(world: &World, name: &str, mode: u32) {
    fs::set_permissions(world.path(name), fs::Permissions::from_mode(mode)).expect("it can be set");
}

#[test]
fn s18_a_program_that_others_could_replace_is_refused_and_the_way_out_is_told() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {}}\n");
    let run = || world.ductile(&["plugin", "run", "echo", "--command", "work"]);
    assert_eq!(code(&run()), 0, "{:?}", run());
    let is_refused = |what: &str, told: &str| {
        let output = run();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_ne!(code(&output), 0, "{what} was run: {said}");
        let checked = world.ductile(&["config", "check"]);
        let said = format!("{said}{}{}", text(&checked.stdout), text(&checked.stderr));
        assert!(said.contains(told), "{what}: {said}");
    };
    for name in [
        "plugins",
        "plugins/echo",
        "plugins/echo/run",
        "plugins/echo/manifest.yaml",
    ] {
        for mode in [0o777, 0o775, 0o757] {
            chmod(&world, name, mode);
            is_refused(&format!("{name} {mode:o}"), "chmod go-w");
        }
        let usual = if name.ends_with("yaml") { 0o644 } else { 0o755 };
        chmod(&world, name, usual);
        // Only root can change the owner of files.
        if chown(world.path(name), Some(4321), None).is_ok() {
            is_refused(&format!("{name} of 4321"), "chown");
            chown(world.path(name), Some(0), None).expect("it can be taken back");
        }
    }
    assert_eq!(code(&run()), 0, "{:?}", run());
}

#[test]
fn s18_a_program_that_others_could_replace_is_not_started_by_a_running_service() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {retry: {max_attempts: 1}}}\n");
    let _service = world.start();
    let run = || world.json(&["run", "echo", "--command", "work", "--wait"]);
    assert_eq!(run()["status"], "succeeded");
    for name in ["plugins/echo/run", "plugins/echo"] {
        chmod(&world, name, 0o777);
        let refused = run();
        assert_ne!(refused["status"], "succeeded", "{name}: {refused}");
        assert!(refused.to_string().contains("chmod go-w"), "{refused}");
        chmod(&world, name, 0o755);
    }
    assert_eq!(run()["status"], "succeeded");
}

#[test]
fn s18_what_the_commands_make_is_accepted_whatever_the_umask() {
    let world = World::new();
    world.config("plugins: {made: {}}\n");
    let commands = "umask 0000; ./ductile plugin init made --language bash --dir plugins --config config.yaml && ./ductile plugin run made --config config.yaml";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", commands]).current_dir(world.path(""));
    let output = consign_testkit::process::run(command, crate::automation_world::LONG)
        .expect("it ends in time");
    assert_eq!(code(&output), 0, "{output:?}");
}
