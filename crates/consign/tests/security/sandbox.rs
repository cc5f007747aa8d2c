//! A plugin in a sandbox has no access to the service that runs it: neither to the control socket nor to keys, ledger,
//! configuration or the programs of other plugins, through any path.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::{Value, json};

use crate::automation_world::{OK, World, until};
use crate::place::{PATIENCE, Place, code, mode, start, text};

/// Tries all ways in which a plugin could access the service, and returns those that succeeded.
const ESCAPES: &str = r#"
PATH=/usr/local/bin:/usr/bin:/bin python3 - "$here" "$PPID" <<'EOF'
import json, os, signal, socket, subprocess, sys
here, server = sys.argv[1], int(sys.argv[2])
state = here + 'state/'
temporary = os.environ.get('TMPDIR', '/tmp')
token = ''
def read(path):
    with open(path, 'rb') as file:
        return file.read(64)
def ask(line, headers=''):
    found = socket.socket(socket.AF_UNIX)
    found.connect(state + 'ductile.sock')
    found.sendall((line + ' HTTP/1.1\r\nhost: a\r\nconnection: close\r\n' + headers + 'content-length: 2\r\n\r\n{}').encode())
    answer = b''
    while True:
        more = found.recv(65536)
        if not more:
            break
        answer += more
    status = answer.split(b' ')[1]
    assert status != b'401', answer
    return status
def abstract():
    found = socket.socket(socket.AF_UNIX)
    found.connect('\0' + os.path.basename(here.rstrip('/')))
def linked(make):
    def attempt():
        name = os.path.join(temporary, 'link')
        if os.path.lexists(name):
            os.unlink(name)
        make(state + 'keys/seal_key', name)
        return read(name)
    return attempt
def command(*words):
    program = [here + 'ductile', *words, '--config', here + 'config.yaml']
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def write(path):
    def attempt():
        with open(path, 'a') as file:
            file.write('\n')
    return attempt
tries = {
    'view': lambda: ask('GET /config/view'),
    'healthz': lambda: ask('GET /healthz'),
    'run another': lambda: ask('POST /plugin/victim/work'),
    'reload': lambda: ask('POST /system/reload'),
    'empty bearer': lambda: ask('GET /config/view', 'authorization: Bearer \r\n'),
    'some bearer': lambda: ask('GET /config/view', 'authorization: Bearer x\r\n'),
    'control token': lambda: read(state + 'keys/control_token'),
    'seal key': lambda: read(state + 'keys/seal_key'),
    'list keys': lambda: os.listdir(state + 'keys'),
    'list state': lambda: os.listdir(state),
    'ledger': lambda: read(state + 'ductile.db'),
    'write ledger': write(state + 'ductile.db'),
    'configuration': lambda: read(here + 'config.yaml'),
    'write configuration': write(here + 'config.yaml'),
    'write program': write(here + 'plugins/victim/run'),
    'write own program': write(here + 'plugins/boxed/run'),
    'new plugin': lambda: os.mkdir(here + 'plugins/aaa'),
    'hard link': linked(os.link),
    'symbolic link': linked(os.symlink),
    'move keys': lambda: os.rename(state + 'keys', temporary + '/keys'),
    'environ': lambda: read('/proc/%d/environ' % server),
    'memory': lambda: read('/proc/%d/mem' % server),
    'root': lambda: os.listdir('/proc/%d/root/' % server),
    'descriptors': lambda: os.listdir('/proc/%d/fd' % server),
    'probe': lambda: os.kill(server, 0),
    'reload by signal': lambda: os.kill(server, signal.SIGHUP),
    'kill': lambda: os.kill(server, signal.SIGKILL),
    'abstract socket': abstract,
    'command line': lambda: command('job', 'list'),
    'command line runs another': lambda: command('plugin', 'run', 'victim'),
    'others\' files': lambda: os.listdir(here),
}
done = []
for name, attempt in tries.items():
    try:
        attempt()
        done.append(name)
    except Exception:
        pass
