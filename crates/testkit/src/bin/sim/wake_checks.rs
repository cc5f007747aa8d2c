//! Checks of wakes: a waiting claim must get a claimable intent soon. If it gets it only by polling after five
//! seconds, a wake was lost.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_kernel::ids::{Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::{Lanes, Probe};
use consign_store::Dump;
use tokio::time::Instant;

use crate::ledger_checks::BrokenPromise;
use crate::requests::SimRequest;

/// The timekeeper runs every second at the latest; twice that is far below the polling interval.
const PATIENCE: Duration = Duration::from_secs(2);

/// Since when rows are claimable, as seen between steps. A row that was claimed in between starts again.
#[derive(Debug, Default)]
pub(crate) struct WakeChecks {
    claimable: BTreeMap<Offer, Instant>,
}

type Offer = (Seq, Option<Micros>);

fn offer(row: &Intent) -> Offer {
    (row.seq, row.claimed_at)
}

impl WakeChecks {
    pub(crate) fn look(
        &mut self,
        dump: &Dump,
        requests: &[SimRequest],
        calm_since: Instant,
        now: Micros,
    ) -> Result<(), BrokenPromise> {
        let at = Instant::now();
        let offered: Vec<&Intent> = dump
            .intents
            .iter()
            .filter(|row| is_claimable(row, now))
            .collect();
        let offers: Vec<Offer> = offered.iter().map(|row| offer(row)).collect();
        self.claimable.retain(|known, _| offers.contains(known));
        for new in offers {
            self.claimable.entry(new).or_insert(at);
        }
        for request in requests {
            let Some(lanes) = request.waits_for() else {
                continue;
            };
            for row in offered.iter().filter(|row| fits(row, &lanes)) {
                let since = self.claimable[&offer(row)]
                    .max(request.since)
                    .max(calm_since);
                if at - since > PATIENCE {
                    return Err(format!(
                        "#{} waits although {} can be claimed, for {} ms",
                        request.number,
                        row.id,
                        (at - since).as_millis()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Now, or as soon as its deadline is processed.
fn is_claimable(row: &Intent, now: Micros) -> bool {
    let by_shelf = match row.shelf {
        Shelf::Ready | Shelf::Lapsed => true,
        Shelf::Delayed => row.run_at <= now,
        Shelf::Leased => row.wake_at <= now && row.attempts < row.attempts_max,
        Shelf::Parked | Shelf::Done => false,
    };
    by_shelf && row.expires_at > now
}

fn fits(row: &Intent, lanes: &[Probe]) -> bool {
    Lanes::of(row).probes().any(|probe| lanes.contains(&probe))
}
