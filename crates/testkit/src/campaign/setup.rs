//! The shared setup of trials: the binary, its planted defect, and the shim under every server.

use std::io;
use std::path::{Path, PathBuf};

use crate::history;
use crate::process::Options;
use crate::shim::Shim;

#[derive(Debug)]
pub struct CampaignSetup {
    pub consign: PathBuf,
    plant: Option<String>,
    pub shim: Shim,
}

impl CampaignSetup {
    /// Builds the shim in the campaign's folder. From now on clients use its time.
    pub fn prepare(consign: &Path, plant: Option<String>, folder: &Path) -> io::Result<Self> {
        let shim = Shim::build(folder)?;
        history::follow(shim.state_file())?;
        Ok(Self {
            consign: consign.to_owned(),
            plant,
            shim,
        })
    }

    /// A server on this data directory with the shim; `files` is part of the paths that may fail.
    pub fn options(&self, data: &Path, files: &str) -> Options {
        let mut options = Options::new(&self.consign, data);
        if let Some(plant) = &self.plant {
            options = options.env("CONSIGN_PLANT", plant);
        }
        self.shim.under(options, files)
    }
}
