//! The `store` commands on both kinds of database: a moved ledger is complete.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use consign_testkit::postgres::{self, Cluster, Database};
use consign_testkit::process::Http;
use serde_json::{Value, json};

use super::{Place, code, get, main_client, printed, published, start, status_of, text};

pub(crate) fn database() -> Database {
    let cluster = postgres::shared().expect("PostgreSQL can be started");
    cluster
        .database("consign_nothing", |_| {})
        .expect("a database can be made")
}

fn copy(place: &Place, from: &str, to: &str, more: &[&str]) -> std::process::Output {
    let args = [
        &["store", "copy", "--json", "--from", from, "--to", to],
        more,
    ]
    .concat();
    place.consign(&args)
}

fn claim(http: &mut Http) -> Value {
    let claimed = http.send("POST", "/claim", &[], None);
    claimed.expect("the server answers").json()
}

fn fulfil(http: &mut Http, claimed: &Value) -> u16 {
    let body = json!({"claim_token": claimed["claim_token"], "result": {"ok": true}});
    let path = format!("/fulfill/{}", super::word(&claimed["id"]));
    http.post(&path, &body).expect("the server answers").status
}

fn rows(report: &Value, table: &str) -> u64 {
    let tables = report["tables"].as_array().expect("there are tables");
    let found = tables.iter().find(|row| row["table"] == table);
    found.and_then(|row| row["rows"].as_u64()).unwrap_or(0)
}

#[test]
fn a_ledger_moves_to_postgres_and_back_and_work_goes_on() {
    let place = Place::new();
    let database = database();
    let (url, file) = (
        database.url(),
        format!("sqlite:{}", place.path("data/consign.db").display()),
    );
    let (first, second, held) = {
        let server = place.start();
        let mut http = main_client(&server);
        let held = published(&mut http, "held");
        let held = (held, claim(&mut http));
        let first = published(&mut http, "first");
        (first, published(&mut http, "second"), held)
    };
    let rehearsed = printed(&copy(&place, &file, &url, &["--dry-run"]));
    assert_eq!(
        (&rehearsed["dry_run"], &rehearsed["target"]),
        (&true.into(), &"nothing".into())
    );
    assert_eq!(rows(&rehearsed, "intents"), 3);
    assert_eq!(
        code(&place.consign(&["store", "check", "--store", &url])),
        3,
        "nothing is there"
    );

    let moved = printed(&copy(&place, &file, &url, &[]));
    assert_eq!((rows(&moved, "intents"), rows(&moved, "facts")), (3, 4));
    let again = copy(&place, &file, &url, &[]);
    assert_eq!(code(&again), 1);
    assert!(
        text(&again.stderr).contains("never overwritten"),
        "{again:?}"
    );

    let on_database = place.options().arg("--store").arg(&url);
    {
        let server = start(&on_database);
        let mut http = main_client(&server);
        assert_eq!(fulfil(&mut http, &held.1), 200, "a lease survives");
        let claimed = claim(&mut http);
        assert_eq!(claimed["id"], first.as_str(), "in the order of before");
        assert_eq!(fulfil(&mut http, &claimed), 200);
        published(&mut http, "third");

        let checked = place.consign(&["store", "check", "--json", "--store", &url]);
        assert_eq!(printed(&checked)["ok"], true, "while it is in use");
        let migrated = place.consign(&["store", "migrate", "--json", "--store", &url]);
        assert_eq!(printed(&migrated)["migrations"], json!([]));
        let busy = copy(
            &place,
            &url,
            &format!("sqlite:{}", place.path("x.db").display()),
            &[],
        );
        assert!(text(&busy.stderr).contains("is in use"), "{busy:?}");
        let saved = place.path("saved.db");
        let backup = [
            "store",
            "backup",
            &saved.to_string_lossy(),
            "--store",
            &url,
            "--json",
        ];
        assert!(printed(&place.consign(&backup))["bytes"].as_u64() > Some(0));
        assert_eq!(super::mode(&saved), 0o600);
    }
    let saved = format!("sqlite:{}", place.path("saved.db").display());
    let back = place.path("back.db");
    let back_url = format!("sqlite:{}", back.display());
    let returned = printed(&copy(&place, &url, &back_url, &[]));
    assert_eq!(rows(&returned, "intents"), 4);
    for store in [&saved, &back_url] {
        let checked = place.consign(&["store", "check", "--json", "--store", store]);
        assert_eq!(printed(&checked)["ok"], true, "{store}");
        let server = start(&place.options().arg("--store").arg(store));
        let mut http = main_client(&server);
        assert_eq!(status_of(&mut http, &held.0), "fulfilled");
        assert_eq!(claim(&mut http)["id"], second.as_str());
        assert_eq!(
            get(&mut http, "/intents").json()["intents"]
                .as_array()
                .map(Vec::len),
            Some(4)
        );
    }
}

