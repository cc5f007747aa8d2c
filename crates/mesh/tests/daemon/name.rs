//! A name that changes.

use consign_mesh::id::DisplayName;

use crate::broker_double::BrokerDouble;
use crate::world::Home;

#[tokio::test]
async fn cm_014_a_new_name_is_announced_once_the_broker_is_there() {
    let broker = BrokerDouble::start().await;
    broker.change(|behaviour| {
        behaviour.member_name = Some("joined".to_owned());
        behaviour.close_hello = Some((1001, "later".to_owned()));
    });
    let home = Home::new(1, &broker.url);
    let named = |name: &str, rename: bool| {
        let mut options = home.options();
        options.display_name = Some(DisplayName::parse(name).unwrap());
        options.rename = rename;
        options
    };
    home.up().await.down().await;
    // This name comes too late, and is neither used nor announced.
    home.up_with(named("late", false)).await.down().await;
    home.up_with(named("worker", true)).await.down().await;
    // The daemon that was asked to announce it never had a connection.
    broker.change(|behaviour| behaviour.close_hello = None);
    let daemon = home.up().await;
    let is_announced = |broker: &BrokerDouble| !broker.of_type("set_profile").is_empty();
    broker.until("announced", is_announced).await;
    let file = home.folder().join("keypair.json");
    while std::fs::read_to_string(&file)
        .unwrap()
        .contains("announces_name")
    {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    daemon.down().await;
    let daemon = home.up().await;
    daemon.until_connected().await;
    assert_eq!(daemon.get("/v1/peers").await.status, 200);
    let announced = broker.of_type("set_profile");
    assert_eq!(announced.len(), 1, "{announced:?}");
    assert_eq!(announced[0]["displayName"], "worker");
    daemon.down().await;
}