# What it must be able to do.
with open(os.path.join(temporary, 'own'), 'w') as file:
    file.write('x')
able = [read(os.path.join(temporary, 'own')) == b'x', subprocess.run(['true']).returncode == 0]
print(json.dumps({'status': 'ok', 'result': json.dumps({'done': done, 'able': able})}))
EOF
"#;

const CONFIG: &str = "\
plugins:
  boxed: {sandbox: true, retry: {max_attempts: 1}}
  free: {retry: {max_attempts: 1}}
  victim: {}
";

/// Signals and abstract sockets are confined since Linux 6.12.
fn has_scopes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("it is there");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0_u32);
    (next(), next()) >= (6, 12)
}

fn ran(world: &World, plugin: &str) -> Value {
    let ran = world.json(&["plugin", "run", plugin, "--command", "work", "--wait"]);
    let told = ran["result"]["result"]
        .as_str()
        .unwrap_or_else(|| panic!("{ran}"));
    serde_json::from_str(told).unwrap_or_else(|_| panic!("{ran}"))
}

#[test]
fn s3_a_sandboxed_plugin_reaches_nothing_of_the_service() {
    let world = World::new();
    world.plugin("boxed", ESCAPES);
    world.plugin("free", ESCAPES);
    world.plugin("victim", &format!("touch \"$here/victim-ran\"\n{OK}"));
    world.config(CONFIG);
    let name = world.path("");
    let name = name.file_name().expect("it has one").to_owned();
    let name = SocketAddr::from_abstract_name(name.as_encoded_bytes()).expect("it is short");
    let _listener = UnixListener::bind_addr(&name).expect("nobody else listens there");
    let mut service = world.start();
    let told = ran(&world, "boxed");
    assert_eq!(told["able"], json!([true, true]), "{told}");
    let done = told["done"].as_array().expect("a list").iter();
    let scoped = ["probe", "reload by signal", "kill", "abstract socket"];
    let done: Vec<&Value> = done
        .filter(|name| has_scopes() || !scoped.contains(&name.as_str().unwrap_or_default()))
        .collect();
    assert!(done.is_empty(), "{done:?}");
    assert!(!world.path("victim-ran").exists());
    assert_eq!(mode(&world.path("state/tmp/boxed")), 0o700);

    // Without a sandbox the same attempts succeed, which shows that they are real. Without the token the socket refuses all
    // requests.
    let script = fs::read_to_string(world.path("plugins/free/run")).expect("it is there");
    let harmful = [
        "'move keys'",
        "'write ledger'",
        "'kill'",
        "'write configuration'",
    ];
    let harmless = harmful
        .iter()
        .fold(script, |script, name| script.replace(name, "#"));
    fs::write(world.path("plugins/free/run"), harmless).expect("it can be written");
    let told = ran(&world, "free");
    for name in [
        "control token",
        "seal key",
        "ledger",
        "write program",
        "hard link",
        "abstract socket",
        "command line",
    ] {
        let done = told["done"].as_array().expect("a list");
        assert!(done.contains(&json!(name)), "{name}: {told}");
    }
    for name in [
        "view",
        "healthz",
        "run another",
        "reload",
        "empty bearer",
        "some bearer",
    ] {
        let done = told["done"].as_array().expect("a list");
        assert!(!done.contains(&json!(name)), "{name}: {told}");
    }
    service.signal("TERM");
    assert!(service.wait().success());
}

