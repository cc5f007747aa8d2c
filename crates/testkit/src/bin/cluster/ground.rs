//! What the stretches of a cluster campaign share, beside what all campaigns have: wires, and databases to copy.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use consign_testkit::campaign::course::Stretch as _;
use consign_testkit::campaign::findings::Findings;
use consign_testkit::campaign::ground;
use consign_testkit::campaign::plan::Plan;
use consign_testkit::campaign::turns::{Kind, Ran, Task};
use consign_testkit::postgres::Cluster;
use consign_testkit::process::Options;
use consign_testkit::proxy::Carrier;

use crate::database;
use crate::fault::{Fault, Plant};
use crate::stretch::Stretch;

#[derive(Debug)]
pub(crate) struct Ground {
    /// Its shim is under nodes and databases alike: time that is let pass does so everywhere at once.
    pub(crate) base: ground::Ground,
    pub(crate) plant: Option<Plant>,
    pub(crate) carrier: Carrier,
    pub(crate) template: Cluster,
}

impl Ground {
    /// A node with this data directory, and no database yet.
    pub(crate) fn options(&self, data: &Path) -> Options {
        // Nodes have no files that could fail.
        self.base.options(data, "no-file-of-a-node")
    }
}

impl Kind for Ground {
    type Fault = Fault;
    const NAME: &'static str = "cluster";
    const STRETCH_ROUNDS_MAX: u64 = 10;

    fn prepare(plan: &Plan<Fault>, folder: &Path) -> io::Result<Self> {
        // PostgreSQL is somebody else when we are root, and lives below.
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        let plant = plan.plant.as_deref().map(Plant::named);
        let in_nodes = plant.as_ref().and_then(Plant::in_nodes);
        let base = ground::Ground::prepare(&plan.consign, in_nodes, folder)?;
        base.shim.share()?;
        Ok(Self {
            base,
            plant,
            carrier: Carrier::start()?,
            template: database::template(&folder.join("template"))?,
        })
    }

    fn stretch(&self, task: &Task<'_, Fault>, findings: &mut Findings) -> io::Result<Ran> {
        Stretch::prepare(self, task, findings)?.carry_out(task.rounds)
    }
}
