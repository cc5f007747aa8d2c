//! Queues whose client library is the product: each is driven by a small script with its own library, in one process.
//!
//! The scripts do the work of [`crate::generate`] in the same shapes and print a [`RoundResult`] as JSON.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use serde::Deserialize;

use super::postgres::{self, Cluster};
use super::{Environment, Subject, redis};
use crate::connections::Connections;
use crate::error::Error;
use crate::load::{self, Load, RoundResult};
use crate::server::{Server, output};

#[derive(Debug)]
struct Scripted {
    script: std::path::PathBuf,
    settings: String,
    /// The libraries that its script imports.
    libraries: &'static [&'static str],
    store: Store,
}

/// Where the library stores its jobs.
#[derive(Debug)]
enum Store {
    Redis(Rc<Server>),
    Postgres(Rc<Cluster>),
}

pub(super) fn start_bullmq(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    let store = Store::Redis(environment.redis()?);
    let settings = format!(
        "BullMQ and ioredis on {}; removeOnComplete, concurrency = half of the clients",
        redis::SETTINGS
    );
    start(
        environment,
        "bullmq",
        settings,
        &["bullmq", "ioredis"],
        store,
    )
}

pub(super) fn start_graphile_worker(
    environment: &mut Environment,
) -> Result<Box<dyn Subject>, Error> {
    let store = Store::Postgres(environment.postgres()?);
    let settings = format!(
        "graphile-worker on {}; defaults, concurrency = half of the clients (completions are written but not waited for)",
        postgres::SETTINGS
    );
    start(
        environment,
        "graphile-worker",
        settings,
        &["graphile-worker", "pg"],
        store,
    )
}

pub(super) fn start_pg_boss(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    let store = Store::Postgres(environment.postgres()?);
    let settings = format!(
        "pg-boss on {}; fetch of 1 and complete in loops, supervision off",
        postgres::SETTINGS
    );
    start(environment, "pg-boss", settings, &["pg-boss", "pg"], store)
}

fn start(
    environment: &Environment,
    name: &str,
    settings: String,
    libraries: &'static [&'static str],
    store: Store,
) -> Result<Box<dyn Subject>, Error> {
    let script = environment.tools.node.join(format!("{name}.mjs"));
    if !script.is_file() {
        let shown = script.display();
        return Err(Error::Program(format!("{shown} is missing")));
    }
    Ok(Box::new(Scripted {
        script,
        settings,
        libraries,
        store,
    }))
}

/// The installed version, which may differ from the requested one.
fn library_version(script: &Path, library: &str) -> Result<String, Error> {
    let list = script.with_file_name("node_modules");
    let list = list.join(library).join("package.json");
    let text = fs::read_to_string(&list).map_err(Error::io(list.display().to_string()))?;
    let package: Package = serde_json::from_str(&text)?;
    Ok(format!("{library} {}", package.version))
}

#[derive(Debug, Deserialize)]
struct Package {
    version: String,
}

impl Subject for Scripted {
    fn version(&self) -> Result<String, Error> {
        let mut parts = Vec::new();
        for library in self.libraries {
            parts.push(library_version(&self.script, library)?);
        }
        parts.push(match &self.store {
            Store::Redis(_) => redis::version()?,
            Store::Postgres(cluster) => cluster.version()?,
        });
        let node = output(Command::new("node").arg("--version"))?;
        parts.push(format!("node {}", node.trim()));
        Ok(parts.join(", "))
    }

    fn connections(&self) -> Connections {
        Connections::To(match &self.store {
            Store::Redis(server) => server.port,
            Store::Postgres(cluster) => cluster.port(),
        })
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }

    fn server(&self) -> Option<u32> {
        match &self.store {
            Store::Redis(server) => Some(server.id()),
            Store::Postgres(cluster) => Some(cluster.id()),
        }
    }

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
        let store = match &self.store {
            Store::Redis(server) => format!("redis://127.0.0.1:{}", server.port),
            Store::Postgres(cluster) => cluster.url(),
        };
        let order = serde_json::json!({
            "store": store,
            "queue": load.queue(),
            "work": load.work.name(),
            "clients": load.clients,
            "seconds": load.seconds,
            "body": load::body(),
        });
        let mut node = Command::new("node");
        let printed = output(node.arg(&self.script).arg(order.to_string()))?;
        // Libraries may print something, too; the last line is the script's.
        let last = printed.lines().last().unwrap_or_default();
        Ok(serde_json::from_str(last)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_installed_library() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("node_modules/queue");
        fs::create_dir_all(&library).unwrap();
        let list = r#"{"name":"queue","version":"6.7.0"}"#;
        fs::write(library.join("package.json"), list).unwrap();
        let script = folder.path().join("queue.mjs");
        assert_eq!(library_version(&script, "queue").unwrap(), "queue 6.7.0");
        assert!(library_version(&script, "other").is_err());
    }
}