#[test]
fn a_file_in_use_is_not_copied_and_nothing_is_made() {
    let place = Place::new();
    let server = place.start();
    published(&mut main_client(&server), "kept");
    let file = format!("sqlite:{}", place.path("data/consign.db").display());
    let other = place.path("other.db");
    let to = format!("sqlite:{}", other.display());
    for more in [&[][..], &["--dry-run"]] {
        let refused = copy(&place, &file, &to, more);
        assert_eq!(code(&refused), 1, "{refused:?}");
        assert!(text(&refused.stderr).contains("in use by"), "{refused:?}");
        assert!(!other.exists());
    }
    drop(server);
    let same = copy(&place, &file, &file, &[]);
    assert_eq!(code(&same), 2, "{same:?}");
    assert!(text(&same.stderr).contains("the same file"), "{same:?}");
    let nothing = copy(&place, &to, &file, &[]);
    assert_eq!(code(&nothing), 3, "{nothing:?}");
    assert!(printed(&copy(&place, &file, &to, &[]))["resumed"] == false);
}

#[test]
fn missing_migrations_are_named_and_applied_and_a_development_schema_is_refused() {
    let place = Place::new();
    published(&mut main_client(&place.start()), "kept");
    let migrate = |more: &[&str]| {
        let args = [&["store", "migrate", "--json"], more].concat();
        printed(&place.consign(&args))["migrations"].clone()
    };
    assert_eq!(migrate(&[]), json!([]));
    // A ledger of a development version has other migrations.
    let file = place.path("data/consign.db");
    let other = rusqlite::Connection::open(&file).unwrap();
    let older = "UPDATE migrations SET name = 'ledger'";
    other.execute(older, []).unwrap();
    drop(other);
    for args in [
        &["store", "migrate"][..],
        &["store", "migrate", "--dry-run"],
    ] {
        let refused = place.consign(args);
        assert_eq!(code(&refused), 1, "{refused:?}");
        let reason = text(&refused.stderr);
        assert!(reason.contains("development version"), "{reason}");
    }
    // An interrupted first start has marked the file but has not created its tables.
    std::fs::remove_file(&file).unwrap();
    let marked = rusqlite::Connection::open(&file).unwrap();
    let mark = "PRAGMA application_id = 0x434e5347; CREATE TABLE t (x); DROP TABLE t";
    marked.execute_batch(mark).unwrap();
    drop(marked);
    let to = format!("sqlite:{}", place.path("to.db").display());
    let from = format!("sqlite:{}", file.display());
    let refused = copy(&place, &from, &to, &[]);
    assert!(
        text(&refused.stderr).contains("consign store migrate"),
        "{refused:?}"
    );
    let missing = json!(["0001 initial", "0002 mesh", "0003 workers"]);
    assert_eq!(migrate(&["--dry-run"]), missing);
    assert_eq!(migrate(&["--dry-run"]), missing, "nothing was changed");
    assert_eq!(migrate(&[]), missing);
    assert_eq!(migrate(&[]), json!([]));
    assert_eq!(rows(&printed(&copy(&place, &from, &to, &[])), "facts"), 0);
}

/// A primary with a ledger, and a standby that replicates it.
struct Replicated {
    primary: Cluster,
    standby: Cluster,
    _folder: tempfile::TempDir,
}

