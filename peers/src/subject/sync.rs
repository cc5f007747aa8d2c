//! The disk alone: append a few bytes to a growing file and wait for fdatasync, one after the other.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use super::{Environment, Subject};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{histogram, micros, step};
use crate::load::{Load, RoundResult};

pub(super) fn start_300(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    start(environment, 300)
}

pub(super) fn start_4096(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    start(environment, 4096)
}

fn start(environment: &Environment, bytes: usize) -> Result<Box<dyn Subject>, Error> {
    let folder = environment.folder(&format!("sync-{bytes}"))?;
    Ok(Box::new(Sync { folder, bytes }))
}

#[derive(Debug)]
struct Sync {
    folder: PathBuf,
    bytes: usize,
}

impl Subject for Sync {
    fn version(&self) -> Result<String, Error> {
        let path = "/proc/sys/kernel/osrelease";
        let release = fs::read_to_string(path).map_err(Error::io(path))?;
        Ok(format!("Linux {}", release.trim()))
    }

    fn connections(&self) -> Connections {
        Connections::None
    }

    fn settings(&self) -> String {
        format!("append {} bytes, fdatasync; figures are syncs", self.bytes)
    }

    fn server(&self) -> Option<u32> {
        None
    }

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
        let path = self.folder.join(load.queue());
        let shown = path.display().to_string();
        let mut file = File::create(&path).map_err(Error::io(&*shown))?;
        let block = vec![b'x'; self.bytes];
        let mut times = histogram()?;
        let opened_at = Instant::now();
        while opened_at.elapsed() < load.duration() {
            let asked_at = Instant::now();
            file.write_all(&block)
                .and_then(|()| file.sync_data())
                .map_err(Error::io(&*shown))?;
            times.saturating_record(micros(asked_at));
        }
        Ok(RoundResult {
            jobs: times.len(),
            published: times.len(),
            seconds: opened_at.elapsed().as_secs_f64(),
            steps: vec![step("sync", &times)],
            problems: Vec::new(),
            busy: None,
        })
    }
}
