//! The worker rail: an effect is leased once, and the report of a worker is trusted.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Error, Operator};
use consign_kernel::command::{Audience, Claim, Command, Operate, Settle, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Micros, SECOND_US, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_transactions::intent::Capture;
use consign_transactions::key::RailReference;
use consign_transactions::money::{Cents, Currency};
use consign_transactions::outcome::RailOutcome;
use consign_transactions::problem::Problem;
use consign_transactions::rail::{
    Charge, Fenced, Rail as _, RefundOutcome, WorkerOptions, WorkerRail,
};
use consign_transactions::site::{Options, Site};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::world::{KEY, OTHER_KEY, SITE, World, body, response};

struct Shop {
    world: World,
    site: Site,
    rail: Arc<WorkerRail>,
    changes: mpsc::Receiver<String>,
}

impl Shop {
    async fn new() -> Self {
        Self::watching(8).await
    }

    async fn watching(watched_max: usize) -> Self {
        let world = World::new().await;
        let (tell, news) = mpsc::channel(8);
        let options = WorkerOptions {
            goal: "atp.effect".to_owned(),
            wait: Duration::from_millis(300),
            changes: tell,
            watched_max,
        };
        let rail = Arc::new(WorkerRail::new(world.engine.clone(), options));
        let mut options = Options::new(SITE, Arc::<WorkerRail>::clone(&rail));
        options.execute_wait = Duration::from_secs(5);
        let site = Site::open(world.engine.clone(), options).await.unwrap();
        world.authorized("int_abc").await;
        Self {
            world,
            site,
            rail,
            changes: news,
        }
    }

    async fn execute(&self) -> Value {
        let answer = self.world.execute_at(&self.site, "int_abc", KEY).await;
        body(&answer.unwrap())
    }

    /// The intents that a worker can claim.
    async fn claim(&self) -> Vec<Intent> {
        let claim = Claim {
            face: Face::Intent,
            namespace: "default".to_owned(),
            goal: None,
            holder: "main".to_owned(),
            audience: Audience::Caller,
            worker_id: None,
            capabilities: Vec::new(),
            max: 10,
            lease_us: 10 * SECOND_US,
            grant: None,
        };
        self.world
            .engine
            .claim(None, claim, Duration::from_secs(10))
            .await
            .unwrap()
    }

    async fn settle(&self, held: &Intent, how: Settlement) {
        let settle = Command::Settle(Settle {
            detail: None,
            id: held.id,
            holder: held.holder.clone().unwrap(),
            token: held.token.unwrap(),
            how,
        });
        self.world.engine.apply(None, settle).await.unwrap();
    }

    async fn swept(&self) -> Value {
        self.world.pass(61);
        self.site.reconcile().await.unwrap();
        self.execute().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_completes_in_time_settles_at_once() {
    let shop = Shop::new().await;
    let worker = async {
        let effect = shop.claim().await.remove(0);
        let told: Value = serde_json::from_str(&effect.payload).unwrap();
        assert_eq!(told["amount_cents"], 1500);
        assert!(told["reference"].as_str().unwrap().starts_with("atp_"));
        assert_eq!(effect.attempts_max, 1);
        shop.settle(&effect, Settlement::Complete { result: None })
            .await;
    };
    let (told, ()) = tokio::join!(shop.execute(), worker);
    // The wait may just have ended.
    let told = if told["state"] == "executing" {
        shop.swept().await
    } else {
        told
    };
    assert_eq!(told["state"], "settled");
    assert_eq!(told["rail"]["name"], "worker");
    assert!(told["rail"]["payment_id"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_worker_is_waited_for_and_has_news() {
    let mut shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let effect = shop.claim().await.remove(0);
    shop.settle(&effect, Settlement::Complete { result: None })
        .await;
    let reference = shop.changes.recv().await.unwrap();
    shop.site.recheck(&reference).await.unwrap();
    assert_eq!(shop.execute().await["state"], "settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_never_handed_out_twice() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    assert_eq!(shop.claim().await.len(), 1);
    assert_eq!(shop.swept().await["state"], "executing");
    assert!(shop.claim().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_gave_up_is_not_charged() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let effect = shop.claim().await.remove(0);
    let error = "out of stock".to_owned();
    shop.settle(&effect, Settlement::Fail { error }).await;
    let told = shop.swept().await;
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["failure"]["message"], "out of stock");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_worker_leaves_it_open_though_its_intent_is_cancelled() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let effect = shop.claim().await.remove(0);
    // Its lease expires, and the only attempt is used.
    shop.world.pass(3_600);
    assert_eq!(shop.swept().await["state"], "executing");
    let cancel = Command::Cancel(Operate {
        id: effect.id,
        face: Face::Intent,
        reason: "no more of this".to_owned(),
    });
    shop.world.engine.apply(None, cancel).await.unwrap();
    assert_eq!(shop.swept().await["state"], "executing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cancelled_before_anybody_took_it_is_not_charged() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let found = shop.world.ledger.store.dump().await.unwrap();
    let effect = found.intents.iter().find(|row| row.goal == "atp.effect");
    let cancel = Command::Cancel(Operate {
        id: effect.unwrap().id,
        face: Face::Intent,
        reason: "no more of this".to_owned(),
    });
    shop.world.engine.apply(None, cancel).await.unwrap();
    let told = shop.swept().await;
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["compensation_receipt"]["outcome"], "not_charged");
    assert_eq!(told["compensation_receipt"].get("resolved_by"), None);
}

impl Shop {
    /// A worker claims the effect and disappears.
    async fn lose_a_worker(&self) {
        assert_eq!(self.claim().await.len(), 1);
        // Its lease expires, and the only attempt is used.
        self.world.pass(3_600);
    }

    async fn resolve(&self, transaction_id: &str, outcome: &str) -> Result<Value, Problem> {
        let sent = json!({"outcome": outcome, "reason": "seen at the bank"}).to_string();
        let answer = self.site.resolve(transaction_id, sent.as_bytes()).await?;
        Ok(body(&answer)["transaction"].clone())
    }

    async fn alert(&self) -> Value {
        let listed = self.site.transactions_shown(None, 10, None).await.unwrap();
        body(&listed)["transactions"][0]["alert"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_says_that_a_lost_worker_did_it() {
    let shop = Shop::new().await;
    let id = shop.execute().await["transaction_id"].clone();
    let id = id.as_str().unwrap();
    shop.lose_a_worker().await;
    assert_eq!(shop.swept().await["state"], "executing");
    let alert = shop.alert().await;
    assert!(alert.as_str().unwrap().contains("tx resolve"), "{alert}");
    let told = shop.resolve(id, "charged").await.unwrap();
    assert_eq!(told["state"], "settled");
    assert_eq!(told["alert"], Value::Null);
    assert_eq!(told["operator_word"]["reason"], "seen at the bank");
    // The receipt shows who decided the outcome.
    let receipt = &shop.execute().await["receipt"];
    let steps = receipt["transaction"]["steps"].as_array();
    let steps = steps.or_else(|| receipt["steps"].as_array()).unwrap();
    assert_eq!(steps[1]["action"], "operator_resolved");
    let said_before = shop.resolve(id, "not_charged").await;
    assert!(
        matches!(said_before, Err(Problem::NotInDoubt { .. })),
        "{said_before:?}"
    );
    shop.world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_says_that_a_lost_worker_never_did_it() {
    let shop = Shop::new().await;
    let id = shop.execute().await["transaction_id"].clone();
    shop.lose_a_worker().await;
    // The rail is queried once more, which detects the loss.
    let told = shop
        .resolve(id.as_str().unwrap(), "not_charged")
        .await
        .unwrap();
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["failure"]["message"], "seen at the bank");
    let told = shop.execute().await;
    assert_eq!(told["compensation_receipt"]["outcome"], "not_charged");
    assert_eq!(told["compensation_receipt"]["resolved_by"], "operator");
    shop.world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_has_no_say_while_a_worker_may_still_answer() {
    let shop = Shop::new().await;
    let id = shop.execute().await["transaction_id"].clone();
    let id = id.as_str().unwrap();
    for outcome in ["charged", "not_charged", "refunded"] {
        let early = shop.resolve(id, outcome).await;
        assert!(
            matches!(early, Err(Problem::NotInDoubt { .. })),
            "{early:?}"
        );
    }
    let effect = shop.claim().await.remove(0);
    let early = shop.resolve(id, "not_charged").await;
    assert!(
        matches!(early, Err(Problem::NotInDoubt { .. })),
        "{early:?}"
    );
    let done = Settlement::Complete { result: None };
    shop.settle(&effect, done).await;
    // The worker's report takes precedence.
    let late = shop.resolve(id, "not_charged").await;
    assert!(matches!(late, Err(Problem::NotInDoubt { .. })), "{late:?}");
    assert_eq!(shop.execute().await["state"], "settled");
    shop.world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_ever_took_is_not_charged() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    shop.world.pass(31 * 86_400);
    let told = shop.swept().await;
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["failure"]["code"], "nobody_took_it");
}

fn charge(row: &str) -> Charge {
    Charge {
        intent_id: "int_abc".to_owned(),
        transaction_id: format!("atp_tx_{row}"),
        reference: RailReference::stored("atp_slept"),
        amount: Cents::new(1_500).unwrap(),
        currency: Currency::EUR,
        action: None,
        summary: None,
        payment_method: None,
        capture: Capture::Automatic,
        refunds_refused: 0,
    }
}

/// A node that was suspended before publishing an effect resumes after another node ended the transaction as not charged.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_fenced_off_is_never_published() {
    let shop = Shop::new().await;
    let charge = charge(&IntentId::new(Micros(0), Seq(1), 7).to_string());
    let rail = shop.rail.clone();
    assert_eq!(rail.cancel(&charge, None).await, Fenced::Cancelled);
    let late = rail.confirm(&charge, None).await;
    assert_eq!(late.outcome, RailOutcome::Unknown);
    assert_eq!(
        rail.look_up(&charge, None).await.outcome,
        RailOutcome::NotFound
    );
    // The fence of an effect does not stop its refund.
    assert_eq!(rail.refund(&charge, None).await, RefundOutcome::Pending);
    shop.world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_says_what_became_of_a_lost_refund() {
    for outcome in ["refunded", "not_refunded"] {
        let shop = Shop::new().await;
        let id = shop.execute().await["transaction_id"].clone();
        let id = id.as_str().unwrap();
        let effect = shop.claim().await.remove(0);
        let done = Settlement::Complete { result: None };
        shop.settle(&effect, done).await;
        assert_eq!(shop.swept().await["state"], "settled");
        let sent = br#"{"intent_id":"int_abc","reason":"r"}"#;
        let key = Some(KEY.as_bytes());
        let answer = response(shop.site.compensate(key, sent).await).unwrap();
        assert_eq!(answer.status, 202);
        shop.lose_a_worker().await;
        assert_eq!(shop.swept().await["state"], "settled");
        for elsewhere in ["charged", "not_charged"] {
            let misplaced = shop.resolve(id, elsewhere).await;
            assert!(matches!(misplaced, Err(Problem::NotInDoubt { .. })));
        }
        let told = shop.resolve(id, outcome).await.unwrap();
        let happened = outcome == "refunded";
        let expected = if happened { "compensated" } else { "settled" };
        assert_eq!(told["state"], expected);
        let answer = response(shop.site.compensate(key, sent).await).unwrap();
        assert_eq!(answer.status, 200);
        let told = body(&answer);
        if happened {
            assert_eq!(told["compensation_receipt"]["outcome"], "refunded");
            assert_eq!(told["compensation_receipt"]["resolved_by"], "operator");
        } else {
            assert_eq!(told["failure"]["code"], "operator");
        }
        shop.world.is_sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_is_an_effect_too() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let effect = shop.claim().await.remove(0);
    shop.settle(&effect, Settlement::Complete { result: None })
        .await;
    assert_eq!(shop.swept().await["state"], "settled");
    let sent = br#"{"intent_id":"int_abc","reason":"r"}"#;
    let key = Some(KEY.as_bytes());
    let answer = response(shop.site.compensate(key, sent).await).unwrap();
    assert_eq!(answer.status, 202);
    let refund = shop.claim().await.remove(0);
    assert_eq!(refund.goal, "atp.effect.refund");
    shop.settle(&refund, Settlement::Complete { result: None })
        .await;
    let told = shop.swept().await;
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["compensation_receipt"]["outcome"], "refunded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_that_a_worker_failed_may_be_asked_for_again() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let done = || Settlement::Complete { result: None };
    let effect = shop.claim().await.remove(0);
    shop.settle(&effect, done()).await;
    assert_eq!(shop.swept().await["state"], "settled");
    let undo = async |key: &str| {
        let sent = br#"{"intent_id":"int_abc","reason":"r"}"#;
        let answer = shop.site.compensate(Some(key.as_bytes()), sent).await;
        body(&answer.unwrap())
    };
    undo(KEY).await;
    let refund = shop.claim().await.remove(0);
    let no = Settlement::Fail {
        error: "the till is empty".to_owned(),
    };
    shop.settle(&refund, no).await;
    assert_eq!(shop.swept().await["state"], "settled");
    assert_eq!(undo(KEY).await["failure"]["message"], "the till is empty");

    undo(OTHER_KEY).await;
    let again = shop.claim().await.remove(0);
    assert_eq!(again.goal, "atp.effect.refund");
    shop.settle(&again, done()).await;
    let told = shop.swept().await;
    assert_eq!(told["state"], "compensated");
    let reference = &told["compensation_receipt"]["rail"]["refund_reference"];
    assert!(reference.as_str().unwrap().ends_with("_refund_2"));
    assert_eq!(undo(KEY).await["failure"]["message"], "the till is empty");
    shop.world.is_sound().await;
}

/// The server was started with another goal while an effect was open.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_found_under_the_goal_that_it_was_published_with() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let effect = shop.claim().await.remove(0);
    let (news, _heard) = mpsc::channel(8);
    let renamed = WorkerRail::new(
        shop.world.engine.clone(),
        WorkerOptions {
            goal: "shop.pay".to_owned(),
            wait: Duration::from_millis(300),
            changes: news,
            watched_max: 8,
        },
    );
    let row = shop.world.engine.observe(effect.id).await.unwrap().unwrap();
    let charge = charge(&row.ties.parent.unwrap().to_string());
    let fenced = renamed.cancel(&charge, None).await;
    assert_eq!(fenced, Fenced::Unknown, "a worker has it");
    shop.settle(&effect, Settlement::Complete { result: None })
        .await;
    let found = renamed.look_up(&charge, None).await;
    assert_eq!(found.outcome, RailOutcome::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_worker_is_not_watched_for_ever() {
    let mut shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let effect = shop.claim().await.remove(0);
    shop.world.pass(3_600);
    // Expiry takes effect when the row is read.
    shop.world.engine.observe(effect.id).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(30), shop.changes.recv()).await;
    assert!(told.unwrap().is_some(), "the change was not reported");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_effects_are_watched_than_there_are_places() {
    let mut shop = Shop::watching(1).await;
    shop.world.authorized("int_def").await;
    for id in ["int_abc", "int_def"] {
        let answer = shop.world.execute_at(&shop.site, id, KEY).await.unwrap();
        assert_eq!(body(&answer)["state"], "executing");
    }
    for effect in shop.claim().await {
        let done = Settlement::Complete { result: None };
        shop.settle(&effect, done).await;
    }
    assert!(shop.changes.recv().await.is_some());
    let Shop {
        world,
        site,
        rail,
        mut changes,
    } = shop;
    drop((site, rail));
    assert_eq!(changes.recv().await, None, "no other change was reported");
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_cannot_have_an_effect_done_again() {
    let shop = Shop::new().await;
    assert_eq!(shop.execute().await["state"], "executing");
    let effect = shop.claim().await.remove(0);
    let failed = Settlement::Fail {
        error: "timeout".to_owned(),
    };
    shop.settle(&effect, failed).await;
    let engine = &shop.world.engine;
    let again = engine
        .requeue(Operator::vouched(), Face::Intent, effect.id, "again")
        .await;
    let Err(Error::Refused(refusal)) = again else {
        panic!("not refused: {again:?}");
    };
    assert_eq!(refusal, Refusal::EffectOnce);
    assert!(shop.claim().await.is_empty());
}
