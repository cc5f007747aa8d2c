//! A database that cannot be reached: nothing is begun, and nothing is lost when it can be reached again.
#![cfg(feature = "planted")]

use std::time::{Duration, Instant};

use consign_testkit::postgres;
use consign_testkit::proxy::{Carrier, Mode};

use super::transactions_till::{Keys, Till};
use super::transactions_world::{Shop, authorize, execute, executed_until, intent, key, receipts};
use super::{PATIENCE, start};

const ID: &str = "int_abc";

#[test]
fn at_096_a_wire_that_is_cut_answers_503_and_the_rail_hears_nothing() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let port = postgres::shared().expect("PostgreSQL runs").port;
    let carrier = Carrier::start().expect("a runtime can be made");
    let wire = carrier.wire(port).expect("a port is free");
    let mut options = shop.options();
    for arg in &mut options.args {
        *arg = arg.replace(&format!(":{port}/"), &format!(":{}/", wire.port));
    }
    let server = start(&options);
    authorize(&server, intent(ID));
    wire.set(Mode::Cut);
    for _ in 0..3 {
        let refused = execute(&server, ID, &key(ID)).expect("the server answers");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.json()["error"], "store_unavailable");
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(till.heard(""), 0, "what is not committed is not begun");
    wire.set(Mode::Open);
    let began = Instant::now();
    while execute(&server, ID, &key(ID))
        .expect("the server answers")
        .status
        == 503
    {
        assert!(began.elapsed() < 2 * PATIENCE, "it does not come back");
        std::thread::sleep(Duration::from_millis(100));
    }
    executed_until(&server, ID, "settled");
    assert_eq!((till.charges(), receipts(&server, ID).len()), (1, 1));
}
