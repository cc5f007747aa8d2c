//! What the stretches of a crash campaign share.

use std::io;
use std::path::Path;

use consign_testkit::campaign::course::Stretch as _;
use consign_testkit::campaign::findings::{Findings, Promise};
use consign_testkit::campaign::ground;
use consign_testkit::campaign::plan::Plan;
use consign_testkit::campaign::turns::{Kind, Ran, Task};
use consign_testkit::process::Options;

use crate::fault::Fault;
use crate::stretch::Stretch;
use crate::syncs;

#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) base: ground::Ground,
}

impl Ground {
    /// A server over this data directory.
    pub(crate) fn options(&self, data: &Path) -> Options {
        self.base.options(data, "consign.db")
    }
}

impl Kind for Ground {
    type Fault = Fault;
    const NAME: &'static str = "crash";
    const STRETCH_ROUNDS_MAX: u64 = 20;

    fn prepare(plan: &Plan<Fault>, folder: &Path) -> io::Result<Self> {
        let base = ground::Ground::prepare(&plan.consign, plan.plant.clone(), folder)?;
        Ok(Self { base })
    }

    fn stretch(&self, task: &Task<'_, Fault>, findings: &mut Findings) -> io::Result<Ran> {
        Stretch::prepare(self, task, findings)?.carry_out(task.rounds)
    }

    fn finish(&self, folder: &Path, findings: &mut Findings) -> io::Result<&'static [Promise]> {
        let options = self.options(&folder.join("counted"));
        syncs::judge(&options, &self.base.shim, findings)?;
        Ok(&[Promise::SyncPerCommit])
    }
}
