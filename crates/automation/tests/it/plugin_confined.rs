//! Confined plugins: limits and sandboxes, from the configuration to the process.

use std::fs;
use std::path::{Path, PathBuf};

use consign_automation::plugin::confine::{Confinement, GuardedPaths};
use consign_automation::plugin::outcome::{FailureReason, PluginFailure, PluginOutcome, classify};
use consign_automation::plugin::run::{Launcher, ProcessEnd, ProcessSpec};
use serde_json::Value;

use crate::plugin_world::{OK, World, configured, environment, failure, finish};

/// The `limits` and `sandbox` of a plugin, as written in a configuration.
fn confinement(world: &World, keys: &str) -> Confinement {
    let text = format!("plugin_roots: [plugins]\nplugins:\n  p:\n{keys}");
    configured(world, &text).unwrap().plugins["p"]
        .confinement
        .clone()
}

fn refused(keys: &str) -> String {
    let world = World::new();
    let text = format!("plugin_roots: [plugins]\nplugins:\n  p:\n{keys}");
    configured(&world, &text).unwrap_err()
}

fn launcher() -> Launcher {
    Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_plugin-launch")),
        arguments: Vec::new(),
    }
}

async fn run_confined(world: &World, mut job: ProcessSpec, keys: &str) -> ProcessEnd {
    let directory = job.entrypoint.parent().unwrap().to_path_buf();
    let temporary = world.path("temporary");
    fs::create_dir_all(&temporary).unwrap();
    job.environment.insert("TMPDIR".into(), temporary.into());
    let confinement = confinement(world, keys);
    job.launcher = confinement.launcher(
        &launcher(),
        &directory,
        &job.environment,
        &GuardedPaths::default(),
    );
    assert!(job.launcher.is_some());
    finish(job).await
}

fn result(ended: &ProcessEnd) -> Value {
    let PluginOutcome::Succeeded(response) = classify(ended) else {
        panic!("{ended:?}");
    };
    serde_json::from_str(&response.result).unwrap()
}

/// Tries each operation on a path, and responds with a letter for each that worked.
const TRIES: &str = r"
def tries(path):
    done = ''
    for letter, try_it in [
        ('r', lambda: open(path).read()),
        ('l', lambda: os.listdir(path)),
        ('w', lambda: open(path, 'a').write('x')),
        ('t', lambda: os.truncate(path, 0)),
        ('c', lambda: open(os.path.join(path, 'new'), 'w').close()),
        ('d', lambda: os.rename(os.path.join(path, 'new'), os.path.join(path, 'newer'))),
    ]:
        try:
            try_it()
            done += letter
        except OSError:
            pass
    return done
";

fn trying(world: &World, paths: &[&Path]) -> ProcessSpec {
    let paths: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let paths = serde_json::to_string(&paths).unwrap();
    world.python(&format!(
        "{TRIES}\nprint(json.dumps({{'status': 'ok', 'result': json.dumps([tries(p) for p in {paths}])}}))"
    ))
}

#[tokio::test]
async fn a_sandbox_opens_what_is_named_and_nothing_else() {
    let world = World::new();
    let secret = world.file("elsewhere/secret", "secret", 0o644);
    let input = world.file("input/data", "data", 0o644);
    let output = world.file("output/data", "data", 0o644);
    let own = world.file("plugin/table", "table", 0o644);
    let paths = [
        secret.as_path(),
        secret.parent().unwrap(),
        &input,
        input.parent().unwrap(),
        &output,
        output.parent().unwrap(),
        &own,
        own.parent().unwrap(),
        &world.path("temporary"),
        Path::new("/usr"),
    ];
    let keys = format!(
        "    sandbox: {{read: [{}], write: [{}]}}\n",
        input.parent().unwrap().display(),
        output.parent().unwrap().display()
    );
    let confined = result(&run_confined(&world, trying(&world, &paths), &keys).await);
    let expected = ["", "", "r", "l", "rwt", "lcd", "r", "l", "lcd", "l"];
    assert_eq!(confined, serde_json::json!(expected));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");

    // Without a sandbox all of it is possible; otherwise the test would prove nothing.
    let free = result(&finish(trying(&world, &paths[..2])).await);
    assert_eq!(free, serde_json::json!(["rwt", "lcd"]));
}

