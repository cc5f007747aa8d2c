//! Checks of the dashboard in a real browser: its required content, and content that must not be there.
//!
//! `browser --consign BIN --chromium PATH`. Screenshots go to `target/xtask`. Exits with 0 if all checks pass, 1 if
//! not, 2 if the run itself failed.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its lines are its report"
)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::Duration;

use consign_testkit::process::{Http, Options, Server, run};
use serde_json::json;

const USAGE: &str = "usage: browser --consign BIN --chromium PATH";
const HOSTILE_GOAL: &str = "<script>document.title='pwned'</script>";
const HOSTILE_OWNER: &str = "ann <img src=x onerror=\"document.title='pwned'\">";
const NODES: &str = "<h2>Nodes</h2>";
const SCREENSHOTS: &str = "target/xtask";
const BROWSER_LIMIT: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).map(PathBuf::from)
    };
    let (Some(consign), Some(chromium)) = (value("--consign"), value("--chromium")) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match look(&consign, chromium) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn look(consign: &Path, chromium: PathBuf) -> io::Result<bool> {
    let folder = tempfile::tempdir()?;
    let server = Server::start(&Options::new(consign, folder.path().join("data")))?;
    let tester_key = furnish(&server)?;
    let browser = Browser {
        chromium,
        profile: folder.path().join("profile"),
    };
    let password = server.secret("dashboard_password")?;
    let page = |user: &str| format!("http://{user}@{}/admin/dashboard", server.authority());
    let dashboard = page(&format!("admin:{password}"));
    let dom = browser.dom(&dashboard)?;
    let mut report = Report::default();

    report.test(
        "browser_ip_135_the_dashboard_shows_stats_intents_keys_and_dead_letters",
        &missing(&dom, &expected()),
    );
    report.test(
        "browser_what_strangers_wrote_is_shown_as_text",
        &strangers(&dom),
    );
    let mut secrets = vec![tester_key];
    for name in [
        "bus_secret",
        "admin_secret",
        "dashboard_password",
        "metrics_token",
    ] {
        secrets.push(server.secret(name)?);
    }
    let shown = secrets
        .iter()
        .filter(|secret| dom.contains(secret.as_str()));
    let shown: Vec<String> = shown
        .map(|_| "a secret is in the page".to_owned())
        .collect();
    report.test("browser_no_key_is_in_the_page", &shown);

    let stranger = browser.dom(&page("admin:wrong"))?;
    let challenge = server.http().get("/admin/dashboard")?;
    let asks = challenge.header("www-authenticate").unwrap_or_default();
    let mut wrong = Vec::new();
    if challenge.status != 401 || !asks.starts_with("Basic ") {
        wrong.push(format!("status {}, challenge {asks:?}", challenge.status));
    }
    if stranger.contains("Recent Intents") {
        wrong.push("a wrong password opens the dashboard".to_owned());
    }
    report.test("browser_ip_136_the_dashboard_asks_for_the_password", &wrong);

    let mut wrong = Vec::new();
    if dom.contains(NODES) {
        wrong.push("one node that serves is nothing to tell of".to_owned());
    }
    let name = drain(&server)?;
    let pieces = [
        NODES,
        "<span class=\"status draining\">draining</span>",
        &name,
    ];
    let dom = browser.dom(&dashboard)?;
    wrong.extend(missing(&dom, &pieces.map(str::to_owned)));
    report.test("browser_a_node_that_drains_is_shown", &wrong);

    report.test(
        "browser_the_page_renders_wide_and_narrow_light_and_dark",
        &screenshots(&browser, &dashboard)?,
    );
    Ok(report.close())
}

/// Creates two open, one claimed, one fulfilled and one dead intent, and another key.
fn furnish(server: &Server) -> io::Result<String> {
    let mut http = server.main_client()?;
    let publish = |http: &mut Http, goal: &str, priority: u32, attempts_max: u32| {
        let body = json!({
            "goal": goal,
            "payload": {"n": 1},
            "priority": priority,
            "max_attempts": attempts_max,
            "required_capability": (priority == 0).then_some("gpu"),
        });
        http.post("/intent", &body).map(drop)
    };
    publish(&mut http, "fulfilled-goal", 900, 3)?;
    publish(&mut http, "dead-goal", 800, 1)?;
    publish(&mut http, "claimed-goal", 700, 3)?;
    publish(&mut http, HOSTILE_GOAL, 100, 3)?;
    publish(&mut http, "waits-for-a-gpu", 0, 3)?;
    let mut claim = || -> io::Result<(String, String)> {
        let claimed = http.send("POST", "/claim", &[], None)?.json();
        let text = |name: &str| claimed[name].as_str().unwrap_or_default().to_owned();
        Ok((text("id"), text("claim_token")))
    };
    let (fulfilled, dead, _claimed) = (claim()?, claim()?, claim()?);
    let body = json!({"claim_token": fulfilled.1, "result": "done"});
    http.post(&format!("/fulfill/{}", fulfilled.0), &body)?;
    let body = json!({"claim_token": dead.1, "error": "the printer is on fire"});
    http.post(&format!("/fail/{}", dead.0), &body)?;
    let made = server
        .admin_client()?
        .post("/admin/generate_key", &json!({"owner": HOSTILE_OWNER}))?;
    let key = made.json()["api_key"].as_str().map(str::to_owned);
    key.ok_or_else(|| io::Error::other(format!("no key was made: {}", made.text())))
}

