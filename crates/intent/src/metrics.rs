//! The metrics of the protocol: intents by status, and keys.

use consign_engine::{Engine, Error, Operator};
use consign_kernel::profile::Face;
use consign_kernel::state::{Cause, State};
use consign_web::shell::MetricsText;

use super::read::word;

pub(super) async fn write(
    engine: &Engine,
    operator: Operator,
    text: &mut MetricsText,
) -> Result<(), Error> {
    let counts = engine.counts(operator, Face::Intent).await?;
    let keys = engine.keys(operator).await?.len();
    let name = "intent_bus_intents_total";
    text.family(name, "gauge", "Total intents by status and namespace");
    for count in &counts {
        let status = word(count.state, Cause::None);
        let labels = [("status", status), ("namespace", &count.namespace)];
        text.sample(name, &labels, count.count);
    }
    let dead = counts
        .iter()
        .filter(|count| count.state == State::DeadLetter)
        .map(|count| count.count)
        .sum();
    text.single(
        "intent_bus_dead_letters_total",
        "gauge",
        "Total dead-letter intents",
        dead,
    );
    text.single(
        "intent_bus_tester_keys_total",
        "gauge",
        "Total active tester keys",
        keys as u64,
    );
    Ok(())
}
