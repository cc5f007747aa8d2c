//! A database that is unreachable or does not commit: no transaction begins, and none is lost after the recovery.
#![cfg(feature = "planted")]

use std::time::{Duration, Instant};

use consign_testkit::postgres;
use consign_testkit::process::Server;
use consign_testkit::proxy::{Carrier, Mode};

use super::transactions_till::{Keys, Till};
use super::transactions_world::{
    Shop, authorize, execute, executed_until, intent, key, receipts, state,
};
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
    assert_nothing_begins(&server, &till);
    wire.set(Mode::Open);
    assert_it_comes_back(&server, &till);
}

/// Only the commit fails: reads succeed, and writes succeed until the commit.
fn commits_go_wrong(what_happens: &str) {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let server = shop.start();
    authorize(&server, intent(ID));
    let database = shop.place.database.as_ref().expect("it has a database");
    let sql = |text: &str| database.sql(text).expect("the database takes it");
    sql(&format!(
        "CREATE FUNCTION consign.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what_happens}; RETURN NULL; END $$"
    ));
    sql(
        "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON consign.intents \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION consign.fail()",
    );
    assert_nothing_begins(&server, &till);
    assert_eq!(state(&server, ID), "authorized");
    sql("DROP TRIGGER fail ON consign.intents");
    assert_it_comes_back(&server, &till);
}

#[test]
fn at_096_a_commit_that_is_refused_answers_503_and_the_rail_hears_nothing() {
    commits_go_wrong("RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'");
}

/// The server cannot know whether the transaction is committed.
#[test]
fn at_096_a_connection_that_ends_at_the_commit_answers_503_and_the_rail_hears_nothing() {
    commits_go_wrong("PERFORM pg_terminate_backend(pg_backend_pid())");
}

fn assert_nothing_begins(server: &Server, till: &Till) {
    for _ in 0..3 {
        let refused = execute(server, ID, &key(ID)).expect("the server answers");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.json()["error"], "store_unavailable");
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(till.heard(""), 0, "what is not committed is not begun");
}

fn assert_it_comes_back(server: &Server, till: &Till) {
    let began = Instant::now();
    while execute(server, ID, &key(ID))
        .expect("the server answers")
        .status
        == 503
    {
        assert!(began.elapsed() < 2 * PATIENCE, "it does not come back");
        std::thread::sleep(Duration::from_millis(100));
    }
    executed_until(server, ID, "settled");
    assert_eq!((till.charges(), receipts(server, ID).len()), (1, 1));
}
