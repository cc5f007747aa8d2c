//! `consign worker run` against a running server: what becomes of intents, and how the worker ends.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use consign_testkit::process::{self, Http, Server};
use serde_json::{Value, json};

use super::{Place, binary, code, get, main_client, text, word};

/// Longer than a lease of the shortest length and what follows its end.
const LIMIT: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(20);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(POLL);
    }
}

struct Site {
    place: Place,
    server: Option<Server>,
}

impl Site {
    fn new() -> Self {
        let place = Place::new();
        let server = Some(place.start());
        Self { place, server }
    }

    fn http(&self) -> Http {
        main_client(self.server.as_ref().expect("the server runs"))
    }

    fn publish(&self, more: &Value) -> String {
        let mut body = json!({"goal": "work", "payload": {"n": 1}});
        let fields = body.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        let reply = self.http().post("/intent", &body).expect("an answer");
        assert_eq!(reply.status, 201, "{}", reply.text());
        word(&reply.json()["id"])
    }

    fn result(&self, id: &str) -> Value {
        get(&mut self.http(), &format!("/result/{id}")).json()
    }

    fn is(&self, id: &str, status: &str) -> bool {
        self.result(id)["status"] == status
    }

    fn facts(&self, id: &str) -> Vec<Value> {
        let reply = get(&mut self.http(), &format!("/intents/{id}/timeline"));
        let facts = reply.json()["facts"].clone();
        facts.as_array().expect("facts").clone()
    }

    /// The arguments of a worker whose command is a script of the shell; `$here` is the folder of the test.
    fn args(&self, flags: &[&str], script: &str) -> Vec<String> {
        let here = self.place.folder.path().display();
        let flags = flags.iter().map(ToString::to_string);
        let mut args: Vec<String> = ["worker", "run", "--goal", "work"]
            .map(str::to_owned)
            .into();
        args.extend(flags);
        args.extend(["--", "sh", "-c"].map(str::to_owned));
        args.push(format!("here='{here}'; {script}"));
        args
    }

    /// Works on one intent, to its end.
    fn once(&self, flags: &[&str], script: &str) -> (i32, String, String) {
        let args = self.args(&[&["--once"], flags].concat(), script);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = self.place.consign(&args);
        (code(&output), text(&output.stdout), text(&output.stderr))
    }

    fn worker(&self, flags: &[&str], script: &str) -> WorkerProcess {
        WorkerProcess::start(&self.place, &self.args(flags, script))
    }

    fn wait_for(&self, file: &str) {
        let path = self.place.path(file);
        until(file, || path.exists());
    }
}

/// A running worker. Dropping it kills it.
struct WorkerProcess {
    child: Child,
    stderr: PathBuf,
}

impl WorkerProcess {
    fn start(place: &Place, args: &[String]) -> Self {
        let stderr = place.path("worker.stderr");
        let log = File::options().create(true).append(true).open(&stderr);
        let child = process::cleaned(&binary())
            .args(args)
            .env("CONSIGN_DATA", place.data())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn();
        Self {
            child: child.expect("the worker starts"),
            stderr,
        }
    }

