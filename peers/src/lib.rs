//! Runs the same work on other queues and on ours, in alternating short rounds, and prints the ratios with their spread.
//!
//! It expects the peers to be installed; `cargo xtask peers` does that. Of our crates it uses only the testkit, for folders,
//! processes and PostgreSQL: ours is measured as others would measure it, as a program. Each peer is reached through its
//! published client, with one request in flight on each connection.
//!
//! `cargo xtask goals` is a second program over the same parts: it compares ours with itself, with the disk and with SQLite.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of a command line tool is its interface"
)]

mod connections;
mod data_folder;
mod error;
mod figures;
mod generate;
mod goals;
mod load;
mod machine;
mod options;
mod report;
mod rounds;
mod server;
mod subject;

use std::fs;
use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;
use crate::options::Options;
use crate::subject::{ENTRIES, Entry, Environment, Tools};

/// The program `consign-peers`.
pub fn peers() -> ExitCode {
    end(run(&Options::parse()))
}

/// The program `consign-goals`.
pub fn goals() -> ExitCode {
    end(goals::run(&goals::Options::parse()))
}

fn end(done: Result<bool, Error>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything that was requested could be measured.
fn run(options: &Options) -> Result<bool, Error> {
    if options.list {
        for entry in ENTRIES {
            println!("{:<18}{}", entry.name, entry.about);
        }
        return Ok(true);
    }
    let entries = chosen(&options.only)?;
    let folder = data_folder::create(&options.dir)?;
    let tools = Tools {
        consign: options.consign.clone(),
        nats: options.nats.clone(),
        node: options.node.clone(),
    };
    let mut environment = Environment::new(folder.path().to_owned(), tools);
    let findings = rounds::run(options, &entries, &mut environment, |line| {
        eprintln!("{line}");
    });
    // The servers must end before their folder is removed.
    drop(environment);
    let json = serde_json::to_string_pretty(&findings)?;
    if let Some(out) = &options.out {
        fs::write(out, &json).map_err(Error::io(out.display().to_string()))?;
    }
    if options.json {
        println!("{json}");
    } else {
        print!("{}", report::text(&findings));
    }
    Ok(findings.failures.is_empty())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Entry>, Error> {
    let unknown = only
        .iter()
        .find(|word| !ENTRIES.iter().any(|entry| entry.has_name(word)));
    if let Some(word) = unknown {
        return Err(Error::Program(format!(
            "there is no subject `{word}`; see --list"
        )));
    }
    let wanted = ENTRIES
        .iter()
        .filter(|entry| only.is_empty() || only.iter().any(|word| entry.has_name(word)));
    Ok(wanted.collect())
}