#[tokio::test]
async fn of_etc_a_sandbox_opens_what_programs_need_and_no_configuration() {
    let world = World::new();
    let etc = Path::new("/etc");
    let [users, hidden] = ["passwd", "profile"].map(|name| etc.join(name));
    assert!(users.exists() && hidden.exists(), "so nothing was tried");
    let job = trying(&world, &[&users, &hidden, etc]);
    let confined = run_confined(&world, job, "    sandbox: true\n").await;
    assert_eq!(result(&confined), serde_json::json!(["r", "", ""]));
    assert_eq!(confined.stderr.text(), "", "the interpreter lacks nothing");
    // Further paths can be configured.
    let job = trying(&world, &[&hidden]);
    let named = run_confined(&world, job, "    sandbox: {read: [/etc/profile]}\n").await;
    assert_eq!(result(&named), serde_json::json!(["r"]));
}

async fn run_guarded(
    world: &World,
    mut job: ProcessSpec,
    keys: &str,
    guarded: &GuardedPaths,
) -> ProcessEnd {
    let directory = job.entrypoint.parent().unwrap().to_path_buf();
    let confinement = confinement(world, keys);
    job.launcher = confinement.launcher(&launcher(), &directory, &job.environment, guarded);
    finish(job).await
}

#[tokio::test]
async fn what_is_guarded_is_left_out_of_the_systems_own_directories() {
    let world = World::new();
    let [hidden, above, beside] = ["/usr/share/doc", "/usr/share", "/usr/lib"].map(Path::new);
    assert!(hidden.exists() && beside.exists(), "so nothing was tried");
    let guarded = GuardedPaths::default().and_hidden([hidden.to_path_buf()]);
    let job = trying(&world, &[hidden, above, beside]);
    let ended = run_guarded(&world, job, "    sandbox: true\n", &guarded).await;
    assert_eq!(result(&ended), serde_json::json!(["", "", "l"]));
}

#[tokio::test]
async fn a_plugin_gets_a_temporary_directory_of_its_own_where_the_usual_one_holds_what_is_guarded()
{
    let world = World::new();
    let secret = world.file("usual/state/keys/secret", "secret", 0o644);
    let other = world.file("usual/other", "x", 0o644);
    let own = world.path("usual/state/tmp/p");
    let guarded = GuardedPaths {
        hidden: vec![world.path("usual/state/keys")],
        kept: Vec::new(),
        spare: Some(own.clone()),
    };
    let mut job = trying(&world, &[&secret, &other, &world.path("usual"), &own]);
    let usual = world.path("usual");
    job.environment
        .insert("TMPDIR".into(), usual.clone().into());
    let ended = run_guarded(&world, job.clone(), "    sandbox: true\n", &guarded).await;
    assert_eq!(result(&ended), serde_json::json!(["", "", "", "lcd"]));
    let body = "print(json.dumps({'status': 'ok', 'result': json.dumps(os.environ['TMPDIR'])}))";
    let mut asking = world.python(body);
    asking.environment.insert("TMPDIR".into(), usual.into());
    let ended = run_guarded(&world, asking, "    sandbox: true\n", &guarded).await;
    assert_eq!(result(&ended), own.to_str().unwrap());

    // Without Landlock, nothing runs.
    let guarded = GuardedPaths::default().and_hidden(guarded.hidden);
    let failure = failure(&run_guarded(&world, job, "    sandbox: true\n", &guarded).await);
    assert_eq!(failure.reason, FailureReason::ExitCode78);
}

#[tokio::test]
async fn a_sandbox_that_would_open_what_is_guarded_runs_nothing() {
    let world = World::new();
    world.file("state/keys/secret", "secret", 0o644);
    world.file("plugin/table", "", 0o644);
    let state = world.path("state");
    let guarded = GuardedPaths {
        hidden: vec![state.join("keys")],
        kept: vec![world.path("plugin")],
        spare: Some(state.join("tmp")),
    };
    for (key, path) in [
        ("read", state.clone()),
        ("read", state.join("keys/secret")),
        ("write", state.join("../state")),
        ("write", world.path("plugin/new")),
    ] {
        let keys = format!("    sandbox: {{{key}: ['{}']}}\n", path.display());
        let failure = failure(&run_guarded(&world, world.bash(OK), &keys, &guarded).await);
        assert_eq!(failure.reason, FailureReason::ExitCode78, "{key} {path:?}");
        assert!(
            failure.error.contains("belongs to the service itself"),
            "{failure:?}"
        );
    }
}

