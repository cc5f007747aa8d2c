//! What the stretches of a cluster campaign share: the binary, the planted defect, the shim, the carrier of all wires.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::plan::Plan;
use consign_testkit::campaign::turns::{Kind, Ran, Task};
use consign_testkit::history;
use consign_testkit::postgres::Cluster;
use consign_testkit::process::Options;
use consign_testkit::proxy::Carrier;
use consign_testkit::shim::Shim;

use crate::database;
use crate::fault::{Fault, Plant};
use crate::stretch::Stretch;

#[derive(Debug)]
pub(crate) struct Ground {
    consign: PathBuf,
    pub(crate) plant: Option<Plant>,
    /// Under nodes and databases alike: time that is let pass does so everywhere at once.
    pub(crate) shim: Shim,
    pub(crate) carrier: Carrier,
    pub(crate) template: Cluster,
}

impl Ground {
    /// A node with this data directory, and no database yet.
    pub(crate) fn options(&self, data: &Path) -> Options {
        let mut options = Options::new(&self.consign, data);
        if let Some(Plant::InNodes(name)) = &self.plant {
            options = options.env("CONSIGN_PLANT", name);
        }
        // Nodes have no files that could fail.
        self.shim.under(options, "no-file-of-a-node")
    }
}

impl Kind for Ground {
    type Fault = Fault;
    const NAME: &'static str = "cluster";
    const STRETCH_ROUNDS_MAX: u64 = 10;

    fn prepare(plan: &Plan<Fault>, folder: &Path) -> io::Result<Self> {
        // PostgreSQL is somebody else when we are root, and lives below.
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        let shim = Shim::build(folder)?;
        shim.share()?;
        history::follow(shim.state_file())?;
        Ok(Self {
            consign: plan.consign.clone(),
            plant: plan.plant.as_deref().map(Plant::named),
            shim,
            carrier: Carrier::start()?,
            template: database::template(&folder.join("template"))?,
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
            also: None,
            about: stretch.about(),
        })
    }

    fn finish(&self, _: &Path, faults: &[Fault], findings: &mut Findings) -> io::Result<()> {
        let mut due = Promise::ALWAYS.to_vec();
        due.extend(faults.iter().flat_map(|fault| fault.promises()));
        findings.completed(due);
        Ok(())
    }
}
