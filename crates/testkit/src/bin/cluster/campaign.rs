//! The shared state of the trials of a cluster campaign: proxied connections, and a template of the databases.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::mesh::MeshPool;
use consign_testkit::campaign::plan::Plan;
use consign_testkit::campaign::runner::{CampaignKind, TrialReport, TrialTask};
use consign_testkit::campaign::setup;
use consign_testkit::campaign::trial::Trial as _;
use consign_testkit::postgres::Cluster;
use consign_testkit::process::Options;
use consign_testkit::proxy::Carrier;

use crate::database;
use crate::fault::{ClusterFault, ClusterPlant};
use crate::trial::ClusterTrial;

#[derive(Debug)]
pub(crate) struct ClusterCampaign {
    /// Its shim is under nodes and databases alike, so time advances for all of them at once.
    pub(crate) base: setup::CampaignSetup,
    pub(crate) plant: Option<ClusterPlant>,
    pub(crate) carrier: Carrier,
    pub(crate) template: Cluster,
}

impl ClusterCampaign {
    /// A node with this data directory, without a database.
    pub(crate) fn options(&self, data: &Path) -> Options {
        // Nodes have no files that could fail.
        MeshPool::configure(self.base.options(data, "no-file-of-a-node"))
    }
}

impl CampaignKind for ClusterCampaign {
    type Fault = ClusterFault;
    const NAME: &'static str = "cluster";
    const TRIAL_ROUNDS_MAX: u64 = 10;

    fn prepare(plan: &Plan<ClusterFault>, folder: &Path) -> io::Result<Self> {
        // PostgreSQL runs as another user if we are root, and needs access to this folder.
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        let plant = plan.plant.as_deref().map(ClusterPlant::named);
        let in_nodes = plant.as_ref().and_then(ClusterPlant::in_nodes);
        let base = setup::CampaignSetup::prepare(&plan.consign, in_nodes, folder)?;
        base.shim.share()?;
        Ok(Self {
            base,
            plant,
            carrier: Carrier::start()?,
            template: database::template(&folder.join("template"))?,
        })
    }

    fn trial(
        &self,
        task: &TrialTask<'_, ClusterFault>,
        findings: &mut Findings,
    ) -> io::Result<TrialReport> {
        ClusterTrial::prepare(self, task, findings)?.carry_out(task.rounds)
    }

    fn finish(&self, _: &Path, _: &mut Findings) -> io::Result<&'static [Promise]> {
        Ok(&Promise::MESH)
    }
}