    fn signal(&self, name: &str) {
        process::signal(self.child.id(), name).expect("it runs");
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("the worker ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it ended")
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_output_of_a_command_is_the_result_as_json_or_as_text() {
    let site = Site::new();
    let id = site.publish(&json!({"payload": {"name": "Ada", "n": 1.50}}));
    let (exit, printed, said) = site.once(&["--json"], "cat");
    assert_eq!(exit, 0, "{said}");
    let line: Value = serde_json::from_str(&printed).expect("a line of JSON");
    assert_eq!(
        (&line["id"], &line["end"], &line["attempt"]),
        (&json!(id), &json!("fulfilled"), &json!(1))
    );
    let result = site.result(&id);
    assert_eq!(result["result_type"], "json");
    assert_eq!(result["result"], json!({"name": "Ada", "n": 1.5}));

    let id = site.publish(&json!({}));
    let show = "echo $CONSIGN_INTENT_ID $CONSIGN_GOAL $CONSIGN_NAMESPACE $CONSIGN_ATTEMPT $CONSIGN_WORKER_ID";
    let (exit, printed, said) = site.once(&["--worker-id", "w-7"], show);
    assert_eq!((exit, printed.as_str()), (0, ""), "{said}");
    assert!(
        said.contains(&id) && said.contains("fulfilled after"),
        "{said}"
    );
    let result = site.result(&id);
    assert_eq!(result["result_type"], "text");
    assert_eq!(result["result"], format!("{id} work default 1 w-7"));
    assert_eq!(result["worker"], "w-7");
}

#[test]
fn a_command_knows_the_trace_of_its_intent_and_no_output_is_no_result() {
    let site = Site::new();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut http = site.http().header("traceparent", trace);
    let body = json!({"goal": "work", "payload": null});
    let id = word(&http.post("/intent", &body).expect("an answer").json()["id"]);
    let script = "echo \"$TRACEPARENT\" > $here/trace";
    assert_eq!(site.once(&[], script).0, 0);
    let seen = std::fs::read_to_string(site.place.path("trace")).expect("the command ran");
    assert_eq!(seen.trim(), trace);
    assert_eq!(site.result(&id)["result"], Value::Null);
    assert!(site.is(&id, "fulfilled"));
}

#[test]
fn the_end_of_standard_error_is_the_reason_of_a_failure() {
    let site = Site::new();
    let id = site.publish(&json!({}));
    let script = "echo first >&2; seq 1 9000 >&2; echo 'KeyError: x' >&2; exit 3";
    let (exit, printed, said) = site.once(&["--json"], script);
    assert_eq!(exit, 1, "{said}");
    let line: Value = serde_json::from_str(&printed).expect("a line of JSON");
    assert_eq!(line["end"], "failed");
    let result = site.result(&id);
    assert_eq!(result["status"], "open", "it is tried again");
    let error = word(&result["error"]);
    assert_eq!(line["error"], error.as_str());
    assert!(error.starts_with("exit status 3; the end of"), "{error}");
    assert!(error.ends_with("\n8999\n9000\nKeyError: x"), "{error}");
    assert!(
        !error.contains("first") && !error.contains("left out"),
        "{error}"
    );
    assert!(
        error.len() > 7_000 && error.len() <= 8_192,
        "{}",
        error.len()
    );
}

#[test]
fn exit_78_and_results_that_are_too_large_end_an_intent_for_good() {
    let site = Site::new();
    let id = site.publish(&json!({}));
    let (exit, _, said) = site.once(&[], "echo wrong address >&2; exit 78");
    assert_eq!(exit, 1, "{said}");
    assert!(
        said.contains("failed after") && said.contains("exit status 78: wrong address"),
        "{said}"
    );
    let result = site.result(&id);
    assert_eq!(
        (&result["status"], &result["claim_attempts"]),
        (&json!("dead"), &json!(1))
    );
    assert_eq!(result["error"], "exit status 78\nwrong address");

    let id = site.publish(&json!({}));
    site.once(&[], "seq 1 5000");
    let result = site.result(&id);
    assert_eq!(result["status"], "dead");
    let error = word(&result["error"]);
    assert!(
        error.contains("its result has") && error.contains("the limit is 7168"),
        "{error}"
    );
}

#[test]
fn a_command_that_a_signal_ends_has_failed() {
    let site = Site::new();
    let id = site.publish(&json!({}));
    assert_eq!(site.once(&[], "kill -KILL $$").0, 1);
    let result = site.result(&id);
    assert_eq!(result["status"], "open");
    let error = word(&result["error"]);
    assert!(error.starts_with("killed by signal 9 (SIGKILL)"), "{error}");
}

#[test]
fn without_work_or_without_a_program_nothing_is_claimed() {
    let site = Site::new();
    let (exit, printed, said) = site.once(&[], "cat");
    assert_eq!(
        (exit, printed.as_str(), said.as_str()),
        (3, "", "nothing to claim\n")
    );
    let id = site.publish(&json!({}));
    let no_program = site.place.path("no-program");
    std::fs::write(&no_program, "words").expect("a file");
    let no_program = no_program.display().to_string();
    for wrong in ["/no/such/program", "no-such-program", &no_program] {
        let args = ["worker", "run", "--goal", "work", "--once", "--", wrong];
        let refused = site.place.consign(&args);
        assert_eq!(code(&refused), 2, "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("is not a program"));
    }
    let args = [
        "worker", "run", "--goal", "work", "--lease", "5s", "--", "true",
    ];
    assert_eq!(code(&site.place.consign(&args)), 2);
    assert_eq!(site.result(&id)["claim_attempts"], 0);
    // What only the system can tell ends the worker after one attempt.
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&no_program, mode).expect("own file");
    let args = ["worker", "run", "--goal", "work", "--", &no_program];
    let ended = site.place.consign(&args);
    assert_eq!(code(&ended), 1, "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("could not be started"));
    assert_eq!(site.result(&id)["claim_attempts"], 1);
}

#[test]
fn an_end_is_reported_and_the_next_intent_claimed_in_one_commit() {
    let site = Site::new();
    let ids: Vec<String> = (0..4)
        .map(|n| site.publish(&json!({"priority": 100 - n})))
        .collect();
    let mut worker = site.worker(&[], "cat");
    for id in &ids {
        until("it is fulfilled", || site.is(id, "fulfilled"));
    }
    for pair in ids.windows(2) {
        let (before, after) = (site.facts(&pair[0]), site.facts(&pair[1]));
        assert_eq!(before[2]["verb"], "completed");
        assert_eq!(after[1]["verb"], "claimed");
        assert_eq!(before[2]["at"], after[1]["at"]);
    }
    // An idle worker waits at the server, and takes what comes.
    let later = site.publish(&json!({}));
    until("it is fulfilled", || site.is(&later, "fulfilled"));
    worker.signal("INT");
    assert_eq!(worker.end().code(), Some(0), "{}", worker.said());
}

#[test]
fn a_command_that_takes_longer_than_its_lease_keeps_it() {
    let site = Site::new();
    let id = site.publish(&json!({}));
    let _worker = site.worker(&["--lease", "10s"], "sleep 13; echo done");
    until("it is fulfilled", || site.is(&id, "fulfilled"));
    let result = site.result(&id);
    assert_eq!(
        (&result["claim_attempts"], &result["result"]),
        (&json!(1), &json!("done"))
    );
    let verbs: Vec<String> = site
        .facts(&id)
        .iter()
        .map(|fact| word(&fact["verb"]))
        .collect();
    let extended = verbs.iter().filter(|verb| *verb == "extended").count();
    assert!(
        extended >= 4,
        "at the start and every third of the lease: {verbs:?}"
    );
}

#[test]
fn what_a_killed_worker_held_is_done_by_another_one() {
    let site = Site::new();
    let id = site.publish(&json!({}));
    let script = "echo $$ > $here/new; mv $here/new $here/pid; exec sleep 1000";
    let mut first = site.worker(&["--lease", "10s", "--worker-id", "first"], script);
    site.wait_for("pid");
    until("the lease is shortened", || {
        site.facts(&id)
            .iter()
            .any(|fact| fact["verb"] == "extended")
    });
    first.signal("KILL");
    first.end();
    let _second = site.worker(&["--worker-id", "second"], "echo taken over");
    until("it is fulfilled", || site.is(&id, "fulfilled"));
    let result = site.result(&id);
    assert_eq!(
        (
            &result["claim_attempts"],
            &result["worker"],
            &result["result"]
        ),
        (&json!(2), &json!("second"), &json!("taken over"))
    );
    let facts = site.facts(&id);
    let expired = facts.iter().find(|fact| fact["verb"] == "expired");
    assert_eq!(expired.expect("the lease ended")["worker"], "first");
    // The command of a killed worker has nobody who ends it.
    let pid = std::fs::read_to_string(site.place.path("pid")).expect("the command ran");
    process::signal(pid.trim().parse().expect("an id"), "KILL").expect("it runs");
}

#[test]
fn a_signal_ends_the_claims_and_lets_running_commands_end() {
    let site = Site::new();
    let held = site.publish(&json!({}));
    let script = "touch $here/began; while [ ! -e $here/gate ]; do sleep 0.05; done; echo done";
    let mut worker = site.worker(&[], script);
    site.wait_for("began");
    worker.signal("TERM");
    until("it says so", || {
        worker.said().contains("stopping: waiting for 1")
    });
    let late = site.publish(&json!({}));
    assert!(worker.is_running());
    std::fs::write(site.place.path("gate"), "").expect("a file");
    assert_eq!(worker.end().code(), Some(0), "{}", worker.said());
    assert_eq!(site.result(&held)["result"], "done");
    let late = site.result(&late);
    assert_eq!(
        (&late["status"], &late["claim_attempts"]),
        (&json!("open"), &json!(0))
    );
}

#[test]
fn after_the_grace_or_a_second_signal_commands_are_ended_and_their_intents_wait_again() {
    for (flags, script, second) in [
        (["--grace", "1s"], "touch $here/began; sleep 1000", false),
        (
            ["--grace", "1h"],
            "trap '' TERM; touch $here/began; while :; do sleep 0.1; done",
            true,
        ),
    ] {
        let site = Site::new();
        let id = site.publish(&json!({}));
        let mut worker = site.worker(&flags, script);
        site.wait_for("began");
        worker.signal("TERM");
        if second {
            until("it says so", || worker.said().contains("stopping"));
            worker.signal("TERM");
        }
        let asked = Instant::now();
        assert_eq!(worker.end().code(), Some(0), "{}", worker.said());
        assert!(
            asked.elapsed() < Duration::from_secs(8),
            "{:?}",
            asked.elapsed()
        );
        let result = site.result(&id);
        assert_eq!(
            (&result["status"], &result["claim_attempts"]),
            (&json!("open"), &json!(1))
        );
        let error = word(&result["error"]);
        assert!(
            error.starts_with("the worker was stopped before"),
            "{error}"
        );
        // It can be claimed at once.
        assert_eq!(site.once(&[], "cat").0, 0);
    }
}

#[test]
fn so_many_commands_run_at_a_time() {
    let site = Site::new();
    let ids: Vec<String> = (0..3).map(|_| site.publish(&json!({}))).collect();
    // Each waits for the others.
    let script = "touch $here/c-$CONSIGN_INTENT_ID; while [ $(ls $here | grep -c '^c-') -lt 3 ]; do sleep 0.05; done";
    let mut worker = site.worker(&["--concurrency", "3"], script);
    for id in &ids {
        until("it is fulfilled", || site.is(id, "fulfilled"));
    }
    worker.signal("TERM");
    assert_eq!(worker.end().code(), Some(0), "{}", worker.said());
}

#[test]
fn a_command_that_loses_its_lease_is_killed_with_its_children() {
    let site = Site::new();
    let id = site.publish(&json!({}));
    // The child holds the pipes open and would outlive the shell.
    let script =
        "(trap '' TERM; while :; do touch $here/alive; sleep 0.05; done) & touch $here/began; wait";
    let mut worker = site.worker(&["--lease", "10s"], script);
    site.wait_for("began");
    let mut admin = site
        .server
        .as_ref()
        .expect("it runs")
        .admin_client()
        .expect("a token");
    let path = format!("/admin/intents/{id}/cancel");
    assert_eq!(
        admin.post(&path, &json!({})).expect("an answer").status,
        200
    );
    until("the worker says so", || {
        worker.said().contains("lost after")
    });
    let alive = site.place.path("alive");
    let _ = std::fs::remove_file(&alive);
    let begin = Instant::now();
    until("a while passes", || {
        begin.elapsed() > Duration::from_millis(400)
    });
    assert!(!alive.exists(), "the child goes on");
    assert_eq!(site.result(&id)["error"], "Cancelled by admin");
    // The worker goes on.
    let next = site.publish(&json!({}));
    until("it is claimed", || site.is(&next, "claimed"));
    worker.signal("TERM");
    until("it says so", || worker.said().contains("stopping"));
    worker.signal("TERM");
    worker.end();
}

#[test]
fn a_worker_outlives_its_server_and_says_once_that_it_is_gone() {
    let mut site = Site::new();
    let mut worker = site.worker(&[], "cat");
    let first = site.publish(&json!({}));
    until("it is fulfilled", || site.is(&first, "fulfilled"));
    let mut server = site.server.take().expect("it runs");
    server.kill9().expect("it runs");
    drop(server);
    until("the worker says so", || {
        worker.said().contains("goes on trying")
    });
    site.server = Some(site.place.start());
    let second = site.publish(&json!({}));
    until("it is fulfilled", || site.is(&second, "fulfilled"));
    let said = worker.said();
    assert_eq!(said.matches("goes on trying").count(), 1, "{said}");
    assert!(said.contains("the server answers again"), "{said}");
    worker.signal("TERM");
    assert_eq!(worker.end().code(), Some(0), "{}", worker.said());
}