/// Drains the only node and returns its name. A lease is left, so it stays draining.
fn drain(server: &Server) -> io::Result<String> {
    let mut admin = server.admin_client()?;
    let nodes = admin.get("/admin/nodes")?.json();
    let path = format!("/admin/nodes/{}/drain", nodes[0]["id"]);
    admin.send("POST", &path, &[], None)?;
    let name = nodes[0]["name"].as_str().map(str::to_owned);
    name.ok_or_else(|| io::Error::other(format!("no node is listed: {nodes}")))
}

/// The required content of the page.
fn expected() -> Vec<String> {
    let mut pieces = vec!["<title>Intent Bus Dashboard</title>".to_owned()];
    let cards = [
        ("open", "Open", 2),
        ("claimed", "Claimed", 1),
        ("fulfilled", "Fulfilled", 1),
        ("dead", "Dead", 1),
    ];
    for (class, name, count) in cards {
        pieces.push(format!("card {class}\"><b>{count}</b><span>{name}</span>"));
    }
    for heading in ["Recent Intents", "Tester Keys", "Dead Letters"] {
        pieces.push(format!("<h2>{heading}</h2>"));
    }
    for cell in [
        "fulfilled-goal",
        "dead-goal",
        "claimed-goal",
        "waits-for-a-gpu",
        "the printer is on fire",
        "gpu",
    ] {
        pieces.push(format!("<td>{cell}</td>"));
    }
    pieces
}

fn missing(dom: &str, pieces: &[String]) -> Vec<String> {
    let absent = pieces.iter().filter(|piece| !dom.contains(piece.as_str()));
    absent.map(|piece| format!("missing: {piece}")).collect()
}

/// The browser parsed the page, so a tag in the DOM was interpreted as a tag.
fn strangers(dom: &str) -> Vec<String> {
    let mut wrong = missing(
        dom,
        &["&lt;script&gt;document.title='pwned'&lt;/script&gt;".to_owned()],
    );
    for tag in ["<script", "<img", "<iframe", "<link"] {
        if dom.contains(tag) {
            wrong.push(format!("{tag} is an element of the page"));
        }
    }
    if dom.contains("<title>pwned") {
        wrong.push("a stranger's script ran".to_owned());
    }
    wrong
}

fn screenshots(browser: &Browser, url: &str) -> io::Result<Vec<String>> {
    std::fs::create_dir_all(SCREENSHOTS)?;
    let mut wrong = Vec::new();
    for dark in [false, true] {
        for width in [1280_u32, 400] {
            let theme = if dark { "dark" } else { "light" };
            let path = Path::new(SCREENSHOTS).join(format!("dashboard-{theme}-{width}.png"));
            browser.screenshot(url, &path, width, dark)?;
            let bytes = std::fs::read(&path)?;
            // The width of a PNG is in bytes 16 to 19.
            let found = bytes
                .get(16..20)
                .map(|width| u32::from_be_bytes([width[0], width[1], width[2], width[3]]));
            if found != Some(width) {
                wrong.push(format!("{} is {found:?} pixels wide", path.display()));
            }
        }
    }
    Ok(wrong)
}

struct Browser {
    chromium: PathBuf,
    profile: PathBuf,
}

impl Browser {
    /// The page after the browser has parsed and rendered it.
    fn dom(&self, url: &str) -> io::Result<String> {
        let output = self.run(&["--dump-dom".to_owned()], url)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn screenshot(&self, url: &str, path: &Path, width: u32, dark: bool) -> io::Result<()> {
        // 0 selects the dark theme, 1 the light one.
        let scheme = u8::from(!dark);
        let args = [
            format!("--screenshot={}", path.display()),
            format!("--window-size={width},1100"),
            format!("--blink-settings=preferredColorScheme={scheme}"),
            "--hide-scrollbars".to_owned(),
        ];
        self.run(&args, url).map(drop)
    }

    fn run(&self, args: &[String], url: &str) -> io::Result<Output> {
        let mut command = Command::new(&self.chromium);
        // Root in a container has no sandbox; the page comes from our own server.
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu"]);
        command.args(["--no-first-run", "--disable-dev-shm-usage"]);
        command.arg(format!("--user-data-dir={}", self.profile.display()));
        command.args(args).arg(url);
        let output = run(command, BROWSER_LIMIT)?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(io::Error::other(format!("chromium failed: {said}")))
    }
}

#[derive(Default)]
struct Report {
    passed: u32,
    failed: u32,
}

impl Report {
    fn test(&mut self, name: &str, wrong: &[String]) {
        if wrong.is_empty() {
            self.passed += 1;
            println!("test {name} ... ok");
            return;
        }
        self.failed += 1;
        println!("test {name} ... FAILED");
        for line in wrong {
            println!("    {line}");
        }
    }

    fn close(&self) -> bool {
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}
