//! The shared state of the trials of a crash campaign.

use std::io;
use std::path::Path;

use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::plan::Plan;
use consign_testkit::campaign::runner::{CampaignKind, TrialReport, TrialTask};
use consign_testkit::campaign::setup;
use consign_testkit::campaign::trial::Trial as _;
use consign_testkit::process::Options;

use crate::fault::CrashFault;
use crate::sync_count;
use crate::trial::CrashTrial;

/// What a finished campaign must have checked, beside what all campaigns check.
const DUE: &[Promise] = &{
    let [a, b, c, d, e, f, g, h, i, j] = Promise::BEAM;
    let [k, l, m, n] = Promise::MESH;
    [
        Promise::SyncPerCommit,
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        i,
        j,
        k,
        l,
        m,
        n,
    ]
};

#[derive(Debug)]
pub(crate) struct CrashCampaign {
    pub(crate) base: setup::CampaignSetup,
}

impl CrashCampaign {
    /// A server over this data directory.
    pub(crate) fn options(&self, data: &Path) -> Options {
        self.base.options(data, "consign.db")
    }
}

impl CampaignKind for CrashCampaign {
    type Fault = CrashFault;
    const NAME: &'static str = "crash";
    const TRIAL_ROUNDS_MAX: u64 = 20;

    fn prepare(plan: &Plan<CrashFault>, folder: &Path) -> io::Result<Self> {
        let base = setup::CampaignSetup::prepare(&plan.consign, plan.plant.clone(), folder)?;
        Ok(Self { base })
    }

    fn trial(
        &self,
        task: &TrialTask<'_, CrashFault>,
        findings: &mut Findings,
    ) -> io::Result<TrialReport> {
        CrashTrial::prepare(self, task, findings)?.carry_out(task.rounds)
    }

    fn finish(&self, folder: &Path, findings: &mut Findings) -> io::Result<&'static [Promise]> {
        let options = self.options(&folder.join("counted"));
        sync_count::check(&options, &self.base.shim, findings)?;
        Ok(DUE)
    }
}
