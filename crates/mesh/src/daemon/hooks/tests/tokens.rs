//! What the token of a hook covers, and how long.

use super::super::tokens::HookTokens;
use super::super::*;
use super::world::*;
use crate::daemon::test_keys::key;
use crate::id::TopicName;

fn member(number: u8) -> Destination {
    Destination::Member(key(number).public_key())
}

fn topic(name: &str) -> Destination {
    Destination::Topic(TopicName::parse(name).unwrap())
}

fn origin() -> HookOrigin {
    HookOrigin {
        sender: Some(key(2).public_key()),
        topic: None,
    }
}

fn status(result: Result<(), IpcRefusal>) -> u16 {
    result.map_or_else(|refusal| refusal.status, |()| 200)
}

#[tokio::test]
async fn cm_103_cm_104_a_token_covers_its_scopes_and_nothing_that_reads() {
    let World { metrics, .. } = World::new();
    let tokens = HookTokens::new(metrics);
    let check = |scopes: &[&str], origin: &HookOrigin, destination: Option<&Destination>| {
        let scopes: Vec<String> = scopes.iter().map(|&scope| scope.to_owned()).collect();
        let token = tokens.mint("on-dm", &scopes, origin);
        status(tokens.authorize(token.reveal(), destination, Instant::now()))
    };
    let mut in_topic = origin();
    in_topic.topic = Some(TopicName::parse("alerts").unwrap());
    let sender = "dm:send:<sender_pubkey>";
    for (scopes, origin, destination, expected) in [
        (&["reply:event"][..], origin(), member(2), 200),
        (&["reply:event"], origin(), member(3), 403),
        (&["reply:event"], in_topic.clone(), topic("alerts"), 200),
        (&["reply:event"], in_topic, topic("other"), 403),
        (&["reply:event"], HookOrigin::default(), member(2), 403),
        (&[sender], origin(), member(2), 200),
        (&[sender], origin(), member(3), 403),
        (&[sender], HookOrigin::default(), member(2), 403),
        (&["topic:ops:post"], origin(), topic("ops"), 200),
        (&["topic:ops:post"], origin(), topic("ops2"), 403),
        (&["topic:ops:post"], origin(), Destination::Everyone, 403),
        (&["topic:ops:post", sender], origin(), member(2), 200),
    ] {
        assert_eq!(
            check(scopes, &origin, Some(&destination)),
            expected,
            "{scopes:?} {destination}"
        );
    }
    // A request that sends nothing.
    assert_eq!(
        check(&["reply:event", "topic:ops:post"], &origin(), None),
        403
    );
}

#[tokio::test]
async fn cm_103_a_token_ends_with_its_hook_or_after_five_minutes() {
    let World { metrics, .. } = World::new();
    let tokens = HookTokens::new(metrics);
    let scopes = ["reply:event".to_owned()];
    let token = tokens.mint("on-dm", &scopes, &origin());
    let text = token.reveal().to_owned();
    let now = Instant::now();
    let at = |seconds: u64| {
        let now = now + Duration::from_secs(seconds);
        status(tokens.authorize(&text, Some(&member(2)), now))
    };
    assert_eq!(at(0), 200);
    assert_eq!(at(299), 200);
    assert_eq!(at(301), 401);
    assert_eq!(token.calls(), 2);
    drop(token);
    assert_eq!(at(0), 401);
    let foreign = tokens.authorize("other", Some(&member(2)), now);
    assert_eq!(status(foreign), 401);
}

#[tokio::test]
async fn cm_103_the_token_in_the_environment_works_while_the_hook_runs() {
    let world = World::new();
    world.script(
        "on-dm",
        "echo $CLAUDEMESH_CAPABILITY_TOKEN > $OUT/new; mv $OUT/new $OUT/token\n\
         while [ ! -e $OUT/go ]; do sleep 0.02; done",
    );
    let mut loaded = world.load("[on-dm]\ncapability_token_scope = [\"reply:event\"]\n");
    loaded.hooks.fire_message(&message(json!({"id": "e1"})));
    until("the token is written", || world.path("token").exists()).await;
    let token = world.read("token").trim().to_owned();
    assert_eq!(token.len(), 43);
    assert_eq!(
        status(loaded.hooks.authorize(&token, Some(&member(2)))),
        200
    );
    assert_eq!(status(loaded.hooks.authorize(&token, None)), 403);
    std::fs::write(world.path("go"), "").unwrap();
    let run = loaded.end().await;
    assert_eq!(run.audit.capability_calls, 2);
    assert_eq!(
        status(loaded.hooks.authorize(&token, Some(&member(2)))),
        401
    );
    let count = |scope: &str| {
        let metric = DaemonMetric::HookCapabilityCalls;
        world.metrics.get(metric, &["on-dm", scope])
    };
    assert_eq!((count("reply:event"), count("none")), (1, 1));
    assert!(!world.read("daemon.log").contains(&token));
}
