//! The first start, the second start, and refused starts.

use consign_testkit::process::{Options, Server};

use super::{
    PATIENCE, Place, binary, code, get, main_client, mode, publish, published, refusal, start,
    status_of,
};

const SECRETS: &[&str] = &[
    "bus_secret",
    "admin_secret",
    "dashboard_password",
    "metrics_token",
    "seal_key",
    "receipt_seed",
];

/// The lines that every server prints. A server whose ledger is not in its data directory also prints its location.
fn greeting(place: &Place, server: &Server) -> Vec<String> {
    let lines = server.stdout_lines().into_iter();
    let (ledger, lines): (Vec<_>, _) = lines.partition(|line| line.starts_with("ledger "));
    let database = place.database.iter();
    let expected =
        database.map(|kept| format!("ledger     {}", kept.url().replace("postgres@", "")));
    assert!(
        ledger.iter().eq(&expected.collect::<Vec<_>>()),
        "{ledger:?}"
    );
    lines
}

#[test]
fn the_first_start_makes_private_secrets_and_says_what_to_try() {
    let place = Place::new();
    let server = place.start();
    assert_eq!(mode(&place.data()), 0o700);
    assert_eq!(mode(&place.data().join("keys")), 0o700);
    for name in SECRETS {
        assert_eq!(mode(&place.data().join("keys").join(name)), 0o600, "{name}");
    }
    let lines = greeting(&place, &server);
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert!(lines[0].contains(server.base_url()));
    assert!(lines[1].contains("/admin/dashboard"));
    assert!(lines[2].contains("keys"));
    assert!(lines[3].contains("curl") && lines[3].contains("/intent"));
    assert!(lines[4].contains("intent claim"));
    let main_key = server.secret("bus_secret").unwrap();
    assert!(main_key.len() >= 32 && main_key != "dev_secret");
    // The output is not a terminal, so the server prints only the path of the key.
    let said = server.stderr();
    assert!(!said.contains(&main_key), "{said}");
    assert!(said.contains("keys/bus_secret"), "{said}");
}

#[test]
fn the_lines_of_the_first_start_work_as_they_stand() {
    let place = Place::new();
    let server = place.start();
    let lines = greeting(&place, &server);
    let shell = |line: &str| {
        let (_, command) = line.split_once("  ").unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", command.trim()]);
        consign_testkit::process::run(shell, PATIENCE).unwrap()
    };
    let published = shell(&lines[3]);
    assert_eq!(code(&published), 0, "{published:?}");
    let claimed = shell(&lines[4]);
    assert_eq!(code(&claimed), 0, "{claimed:?}");
    assert!(super::text(&claimed.stdout).contains("hello"));
}

#[test]
fn a_second_start_finds_everything_again_and_shows_no_secret() {
    let place = Place::new();
    let mut server = place.start();
    let main_key = server.secret("bus_secret").unwrap();
    let id = published(&mut main_client(&server), "kept");
    let receipts = get(&mut server.http(), "/.well-known/jwks.json").text();
    assert!(server.terminate(PATIENCE).unwrap().success());
    std::fs::remove_file(place.options().stderr_file()).unwrap();
    let server = place.start();
    assert_eq!(server.secret("bus_secret").unwrap(), main_key);
    assert_eq!(status_of(&mut main_client(&server), &id), "open");
    assert_eq!(
        get(&mut server.http(), "/.well-known/jwks.json").text(),
        receipts
    );
    let said = format!("{}{:?}", server.stderr(), server.stdout_lines());
    assert!(!said.contains(&main_key), "{said}");
}

#[test]
fn a_second_instance_on_the_same_data_is_refused_with_the_pid_of_the_first() {
    let place = Place::new();
    let server = place.start();
    let (code, said) = refusal(&place.options());
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("(pid {})", server.pid())), "{said}");
    assert!(said.contains("hint: "), "{said}");
    let elsewhere = Options::new(binary(), place.data());
    let other = elsewhere.arg("--store").arg("sqlite:elsewhere.db");
    assert_eq!(refusal(&other).0, 1);
    assert_eq!(publish(&mut main_client(&server), "still").status, 201);
}

#[test]
fn ip_174_an_empty_or_well_known_main_key_refuses_to_start() {
    for value in ["", "dev_secret"] {
        let place = Place::new();
        let (code, said) = refusal(&place.options().env("BUS_SECRET", value));
        assert_ne!(code, 0);
        assert!(said.contains("BUS_SECRET"), "{said}");
        assert!(!place.data().exists(), "nothing is made by a refused start");
    }
}

#[test]
fn ip_168_bus_secret_is_the_main_key() {
    let place = Place::new();
    let server = start(&place.options().env("BUS_SECRET", "long-and-random-0123"));
    assert!(!place.data().join("keys/bus_secret").exists());
    let mut right = server.http().header("X-API-KEY", "long-and-random-0123");
    assert_eq!(publish(&mut right, "mine").status, 201);
    let mut wrong = server.http().header("X-API-KEY", "long-and-random-0124");
    assert_eq!(publish(&mut wrong, "mine").status, 401);
}

#[test]
fn a_plain_listener_that_others_can_reach_needs_a_word_for_it() {
    let place = Place::new();
    let open = place.options().listen("0.0.0.0:0");
    let (code, said) = refusal(&open);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("--insecure") && said.contains("BUS_TRUST_PROXY"),
        "{said}"
    );
    drop(start(&open.clone().arg("--insecure")));
    drop(start(&open.env("BUS_TRUST_PROXY", "true")));
}

#[test]
fn secrets_that_others_can_read_refuse_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    drop(place.start());
    let key = place.data().join("keys/bus_secret");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = refusal(&place.options());
    assert_eq!(code, 1);
    assert!(said.contains("open to other users"), "{said}");
}
