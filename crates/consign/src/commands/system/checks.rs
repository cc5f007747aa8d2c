//! `system doctor` and `system selfcheck`: lists of checks that exit with 1 if one of them fails.

use serde_json::{Value, json};

use crate::commands::automation::config::tree::{ConfigTree, TreeArgs};
use crate::commands::automation::request::{block_on, cell, get, print};
use crate::commands::automation::service_args::ServiceArgs;
use crate::commands::store;
use crate::failure::{Exit, Failure};
use crate::system::{START_SERVER_HINT, ServiceClient, StateDir, WhenStopped};

const SELFCHECK_HELP: &str = "\
Reads the whole ledger, so no service may run meanwhile: a running one checks its jobs
with `api /system/selfcheck`. Exits with 1 if a check fails.";

/// The hint while a `consign serve --config` runs.
const OF_A_SERVER: &str = "ask it with `api /system/selfcheck`; for its whole store, stop that server and run `consign store check`";

const DOCTOR_HELP: &str = "Exits with 1 if a check fails.";

#[derive(Debug, clap::Args)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = SELFCHECK_HELP)]
pub(crate) struct SelfcheckArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl DoctorArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let whole = get(&self.service, "/system/doctor")?;
        print_checks(&self.service.tree, &whole)
    }
}

impl SelfcheckArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tree = self.tree.find()?;
        let state = StateDir::of_tree(&tree)?;
        if let Some(pid) = state.service_pid() {
            let message = format!("a service (pid {pid}) uses this ledger");
            // This command cannot open the store of a server that is stopped.
            let hint = match state.external_ledger()? {
                Some(_) => OF_A_SERVER,
                None => "stop it first, or ask it with `api /system/selfcheck`",
            };
            let context = json!({"active_pid": pid});
            return Err(Failure::failed(message).hint(hint).context(context).into());
        }
        state.require_own_ledger(START_SERVER_HINT)?;
        if !state.ledger().exists() {
            let shown = state.ledger().display();
            let message = format!("nothing has run yet: no ledger exists at {shown}");
            return Err(Failure::failed(message).into());
        }
        let checks = block_on(look(&tree, &state))?;
        let healthy = checks.iter().all(|check| check["ok"] == true);
        let path = state.ledger();
        let whole = json!({"healthy": healthy, "path": path, "checks": checks});
        print_checks(&self.tree, &whole)
    }
}

/// Checks the file first: the contents of a damaged one mean little.
async fn look(tree: &ConfigTree, state: &StateDir) -> anyhow::Result<Vec<Value>> {
    let pending = consign_store::sqlite::pending(state.ledger())?;
    let schema = (!pending.is_empty()).then(|| {
        let pending = pending.join(", ");
        format!("an older version, without {pending}; the next start migrates it")
    });
    // Opening the file migrates it, so the schema is checked before.
    let findings = store::check_file(state.ledger().to_owned()).await?;
    let integrity = (!findings.is_empty()).then(|| findings.join("; "));
    let mut checks = vec![
        check("integrity", integrity.as_deref()),
        check("schema", schema.as_deref()),
    ];
    if findings.is_empty() {
        let client = ServiceClient::new(tree, WhenStopped::ReadLedger).await?;
        let answer = client.get("/system/selfcheck").await;
        client.close().await?;
        let of_jobs = answer?.body["checks"].as_array().cloned();
        checks.extend(of_jobs.unwrap_or_default());
    }
    Ok(checks)
}

fn check(name: &str, detail: Option<&str>) -> Value {
    json!({"name": name, "ok": detail.is_none(), "detail": detail})
}

fn print_checks(args: &TreeArgs, whole: &Value) -> anyhow::Result<Exit> {
    print(args, whole, |whole| check_lines(&whole["checks"]))?;
    Ok(if whole["healthy"] == true {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// Whether the service would accept the configuration on disk.
pub(super) async fn config_check(client: &ServiceClient) -> anyhow::Result<Value> {
    let doctor = client.get("/system/doctor").await?.body;
    let mut checks = doctor["checks"].as_array().into_iter().flatten();
    let found = checks.find(|check| check["name"] == "config");
    Ok(found.cloned().unwrap_or_default())
}

/// One line per check: the result, the name and the details.
pub(super) fn check_lines(checks: &Value) -> String {
    let checks = checks.as_array().into_iter().flatten();
    let lines = checks.map(|check| {
        let word = if check["ok"] == true { "ok" } else { "NOT OK" };
        let more = [&check["path"], &check["active_pid"], &check["detail"]];
        let more: Vec<String> = more
            .into_iter()
            .map(|value| cell(value).replace("\\u{a}", " "))
            .filter(|text| !text.is_empty())
            .collect();
        let line = format!("{word:6}  {}  {}", cell(&check["name"]), more.join("  "));
        format!("{}\n", line.trim_end())
    });
    lines.collect::<Vec<_>>().concat()
}