impl Replicated {
    fn start() -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        // When the test runs as root, PostgreSQL runs as another user.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let replicated = Self {
            primary: Cluster::place(&folder.path().join("primary"))?,
            standby: Cluster::place(&folder.path().join("standby"))?,
            _folder: folder,
        };
        let (primary, standby) = (&replicated.primary, &replicated.standby);
        primary.init()?;
        primary.include_settings()?;
        primary.start(postgres::FAST)?;
        primary.sql("postgres", "CREATE DATABASE ledger")?;
        standby.copy_running(primary)?;
        standby.mark_standby()?;
        standby.configure(&format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user=postgres'\n",
            primary.port
        ))?;
        standby.start(postgres::FAST)?;
        Ok(replicated)
    }

    /// Waits until the standby has this number of intents.
    fn until_followed(&self, intents: usize) {
        let sql = "SELECT count(*) FROM consign.intents";
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.standby.sql("ledger", sql).unwrap_or_default().trim() != intents.to_string() {
            assert!(Instant::now() < deadline, "the standby does not follow");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Replicated {
    fn drop(&mut self) {
        // Errors cannot be reported here.
        let _ = self.standby.kill9();
        let _ = self.primary.kill9();
    }
}

#[test]
fn a_standby_is_checked_and_backed_up_and_a_primary_says_what_it_costs() {
    let place = Place::new();
    let replicated = Replicated::start().expect("PostgreSQL can be started twice");
    let [primary, standby] =
        [&replicated.primary, &replicated.standby].map(|server| server.url("ledger"));
    let server = start(&place.options().arg("--store").arg(&primary));
    let id = published(&mut main_client(&server), "kept");
    replicated.until_followed(1);

    for (url, costs) in [(&primary, true), (&standby, false)] {
        let checked = place.consign(&["store", "check", "--store", url]);
        assert_eq!(code(&checked), 0, "{checked:?}");
        let said = text(&checked.stderr);
        assert_eq!(said.contains("a standby in --store"), costs, "{said}");
    }
    let saved = place.path("saved.db");
    let path = saved.to_string_lossy();
    let backup = ["store", "backup", &path, "--store", &standby, "--json"];
    assert!(printed(&place.consign(&backup))["bytes"].as_u64() > Some(0));
    drop(server);
    let saved = format!("sqlite:{}", saved.display());
    let server = start(&place.options().arg("--store").arg(&saved));
    assert_eq!(status_of(&mut main_client(&server), &id), "open");
}

#[test]
fn a_file_that_was_left_behind_is_not_taken_for_the_ledger() {
    let place = Place::new();
    let database = database();
    let (url, path) = (database.url(), place.path("data/consign.db"));
    let file = format!("sqlite:{}", path.display());
    published(&mut main_client(&place.start()), "moves");
    printed(&copy(&place, &file, &url, &[]));
    let checked = place.consign(&["store", "check"]);
    assert_eq!(code(&checked), 0, "no server has run on the copy yet");
    {
        let server = start(&place.options().arg("--store").arg(&url));
        let told = server.stdout_lines().join("\n");
        let shown = url.replace("postgres@", "");
        assert!(told.contains(&format!("ledger     {shown}")), "{told}");
    }
    let saved = place.path("saved.db");
    let backup = ["store", "backup", &saved.to_string_lossy()];
    for args in [&["store", "check"][..], &["store", "migrate"], &backup] {
        let refused = place.consign(args);
        assert_eq!(code(&refused), 1, "{refused:?}");
        let said = text(&refused.stderr);
        assert!(said.contains("kept its ledger in postgres://"), "{said}");
        assert!(said.contains("--store sqlite:"), "{said}");
    }
    assert!(!saved.exists());
    let (exit, said) = super::refusal(&place.options());
    assert!(exit == 1 && said.contains("kept its ledger in"), "{said}");

    // With an explicit option it succeeds, and later starts print no message.
    let explicit = place.consign(&["store", "check", "--store", &file]);
    assert_eq!(code(&explicit), 0, "{explicit:?}");
    drop(start(&place.options().arg("--store").arg(&file)));
    let told = place.start().stdout_lines().join("\n");
    assert!(!told.contains("ledger"), "{told}");
    assert_eq!(code(&place.consign(&["store", "check"])), 0);
}

#[test]
fn a_server_that_could_not_use_a_database_leaves_no_note_of_it() {
    let place = Place::new();
    drop(place.start());
    let nowhere = "postgres://nobody@127.0.0.1:1/nothing";
    let (exit, said) = super::refusal(&place.options().arg("--store").arg(nowhere));
    assert!(exit == 1 && said.contains("127.0.0.1:1/nothing"), "{said}");
    drop(place.start());
}

#[test]
fn an_empty_password_variable_counts_as_unset() {
    let place = Place::new();
    let database = database();
    let url = database.url();
    let args = ["store", "check", "--store", &url];
    for password in ["", "not asked for"] {
        let checked = place.consign_with(&args, &[("CONSIGN_STORE_PASSWORD", password)]);
        assert_eq!(code(&checked), 3, "{checked:?}");
    }
    let missing = place.path("none");
    let missing = missing.to_string_lossy();
    let named = [&args[..], &["--store-password-file", &missing]].concat();
    assert_eq!(code(&place.consign(&named)), 2);
}

#[test]
fn a_password_file_that_others_can_read_is_told_of_and_an_empty_one_refused() {
    let place = Place::new();
    let database = database();
    let (url, file) = (database.url(), place.path("password"));
    std::fs::write(&file, "not asked for\n").expect("a file can be written");
    let shown = file.to_string_lossy();
    let args = [
        "store",
        "check",
        "--store",
        &url,
        "--store-password-file",
        &shown,
    ];
    for (mode, told) in [(0o644, true), (0o600, false)] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, permissions).expect("it is ours");
        let checked = place.consign(&args);
        assert_eq!(code(&checked), 3, "{checked:?}");
        let said = text(&checked.stderr);
        assert_eq!(said.contains("can be read by other users"), told, "{said}");
    }
    std::fs::write(&file, "\n").expect("a file can be written");
    let refused = place.consign(&args);
    assert_eq!(code(&refused), 2, "{refused:?}");
    assert!(text(&refused.stderr).contains("is empty"), "{refused:?}");
}