#[test]
fn the_unit_for_systemd_lets_plugins_confine_themselves() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/consign-automation.service");
    let unit = fs::read_to_string(unit).unwrap();
    let filter = unit
        .lines()
        .find_map(|line| line.strip_prefix("SystemCallFilter="));
    let allowed: Vec<&str> = filter.unwrap().split(' ').collect();
    for call in ["create_ruleset", "add_rule", "restrict_self"] {
        let call = format!("landlock_{call}");
        assert!(
            allowed.contains(&call.as_str()),
            "{call} ends a plugin with SIGSYS"
        );
    }
}

#[tokio::test]
async fn sandbox_true_leaves_the_temporary_directory_alone_writable_and_files_work_by_name() {
    let world = World::new();
    let one = world.file("elsewhere/one", "1", 0o644);
    let other = world.file("elsewhere/other", "2", 0o644);
    let temporary = world.path("temporary");
    let paths = [one.as_path(), &other, &temporary, &world.path("plugin")];
    let ended = run_confined(&world, trying(&world, &paths), "    sandbox: true\n").await;
    assert_eq!(result(&ended), serde_json::json!(["", "", "lcd", "l"]));
    let keys = format!("    sandbox: {{write: [{}]}}\n", one.display());
    let ended = run_confined(&world, trying(&world, &paths), &keys).await;
    let left: Vec<Value> = result(&ended).as_array().unwrap()[..2].to_vec();
    assert_eq!(left, ["rwt", ""]);
}

#[tokio::test]
async fn children_of_a_sandboxed_plugin_are_in_its_sandbox_and_cannot_signal_out() {
    let world = World::new();
    let secret = world.file("elsewhere/secret", "secret", 0o644);
    let path = secret.display();
    let script = format!(
        "setsid bash -c 'cat {path} >&2; echo x > {path}; kill -0 {} && echo signalled >&2'; echo > /dev/null\n{OK}",
        std::process::id()
    );
    let ended = run_confined(&world, world.bash(&script), "    sandbox: true\n").await;
    assert!(
        matches!(classify(&ended), PluginOutcome::Succeeded(_)),
        "{ended:?}"
    );
    assert!(!ended.stderr.text().contains("signalled"), "{ended:?}");
    assert_eq!(ended.stderr.text().matches("Permission denied").count(), 2);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
}

#[tokio::test]
async fn a_sandbox_that_names_what_is_not_there_fails_with_the_path_and_is_not_retried() {
    let world = World::new();
    let missing = world.path("missing");
    let keys = format!("    sandbox: {{write: [{}]}}\n", missing.display());
    let failure = failure(&run_confined(&world, world.bash(OK), &keys).await);
    assert_eq!(failure.reason, FailureReason::ExitCode78);
    assert!(
        failure.error.contains(missing.to_str().unwrap()),
        "{failure:?}"
    );
}

