//! The health of a server while its database is unreachable.

use consign_testkit::postgres;
use consign_testkit::process::{Options, Server};
use consign_testkit::proxy::{Carrier, Mode};

use super::automation_world::{OK, World, until};
use super::{get, text};

/// The response of the automation on its control socket.
fn healthz(world: &World) -> String {
    let answer = world.ductile(&["api", "/healthz"]);
    text(&answer.stdout) + &text(&answer.stderr)
}

#[test]
fn a_server_whose_database_is_out_of_reach_is_not_well_until_it_is_back() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {}}\n");
    let cluster = postgres::shared().expect("PostgreSQL runs");
    let database = cluster.database("consign_nothing", |_| {});
    let database = database.expect("a database can be made");
    let carrier = Carrier::start().expect("threads can be started");
    let wire = carrier.wire(cluster.port).expect("a port is free");
    let [near, far] = [cluster.port, wire.port].map(|port| format!(":{port}/"));
    let options = Options::new(super::binary(), world.path("data"))
        .arg("--store")
        .arg(&database.url().replace(&near, &far))
        .arg("--config")
        .arg(world.path("config.yaml").to_str().expect("plain"))
        .env("ATP_SITE", "https://shop.example");
    let server = Server::start(&options).expect("the server starts");
    let health = || get(&mut server.http(), "/health");
    let of_the_site = || get(&mut server.http(), "/api/atp/health");
    let writer = of_the_site();
    assert_eq!(writer.status, 200);
    assert!(writer.text().contains(r#""writer":true"#));
    until("the automation is well", || {
        healthz(&world).contains(r#""status":"ok""#)
    });

    wire.set(Mode::Cut);
    until("the server is not well", || health().status == 503);
    let refused = health();
    assert_eq!(refused.code(), "database_busy", "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    let refused = of_the_site();
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    for told in [r#""ok":false"#, r#""writer":false"#, "store_unavailable"] {
        assert!(refused.text().contains(told), "{}", refused.text());
    }
    until("nor is the automation", || {
        healthz(&world).contains("the ledger cannot be read")
    });

    wire.set(Mode::Open);
    until("the server is well again", || health().status == 200);
    assert_eq!(of_the_site().status, 200);
    until("and the automation", || {
        healthz(&world).contains(r#""status":"ok""#)
    });
}