#[test]
fn s3_a_sandbox_cannot_be_opened_to_what_is_the_services_own() {
    let world = World::new();
    world.plugin("boxed", OK);
    fs::create_dir_all(world.path("state/keys")).expect("it can be made");
    fs::set_permissions(world.path("state/keys"), fs::Permissions::from_mode(0o700))
        .expect("it can be set");
    fs::create_dir_all(world.path("state/out")).expect("it can be made");
    std::os::unix::fs::symlink(world.path("state"), world.path("link")).expect("it can be made");
    let at = |name: &str| world.path(name).display().to_string();
    for (key, path) in [
        ("read", "/".to_owned()),
        ("read", at("")),
        ("write", at("")),
        ("read", at("state")),
        ("write", at("state/")),
        ("read", at("state/../state")),
        ("read", at("state/keys")),
        ("read", at("state/keys/seal_key")),
        ("read", at("state/ductile.db")),
        ("read", at("link")),
        ("write", at("link/keys")),
        ("read", at("config.yaml")),
        ("write", at("plugins")),
        ("write", at("plugins/boxed")),
        ("write", at("plugins/boxed/cache")),
    ] {
        world.config(&format!(
            "plugins: {{boxed: {{sandbox: {{{key}: ['{path}']}}}}}}\n"
        ));
        let refused = world.refused();
        assert_eq!(code(&refused), 78, "{key} {path}: {refused:?}");
        let said = text(&refused.stderr);
        assert!(
            said.contains(&format!("plugins.boxed.sandbox.{key}")),
            "{said}"
        );
    }
    // Paths beside it are allowed.
    world.config(&format!(
        "plugins: {{boxed: {{sandbox: {{read: ['{}'], write: ['{}']}}}}}}\n",
        at("plugins"),
        at("state/out")
    ));
    let ran = world.ductile(&["plugin", "run", "boxed", "--command", "work"]);
    assert_eq!(code(&ran), 0, "{ran:?}");
}

#[test]
fn s3_the_data_directory_of_a_server_is_closed_too() {
    let world = World::new();
    let place = Place::new();
    let data = place.data().display().to_string();
    let body = format!(
        "cat '{data}/keys/bus_secret' '{data}/consign.db' >/dev/null 2>&1 && echo '{{\"status\":\"ok\",\"result\":\"read\"}}' && exit\n\
         echo '{{\"status\":\"ok\",\"result\":\"closed\"}}'"
    );
    world.plugin("usual", &body);
    world.plugin("wide", &body);
    world.config(&format!(
        "plugins: {{usual: {{sandbox: true}}, wide: {{sandbox: {{read: ['{data}']}}, retry: {{max_attempts: 1}}}}}}\n"
    ));
    let config = world.path("config.yaml");
    let config = config.to_str().expect("temporary folders have plain names");
    let mut server = start(&place.options().arg("--config").arg(config));
    let run = |plugin| world.json(&["plugin", "run", plugin, "--command", "work", "--wait"]);
    assert_eq!(run("usual")["result"]["result"], "closed");
    let refused = run("wide");
    assert_ne!(refused["status"], "succeeded", "{refused}");
    let job = refused["job_id"].as_str().expect("it was queued");
    let shown = world.json(&["job", "show", job]).to_string();
    assert!(shown.contains("belongs to the service itself"), "{shown}");
    assert!(server.terminate(PATIENCE).expect("it ends").success());
}

#[test]
fn s3_the_token_of_the_control_socket_is_private_and_new_at_each_start() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {}}\n");
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut service = world.start();
        let file = world.path("state/keys/control_token");
        assert_eq!(mode(&file), 0o600);
        let token = fs::read_to_string(&file)
            .expect("it is there")
            .trim()
            .to_owned();
        assert!(token.len() >= 64 && !tokens.contains(&token), "{tokens:?}");
        assert!(!service.lines().join("\n").contains(&token));
        assert_eq!(code(&world.ductile(&["job", "list"])), 0);
        assert_eq!(code(&world.consign(&["job", "list"])), 0);

        fs::write(&file, format!("{}\n", "0".repeat(64))).expect("it can be written");
        let refused = world.ductile(&["job", "list"]);
        assert_ne!(code(&refused), 0);
        let said = text(&refused.stderr);
        assert!(
            said.contains("control_token") && said.contains("hint: "),
            "{said}"
        );
        fs::remove_file(&file).expect("it is there");
        let said = text(&world.ductile(&["job", "list"]).stderr);
        assert!(said.contains("restart the service"), "{said}");
        tokens.push(token);
        service.signal("TERM");
        assert!(service.wait().success());
        until("the socket is gone", || {
            !world.path("state/ductile.sock").exists()
        });
    }
}
