//! What the operators of the server hear of agent transactions: figures, problems and metrics.

use std::collections::BTreeMap;

use consign_engine::{Error, Operator};
use consign_kernel::ids::Micros;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{Cause, State};
use consign_web::shell::{MetricsText, PartReport, ProblemLevel, ServerProblem};
use serde_json::{Map, json};

use crate::problem::Problem;
use crate::site::{OpenTransactions, Site};

pub(super) async fn report(site: &Site) -> Result<PartReport, Error> {
    let open = open(site).await?;
    let mut figures = Map::new();
    figures.insert("executing".to_owned(), json!(open.executing));
    figures.insert("executed".to_owned(), json!(open.executed));
    figures.insert("stuck".to_owned(), json!(open.stuck));
    figures.insert("oldest_open_s".to_owned(), json!(age_s(site, &open)));
    let stuck = ServerProblem {
        level: ProblemLevel::Error,
        id: "transactions_stuck",
        what: format!("{} agent transactions wait for an operator", open.stuck),
        why: "the payment rail does not report a certain outcome".to_owned(),
        next: "see which and why with: consign tx list; then consign tx reconcile or consign tx resolve".to_owned(),
    };
    let problems = (open.stuck > 0).then_some(stuck);
    Ok(PartReport {
        figures,
        problems: problems.into_iter().collect(),
    })
}

pub(super) async fn write_metrics(
    site: &Site,
    operator: Operator,
    text: &mut MetricsText,
) -> Result<(), Error> {
    let counts = site.engine().counts(operator, Face::Transaction).await?;
    // Permissions and transactions share no state.
    let mut by_word: BTreeMap<&str, u64> = BTreeMap::new();
    for count in counts {
        *by_word.entry(word(count.state)).or_default() += count.count;
    }
    let name = "consign_atp_transactions";
    let about =
        "Intents and transactions of the site by state; authorized intents are not executed yet";
    text.family(name, "gauge", about);
    for (word, count) in by_word {
        text.sample(name, &[("state", word)], count);
    }
    let open = open(site).await?;
    let about = "Transactions that wait for an operator; the oldest hundred of each open state are examined";
    text.single("consign_atp_stuck_transactions", "gauge", about, open.stuck);
    let name = "consign_atp_oldest_open_seconds";
    text.family(
        name,
        "gauge",
        "Age of the oldest open transaction; 0 if none is open",
    );
    text.sample(name, &[], age_s(site, &open));
    Ok(())
}

async fn open(site: &Site) -> Result<OpenTransactions, Error> {
    let open = site.open_transactions().await;
    open.map_err(|problem: Problem| Error::Internal(problem.to_string()))
}

fn age_s(site: &Site, open: &OpenTransactions) -> f64 {
    let now = site.engine().now();
    let since = open.oldest_at.unwrap_or(now);
    Micros(now.0.saturating_sub(since.0).max(0)).seconds()
}

/// The word of the protocol for a state of one of its two profiles.
fn word(state: State) -> &'static str {
    let permission = ProfileId::AtpPermission.profile();
    let profile = if permission.word(state, Cause::None).is_some() {
        permission
    } else {
        ProfileId::AtpTransaction.profile()
    };
    profile.word(state, Cause::None).unwrap_or(state.name())
}
