//! Ours: `consign bench` starts a server of its own with default settings, loads it over HTTP and reports the figures.

use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use serde::Deserialize;

use super::postgres::{self, Cluster};
use super::{Environment, Subject};
use crate::connections::Connections;
use crate::error::Error;
use crate::load::{BODY_BYTES, Busy, Load, RoundResult, Step, WARMUP_SECONDS};
use crate::server::output;

pub(super) fn start(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    let program = environment.tools.consign.clone();
    let mut help = Command::new(&program);
    output(help.args(["bench", "--help"]))?;
    let folder = environment.folder("consign")?;
    Ok(Box::new(Consign {
        program,
        folder,
        cluster: None,
        asks_next: false,
    }))
}

/// The same server with its ledger in the PostgreSQL that the other queues use.
pub(super) fn start_on_postgres(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    on_postgres(environment, false)
}

/// The same, with workers that claim the next intent in the request that settles the last one.
pub(super) fn start_next_on_postgres(
    environment: &mut Environment,
) -> Result<Box<dyn Subject>, Error> {
    on_postgres(environment, true)
}

fn on_postgres(environment: &mut Environment, asks_next: bool) -> Result<Box<dyn Subject>, Error> {
    Ok(Box::new(Consign {
        program: environment.tools.consign.clone(),
        folder: environment.folder("consign-on-postgres")?,
        cluster: Some(environment.postgres()?),
        asks_next,
    }))
}

#[derive(Debug)]
struct Consign {
    program: PathBuf,
    folder: PathBuf,
    cluster: Option<Rc<Cluster>>,
    asks_next: bool,
}

impl Subject for Consign {
    fn version(&self) -> Result<String, Error> {
        let printed = output(Command::new(&self.program).arg("--version"))?;
        Ok(printed.trim().to_owned())
    }

    /// One more connection reads the server's counters, before and after the round.
    fn connections(&self) -> Connections {
        Connections::ClientsAnd(1)
    }

    fn settings(&self) -> String {
        let ledger = match self.cluster {
            Some(_) => postgres::SETTINGS,
            None => "every commit synced",
        };
        let steps = if self.asks_next {
            "/intent, /fulfill with the next claim in it"
        } else {
            "/intent, /claim, /fulfill"
        };
        format!(
            "consign serve with its defaults, {ledger}; POST {steps} over HTTP/1.1, by consign bench"
        )
    }

    fn server(&self) -> Option<u32> {
        self.cluster.as_ref().map(|cluster| cluster.id())
    }

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
        let work = if self.asks_next {
            "next"
        } else {
            load.work.name()
        };
        let mut bench = Command::new(&self.program);
        bench.args(["bench", "--json", "--rounds", "1", "--work", work]);
        bench.args(["--clients", &load.clients.to_string()]);
        bench.args(["--seconds", &load.seconds.to_string()]);
        bench.args(["--warmup", &WARMUP_SECONDS.to_string()]);
        bench.args(["--payload-bytes", &BODY_BYTES.to_string()]);
        // Its server writes to the same disk as the peers.
        bench.arg("--dir").arg(&self.folder);
        if let Some(cluster) = &self.cluster {
            bench.arg("--store").arg(cluster.new_database()?);
        }
        serde_json::from_str::<Report>(&output(&mut bench)?)?.done(load.clients)
    }
}

/// The parts of the report that are used.
#[derive(Debug, Deserialize)]
struct Report {
    clean: bool,
    rounds: Vec<Round>,
    operations: Vec<Operation>,
    errors: Vec<Fault>,
    usage: Usage,
}

#[derive(Debug, Deserialize)]
struct Round {
    seconds: f64,
    cycles: u64,
}

#[derive(Debug, Deserialize)]
struct Operation {
    name: String,
    count: u64,
    p50_us: f64,
    p99_us: f64,
}

#[derive(Debug, Deserialize)]
struct Fault {
    operation: String,
    what: String,
    count: u64,
}

#[derive(Debug, Deserialize)]
struct Usage {
    generator_cpu_s: Option<f64>,
    server_cpu_s: Option<f64>,
}

