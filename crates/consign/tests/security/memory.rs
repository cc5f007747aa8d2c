//! Secrets in the memory and the environment variables of the server are inaccessible to other processes of the same user.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use consign_testkit::unprivileged::User;

use crate::automation_world::{Service, World};
use crate::place::binary;

/// Tries all ways in which one process can read another of the same user, and returns those that succeeded.
const SPY: &str = r#"
python3 - "$PPID" <<'EOF'
import json, os, sys
server = '/proc/' + sys.argv[1] + '/'
def first(path):
    with open(path, 'rb') as file:
        return file.read(1 << 16)
tries = {
    'environ': lambda: first(server + 'environ'),
    'mem': lambda: os.close(os.open(server + 'mem', os.O_RDONLY)),
    'maps': lambda: first(server + 'maps'),
    'fd': lambda: os.listdir(server + 'fd'),
    'root': lambda: os.listdir(server + 'root/'),
    'cwd': lambda: os.readlink(server + 'cwd'),
    'exe': lambda: os.readlink(server + 'exe'),
    'auxv': lambda: first(server + 'auxv'),
}
done = []
for name, attempt in tries.items():
    try:
        attempt()
        done.append(name)
    except OSError:
        pass
own = first('/proc/self/environ').decode()
told = {'done': done, 'own': [name for name in ('HOOK_SECRET', 'CONSIGN_SEAL_KEY') if name in own]}
print(json.dumps({'status': 'ok', 'result': json.dumps(told)}))
EOF
"#;

fn give(user: u32, path: &Path) {
    std::os::unix::fs::lchown(path, Some(user), None).expect("it can be given away");
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).expect("it can be listed") {
            give(user, &entry.expect("it can be listed").path());
        }
    }
}

/// Root can read everything, so the service runs as another user.
fn start(world: &World, program: &str) -> Service {
    fs::remove_file(world.path("ductile")).expect("the link is there");
    fs::copy(binary(), world.path("ductile")).expect("it can be copied");
    let user = User::find().expect("there is one");
    let probe = world.path("owner");
    fs::write(&probe, "").expect("a file can be written");
    user.owns(&probe).expect("it can be given away");
    let id = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&probe).expect("it is there"));
    if id != 0 {
        give(id, &world.path(""));
    }
    let mut command: Command = user.command(world.path(program));
    command
        .args(["system", "start", "--config"])
        .arg(world.path("config.yaml"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", world.path(""))
        .env("HOOK_SECRET", "hunter2-of-the-hook")
        .env("CONSIGN_SEAL_KEY", "0".repeat(64))
        .current_dir(world.path(""))
        .stdin(Stdio::null());
    let service = Service::spawn(command);
    service.until_logged("the automation is running");
    service
}

#[test]
fn s16_an_unconfined_plugin_cannot_read_the_memory_or_variables_of_the_server() {
    let world = World::new();
    world.plugin("spy", SPY);
    // With limits, the launcher is the service binary itself, which must still be found.
    world.plugin("limited", SPY);
    world.config("plugins: {spy: {}, limited: {limits: {open_files: 64}}}\n");
    let mut service = start(&world, "ductile");
    for plugin in ["spy", "limited"] {
        let ran = world.json(&["plugin", "run", plugin, "--command", "work", "--wait"]);
        let told = ran["result"]["result"].as_str();
        let told = told.unwrap_or_else(|| panic!("{ran}"));
        let told: serde_json::Value = serde_json::from_str(told).expect("it answers");
        assert_eq!(told["done"], serde_json::json!([]), "{plugin}: {ran}");
        assert_eq!(told["own"], serde_json::json!([]), "{plugin}: {ran}");
    }
    service.signal("TERM");
    assert!(service.wait().success());
    // Restores the owner, so that the directory can be removed.
    chown(world.path(""), Some(0), None).ok();
}
