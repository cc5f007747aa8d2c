//! What the stretches of a crash campaign share: the binary, the planted defect, the shim under every server.

use std::io;
use std::path::{Path, PathBuf};

use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::plan::Plan;
use consign_testkit::campaign::turns::{Kind, Ran, Task};
use consign_testkit::history;
use consign_testkit::process::Options;
use consign_testkit::shim::Shim;

use crate::fault::Fault;
use crate::stretch::Stretch;
use crate::syncs;

#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) consign: PathBuf,
    plant: Option<String>,
    pub(crate) shim: Shim,
}

impl Ground {
    /// A server over this data directory, with the shim under it.
    pub(crate) fn options(&self, data: &Path) -> Options {
        let mut options = Options::new(&self.consign, data);
        if let Some(plant) = &self.plant {
            options = options.env("CONSIGN_PLANT", plant);
        }
        self.shim.under(options, "consign.db")
    }
}

impl Kind for Ground {
    type Fault = Fault;
    const NAME: &'static str = "crash";
    const STRETCH_ROUNDS_MAX: u64 = 20;

    fn prepare(plan: &Plan<Fault>, folder: &Path) -> io::Result<Self> {
        let shim = Shim::build(folder)?;
        history::follow(shim.state_file())?;
        Ok(Self {
            consign: plan.consign.clone(),
            plant: plan.plant.clone(),
            shim,
        })
    }

    fn stretch(&self, task: &Task<'_, Fault>, findings: &mut Findings) -> io::Result<Ran> {
        let mut stretch = Stretch::prepare(self, task, findings)?;
        let ran = stretch.run(task.rounds);
        if ran.is_err() || !stretch.findings.is_clean() {
            stretch.keep()?;
        }
        ran.map(|()| Ran {
            rounds: stretch.rounds,
            kills: stretch.kills,
            operations: stretch.crowd.operations(),
            also: Some(("lost_writes", stretch.lost_writes)),
            about: stretch.space.about().to_owned(),
        })
    }

    fn finish(&self, folder: &Path, faults: &[Fault], findings: &mut Findings) -> io::Result<()> {
        syncs::judge(&self.options(&folder.join("counted")), &self.shim, findings)?;
        let mut due = Promise::ALWAYS.to_vec();
        due.push(Promise::SyncPerCommit);
        due.extend(faults.iter().flat_map(|fault| fault.promises()));
        findings.completed(due);
        Ok(())
    }
}