/// Makes the kernel respond like one without Landlock: the first system call does not exist.
const WITHOUT_LANDLOCK: &str = r"#!/usr/bin/env python3
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_void_p)]
program = Program(4, ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[tokio::test]
async fn a_kernel_without_landlock_runs_nothing_unless_less_is_enough() {
    let world = World::new();
    let base = Launcher {
        program: world.file("without-landlock", WITHOUT_LANDLOCK, 0o755),
        arguments: vec![launcher().program.into()],
    };
    let start = async |keys: &str| {
        let mut job = world.bash(OK);
        let confinement = confinement(&world, keys);
        job.launcher = confinement.launcher(
            &base,
            &world.path("plugin"),
            &job.environment,
            &GuardedPaths::default(),
        );
        finish(job).await
    };
    let failure = failure(&start("    sandbox: true\n").await);
    assert_eq!(failure.reason, FailureReason::ExitCode78);
    assert!(
        failure.error.contains("sandbox.best_effort: true"),
        "{failure:?}"
    );
    let ended = start("    sandbox: {best_effort: true}\n").await;
    assert!(
        matches!(classify(&ended), PluginOutcome::Succeeded(_)),
        "{ended:?}"
    );
}

#[tokio::test]
async fn each_limit_ends_what_exceeds_it() {
    let world = World::new();
    let big = world.path("temporary/big");
    let big = big.display();
    for (limit, body, told) in [
        (
            "memory: 256MB",
            "x = bytearray(600 << 20)".to_owned(),
            "MemoryError",
        ),
        ("cpu: 500ms", "while True: pass".to_owned(), "limits.cpu"),
        (
            "open_files: 20",
            "held = [open('/dev/null') for _ in range(40)]".to_owned(),
            "Too many open files",
        ),
        (
            "file_size: 1MB",
            format!(
                "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('{big}', 'wb').write(b'x' * (2 << 20))"
            ),
            "limits.file_size",
        ),
    ] {
        let ok = "print(json.dumps({'status': 'ok', 'result': '1'}))";
        let keys = format!("    limits: {{{limit}}}\n");
        let free = run_confined(&world, world.python(ok), &keys).await;
        assert_eq!(result(&free), 1, "{limit} is too little for anything");
        let failure: PluginFailure =
            failure(&run_confined(&world, world.python(&format!("{body}\n{ok}")), &keys).await);
        assert_eq!(
            failure.reason,
            FailureReason::NilResponse,
            "{limit}: {failure:?}"
        );
        assert!(failure.error.contains(told), "{limit}: {failure:?}");
    }
    assert!(fs::metadata(world.path("temporary/big")).unwrap().len() <= 1 << 20);
}

#[tokio::test]
async fn every_limit_reaches_the_plugin_and_its_environment_and_process_stay_the_same() {
    let world = World::new();
    let body = "import resource as r\n\
        names = ['RLIMIT_AS', 'RLIMIT_CPU', 'RLIMIT_NOFILE', 'RLIMIT_NPROC', 'RLIMIT_FSIZE']\n\
        seen = [r.getrlimit(getattr(r, name))[0] for name in names] + [sys.argv[1:], os.getpid() == os.getpgrp(), 'SECRET' in os.environ]\n\
        print(json.dumps({'status': 'ok', 'result': json.dumps(seen)}))";
    let keys =
        "    limits: {memory: 512MB, cpu: 60s, open_files: 256, processes: 64, file_size: 100MB}\n";
    let ended = run_confined(&world, world.python(body), keys).await;
    let expected = serde_json::json!([512 << 20, 60, 256, 64, 100 << 20, [], true, false]);
    assert_eq!(result(&ended), expected);
}

#[tokio::test]
async fn a_confined_program_that_cannot_start_says_why_du_038() {
    let world = World::new();
    for (program, part) in [
        (
            world.file("odd", "#!/no/such/interpreter\n", 0o755),
            "interpreter",
        ),
        (world.path("gone"), "install the plugin again"),
    ] {
        let mut job = world.bash(OK);
        job.entrypoint = program;
        let failure = failure(&run_confined(&world, job, "    limits: {open_files: 64}\n").await);
        assert_eq!(failure.reason, FailureReason::PluginError);
        assert!(
            failure.is_retryable() && failure.error.contains(part),
            "{failure:?}"
        );
    }
    let mut job = world.bash(OK);
    job.launcher = Some(Launcher {
        program: world.path("no-launcher"),
        arguments: Vec::new(),
    });
    let failure = failure(&finish(job).await);
    assert_eq!(failure.reason, FailureReason::SpawnError);
    assert!(failure.error.contains("no-launcher"), "{failure:?}");
}

#[test]
fn a_plugin_without_these_keys_has_no_launcher() {
    let world = World::new();
    for keys in [
        "    enabled: true\n",
        "    sandbox: false\n",
        "    limits: {}\n",
    ] {
        let confinement = confinement(&world, keys);
        let found = confinement.launcher(
            &launcher(),
            &world.path(""),
            &environment(),
            &GuardedPaths::default(),
        );
        assert_eq!(found, None, "{keys}");
    }
}

#[test]
fn limits_and_sandboxes_that_mean_nothing_are_refused_with_their_key() {
    for (keys, told) in [
        ("    limits: {memory: much}\n", "plugins.p.limits.memory"),
        ("    limits: {cpu: 60}\n", "plugins.p.limits.cpu"),
        (
            "    limits: {open_files: 0}\n",
            "plugins.p.limits.open_files",
        ),
        ("    limits: [1]\n", "plugins.p.limits"),
        ("    sandbox: maybe\n", "plugins.p.sandbox"),
        (
            "    sandbox: {write: [data]}\n",
            "`data`, which is not absolute",
        ),
        (
            "    sandbox: {best_effort: perhaps}\n",
            "plugins.p.sandbox.best_effort",
        ),
        ("    sandbox: 7\n", "plugins.p.sandbox"),
    ] {
        let problems = refused(keys);
        assert!(problems.contains(told), "{keys}: {problems}");
    }
}
