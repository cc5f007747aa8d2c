//! Files of the automation that are links or are replaced: symbolic links, and programs that are replaced while they run.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::Value;

use super::automation_world::{OK, World, until};
use super::{code, text, word};

fn names(world: &World) -> Vec<String> {
    let listed = world.json(&["plugin", "list"]);
    let plugins = listed["plugins"].as_array().expect("a list").iter();
    plugins.map(|plugin| word(&plugin["name"])).collect()
}

#[test]
fn a_configuration_that_is_a_link_is_refused_unless_it_allows_links_and_stays_one_when_changed() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {enabled: true}}\n");
    fs::rename(world.path("config.yaml"), world.path("real.yaml")).expect("it is moved");
    symlink("real.yaml", world.path("config.yaml")).expect("a link can be made");
    let refused = world.refused();
    assert_eq!(code(&refused), 78, "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains("is a symbolic link"), "{said}");
    assert!(said.contains("service.allow_symlinks"), "{said}");
    assert!(!world.path("state").exists(), "nothing was made");

    let allowed = format!(
        "{}service: {{allow_symlinks: true}}\n",
        world.read("real.yaml")
    );
    fs::write(world.path("real.yaml"), allowed).expect("a file can be written");
    let _service = world.start();
    assert_eq!(names(&world), ["echo"]);
    let set = ["config", "set", "plugin:echo.enabled=false", "--apply"];
    assert_eq!(code(&world.ductile(&set)), 0);
    assert!(world.path("config.yaml").is_symlink(), "it is a file now");
    assert!(world.read("real.yaml").contains("enabled: false"));
    let reloaded = world.json(&["system", "reload"]);
    assert_eq!(
        reloaded["removed"],
        serde_json::json!(["echo"]),
        "{reloaded}"
    );
}

#[test]
fn a_plugin_that_is_a_link_runs_only_if_links_are_allowed_and_it_leads_into_a_root_du_029() {
    let world = World::new();
    world.plugin("echo", OK);
    world.plugin("inside", OK);
    world.plugin("outside", OK);
    for (name, place) in [("inside", "more/inside"), ("outside", "elsewhere/outside")] {
        let place = world.path(place);
        fs::create_dir_all(place.parent().expect("it has one")).expect("a folder can be made");
        let link = world.path(&format!("plugins/{name}"));
        fs::rename(&link, &place).expect("it is moved");
        symlink(&place, &link).expect("a link can be made");
    }
    fs::set_permissions(world.path("more"), fs::Permissions::from_mode(0o755)).expect("set");
    let config = |links: bool| {
        let text = format!(
            "plugin_roots: [plugins, more]\nstate: {{path: state/ductile.db}}\nservice: {{allow_symlinks: {links}}}\n"
        );
        fs::write(world.path("config.yaml"), text).expect("a file can be written");
    };
    config(false);
    let _service = world.start();
    assert_eq!(names(&world), ["echo", "inside"], "as a plugin of `more`");
    config(true);
    assert_eq!(code(&world.ductile(&["system", "reload"])), 0);
    assert_eq!(names(&world), ["echo", "inside"]);
    assert_eq!(code(&world.ductile(&["run", "inside", "--wait"])), 0);
    let refused = world.ductile(&["run", "outside"]);
    assert_eq!(code(&refused), 1, "{refused:?}");
    let check = world.ductile(&["config", "check"]);
    let told = [text(&check.stdout), text(&check.stderr)].concat();
    assert!(told.contains("outside of every plugin root"), "{told}");
}

#[test]
fn a_program_that_is_replaced_while_it_runs_ends_as_it_began_and_the_next_run_is_the_new_one() {
    let world = World::new();
    let body = |word: &str| {
        format!(
            "echo {word} >> $here/ran; while [ ! -e $here/go ]; do sleep 0.02; done\n\
             echo '{{\"status\": \"ok\", \"result\": \"{word}\"}}'"
        )
    };
    world.plugin("echo", &body("old"));
    world.config("service: {max_workers: 2}\nplugins: {echo: {}}\n");
    let _service = world.start();
    let old = word(&world.json(&["run", "echo"])["job_id"]);
    until("it runs", || world.read("ran") == "old\n");
    // Like an installer: another file gets the name.
    let (run, kept) = (world.path("plugins/echo/run"), world.path("kept"));
    fs::rename(&run, &kept).expect("it is moved");
    world.plugin("echo", &body("new"));
    let new = word(&world.json(&["run", "echo"])["job_id"]);
    until("the new one runs beside it", || {
        world.read("ran") == "old\nnew\n"
    });
    fs::write(world.path("go"), "").expect("a file can be written");
    let result = |id: &str| -> Value {
        until("it is over", || {
            world.json(&["job", "show", id])["status"] == "succeeded"
        });
        world.json(&["job", "show", id])["result"]["result"].clone()
    };
    assert_eq!((result(&old), result(&new)), ("old".into(), "new".into()));
    // A program that is missing when its job starts is reported, and the service continues.
    fs::remove_file(&run).expect("it is there");
    let gone = world.json(&["run", "echo"]);
    let id = word(&gone["job_id"]);
    until("it was tried", || {
        let job = world.json(&["job", "show", &id]);
        word(&job["last_error"]).contains("install the plugin again")
    });
    fs::rename(&kept, &run).expect("it is moved back");
    let back = world.json(&["run", "echo", "--wait"]);
    assert_eq!(back["result"]["result"], "old", "{back}");
}
