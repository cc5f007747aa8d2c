//! A site and its ledger: only one server writes, and an action that cannot be recorded is not executed.
#![cfg(feature = "planted")]

use consign_testkit::shim::{Fault, Shim};

use super::transactions_till::{Keys, Till};
use super::transactions_world::{
    Shop, authorize, execute, executed_until, intent, key, receipts, state,
};
use super::{refusal, start};

const ID: &str = "int_abc";

#[test]
fn at_095_a_second_server_on_the_same_file_refuses_to_start_and_the_first_goes_on() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let server = shop.start();
    authorize(&server, intent(ID));
    let file = format!("sqlite:{}", shop.place.path("data/consign.db").display());
    let elsewhere = shop.place.options_with(shop.place.path("second"));
    let elsewhere = shop.node("two", elsewhere.arg("--store").arg(&file));
    for second in [shop.options(), elsewhere] {
        let (code, said) = refusal(&second);
        assert_ne!(code, 0, "{said}");
        assert!(said.contains("another"), "{said}");
    }
    assert_eq!(till.heard(""), 0);
    executed_until(&server, ID, "settled");
    assert_eq!((till.charges(), receipts(&server, ID).len()), (1, 1));
}

#[test]
fn at_096_a_disk_that_takes_nothing_answers_503_and_the_rail_hears_nothing() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let shim = Shim::build(shop.place.folder.path()).expect("cc builds the shim");
    let server = start(&shim.under(shop.options(), "consign.db"));
    authorize(&server, intent(ID));
    shim.set(Fault::Writes).expect("the shim listens");
    for _ in 0..3 {
        let refused = execute(&server, ID, &key(ID)).expect("the server answers");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.json()["error"], "store_unavailable");
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(till.heard(""), 0, "what is not committed is not begun");
    shim.set(Fault::None).expect("the shim listens");
    assert_eq!(state(&server, ID), "authorized");
    executed_until(&server, ID, "settled");
    assert_eq!((till.charges(), receipts(&server, ID).len()), (1, 1));
}