impl Report {
    fn done(self, clients: usize) -> Result<RoundResult, Error> {
        let [round] = self.rounds.as_slice() else {
            let count = self.rounds.len();
            return Err(Error::Answer(format!("expected one round, got {count}")));
        };
        let faults = self.errors.iter();
        let mut problems: Vec<String> = faults
            .map(|fault| {
                format!(
                    "{} times {} at {}",
                    fault.count, fault.what, fault.operation
                )
            })
            .collect();
        if !self.clean && problems.is_empty() {
            problems.push("the run was not clean".to_owned());
        }
        let count_of = |name: &str| {
            let named = self
                .operations
                .iter()
                .find(|operation| operation.name == name);
            named.map_or(0, |operation| operation.count)
        };
        // `settle` fulfils one intent and claims the next.
        let [published, claimed, fulfilled] = [
            &["publish"][..],
            &["claim", "settle"],
            &["fulfil", "settle"],
        ]
        .map(|names| names.iter().copied().map(count_of).sum::<u64>());
        // A cycle may be under way when the round begins or closes, one per client at the most; then only one of the two
        // counts it. The program itself reports whether each request succeeded.
        if fulfilled.abs_diff(round.cycles) > clients as u64 {
            problems.push(format!(
                "fulfilled {fulfilled}, whole cycles {}",
                round.cycles
            ));
        }
        if claimed == 0 {
            problems.push("nothing was claimed".to_owned());
        }
        let busy = self.usage.generator_cpu_s.zip(self.usage.server_cpu_s);
        let steps = self.operations.iter().filter_map(|operation| {
            let name = match operation.name.as_str() {
                "fulfil" | "settle" => "ack",
                name @ ("publish" | "claim") => name,
                _ => return None,
            };
            Some(Step {
                name: name.to_owned(),
                p50_ms: operation.p50_us / 1000.0,
                p99_ms: Some(operation.p99_us / 1000.0),
            })
        });
        Ok(RoundResult {
            jobs: round.cycles.min(published),
            published,
            seconds: round.seconds,
            steps: steps.collect(),
            problems,
            busy: busy.map(|(generator, server)| Busy {
                generator: generator / round.seconds,
                server: server / round.seconds,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cycles: u64, errors: &str) -> Result<RoundResult, Error> {
        let text = format!(
            r#"{{"clean":true,"rounds":[{{"seconds":2.0,"cycles":{cycles},"other":1}}],"errors":{errors},
            "usage":{{"generator_cpu_s":1.0,"server_cpu_s":3.0}},
            "operations":[{{"name":"publish","count":900,"p50_us":1500.0,"p99_us":3000.0}},
            {{"name":"claim","count":402,"p50_us":1.0,"p99_us":1.0}},
            {{"name":"fulfil","count":400,"p50_us":1.0,"p99_us":1.0}},
            {{"name":"cycle","count":400,"p50_us":1.0,"p99_us":1.0}}]}}"#
        );
        serde_json::from_str::<Report>(&text)?.done(2)
    }

    #[test]
    fn the_report_of_our_program_is_read() {
        let done = report(400, "[]").unwrap();
        assert_eq!((done.jobs, done.published), (400, 900));
        assert_eq!(done.problems, [""; 0]);
        let names: Vec<&str> = done.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["publish", "claim", "ack"]);
        assert!((done.steps[0].p50_ms - 1.5).abs() < 1e-9);
        assert!((done.busy.unwrap().server - 1.5).abs() < 1e-9);
    }

    #[test]
    fn settling_counts_as_claim_and_as_fulfilment() {
        let text = r#"{"clean":true,"rounds":[{"seconds":2.0,"cycles":400}],"errors":[],"usage":{},
            "operations":[{"name":"publish","count":401,"p50_us":1.0,"p99_us":1.0},
            {"name":"settle","count":400,"p50_us":2500.0,"p99_us":1.0}]}"#;
        let done = serde_json::from_str::<Report>(text).unwrap();
        let done = done.done(2).unwrap();
        assert_eq!((done.jobs, done.problems.len()), (400, 0));
        assert_eq!(done.steps[1].name, "ack");
    }

    #[test]
    fn errors_and_odd_sums_are_problems() {
        let fault = r#"[{"operation":"claim","what":"503","count":3,"example":""}]"#;
        assert_eq!(
            report(400, fault).unwrap().problems,
            ["3 times 503 at claim"]
        );
        assert_eq!(report(397, "[]").unwrap().problems.len(), 1);
        assert_eq!(report(403, "[]").unwrap().problems.len(), 1);
    }

    #[test]
    fn each_client_may_have_been_in_the_middle_of_a_cycle() {
        for cycles in [398, 399, 401, 402] {
            let done = report(cycles, "[]").unwrap();
            assert_eq!(done.problems, [""; 0], "{cycles}");
        }
    }
}
