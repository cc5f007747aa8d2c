//! The broker's part of `/metrics`.

use consign_engine::{Error, Operator};
use consign_web::shell::MetricsText;

use crate::broker::{Broker, BrokerMetric};

pub(super) async fn write(
    broker: &Broker,
    operator: Operator,
    text: &mut MetricsText,
) -> Result<(), Error> {
    for metric in BrokerMetric::ALL {
        text.family(metric.name, metric.kind, metric.about);
        for (values, count) in broker.counters().of(*metric) {
            let labels = metric.labels.iter().copied();
            let values = values.iter().map(String::as_str);
            let labels: Vec<(&str, &str)> = labels.zip(values).collect();
            text.sample(metric.name, &labels, count);
        }
    }
    let name = "broker_queue_depth";
    let about = "Messages that wait for their recipients or for workers";
    text.family(name, "gauge", about);
    text.sample(name, &[], broker.queue_depth(operator).await?);
    let healthy = u64::from(broker.is_healthy().await);
    let about = "Whether the ledger can be used";
    text.single("broker_db_healthy", "gauge", about, healthy);
    Ok(())
}
