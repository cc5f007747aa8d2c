//! The description against the code: routes, members of bodies, examples.

use std::collections::BTreeSet;

use consign_web::openapi::ResponseContent;
use consign_web::openapi::schema::Schema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::*;
use crate::id::MeshSlug;
use crate::ipc::{
    CompatAnswer, FileGetQuery, FileShareRequest, HealthAnswer, InboxItem, IpcItemList, IpcPublish,
    IpcRefusal, IpcRoute, IpcSend, OutboxDrop, OutboxItem, OutboxPrune, OutboxRequeue,
    PeerProfileUpdate, RequeueAnswer, SendAnswer, StateUpdate, TopicItem, TopicSubscription,
    VersionAnswer, path,
};

#[test]
fn the_routes_that_are_described_are_those_that_are_served() {
    let document = document();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            described.insert(format!("{} {path}", method.to_ascii_uppercase()));
        }
    }
    let served: BTreeSet<String> = IpcRoute::ALL
        .iter()
        .map(|route| format!("{} {}", route.method(), route.path()))
        .collect();
    assert_eq!(described, served);
    assert_eq!(
        endpoints().len(),
        IpcRoute::ALL.len(),
        "each is described once"
    );
}

#[test]
fn names_of_operations_are_used_once_and_references_are_defined() {
    let endpoints = endpoints();
    let ids: BTreeSet<&str> = endpoints.iter().map(|one| one.operation.id).collect();
    assert_eq!(ids.len(), endpoints.len());
    let document = document();
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}

/// Reads a body as the handler of the route does; `None` if it reads none.
fn read(route: IpcRoute, body: &[u8]) -> Option<Result<(), IpcRefusal>> {
    let own = MeshSlug::parse("team").unwrap();
    Some(match route {
        IpcRoute::Send => IpcSend::parse_send(body, None, &own).map(drop),
        IpcRoute::TopicPost => IpcSend::parse_post(body, None, &own).map(drop),
        IpcRoute::Intents => IpcPublish::parse(body, None, &own).map(drop),
        IpcRoute::TopicSubscribe | IpcRoute::TopicUnsubscribe => {
            TopicSubscription::parse(body, &own).map(drop)
        }
        IpcRoute::Profile => PeerProfileUpdate::parse(body).map(drop),
        IpcRoute::FileShare => FileShareRequest::parse(body).map(drop),
        IpcRoute::StateSet => StateUpdate::parse(body).map(drop),
        IpcRoute::OutboxRequeue => OutboxRequeue::parse(body).map(drop),
        IpcRoute::OutboxDrop => OutboxDrop::parse(body).map(drop),
        IpcRoute::OutboxPrune => OutboxPrune::parse(body).map(drop),
        IpcRoute::TopicList
        | IpcRoute::Inbox
        | IpcRoute::Peers
        | IpcRoute::FileGet
        | IpcRoute::FileList
        | IpcRoute::Events
        | IpcRoute::Health
        | IpcRoute::Metrics
        | IpcRoute::Version
        | IpcRoute::Compat
        | IpcRoute::Heartbeat
        | IpcRoute::StateGet
        | IpcRoute::Outbox
        | IpcRoute::TokenRotate
        | IpcRoute::KeypairRotate
        | IpcRoute::ArchiveCleanup
        | IpcRoute::Reload
        | IpcRoute::Shutdown => return None,
    })
}

#[test]
fn a_body_is_read_with_its_required_members_and_not_without_one_of_them() {
    for endpoint in endpoints() {
        let route = IpcRoute::find(endpoint.method.as_str(), endpoint.path).unwrap();
        let Some(body) = &endpoint.operation.body else {
            assert!(read(route, b"{}").is_none(), "{route:?} reads a body");
            continue;
        };
        let example: Map<String, Value> = serde_json::from_str(body.example).unwrap();
        let parse = |members: &Map<String, Value>| {
            let text = Value::from(members.clone()).to_string();
            read(route, text.as_bytes()).expect("a body is described")
        };
        parse(&example).unwrap_or_else(|refusal| panic!("{route:?}: {refusal}"));
        let fields = body.schema.fields();
        for name in example.keys() {
            let field = fields.iter().find(|field| field.name == name);
            assert!(field.is_some(), "{route:?}: {name} is not described");
        }
        let mut least = example.clone();
        least.retain(|name, _| fields.iter().any(|one| one.name == name && one.required));
        for field in fields.iter().filter(|field| field.required) {
            let mut without = example.clone();
            assert!(
                without.remove(field.name).is_some(),
                "{route:?}: {}",
                field.name
            );
            assert!(
                parse(&without).is_err(),
                "{route:?} does not need {}",
                field.name
            );
        }
        // A change of the profile needs one member, whichever it is.
        if route != IpcRoute::Profile {
            parse(&least).unwrap_or_else(|refusal| panic!("{route:?} needs more: {refusal}"));
        }
        for field in fields.iter().filter(|field| !field.required) {
            let mut with_null = example.clone();
            with_null.insert(field.name.to_owned(), Value::Null);
            let definition = field.schema.definition().to_string();
            // Null is allowed where the description says so.
            if definition.contains("\"null\"") && route != IpcRoute::Profile {
                parse(&with_null)
                    .unwrap_or_else(|refusal| panic!("{route:?} {}: {refusal}", field.name));
            }
        }
    }
    for (query, is_read) in [("id=1&out=/a", true), ("id=1", false), ("out=/a", false)] {
        assert_eq!(FileGetQuery::parse(query).is_ok(), is_read, "{query}");
    }
}

/// The example is what the daemon's own type writes, and has the described members.
fn check<T: Serialize + DeserializeOwned>(example: &str, schema: &Schema) {
    let given: Value = serde_json::from_str(example).unwrap();
    let read: T = serde_json::from_str(example).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), given);
    check_members(&given, schema);
}

fn check_members(value: &Value, schema: &Schema) {
    match value {
        Value::Object(members) if !schema.fields().is_empty() => {
            for field in schema.fields() {
                match members.get(field.name) {
                    Some(member) => check_members(member, &field.schema),
                    None => assert!(!field.required, "{} is missing", field.name),
                }
            }
            let is_described =
                |name: &&String| schema.fields().iter().any(|one| one.name == **name);
            let further: Vec<_> = members.keys().filter(|name| !is_described(name)).collect();
            assert!(further.is_empty(), "{further:?} are not described");
        }
        Value::Array(items) => {
            for item in items {
                check_members(item, schema.element().expect("a list of something"));
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The same for an answer in which null counts as absent, but for a conflict that writes it.
fn check_sent(example: &str, schema: &Schema) {
    let given: Value = serde_json::from_str(example).unwrap();
    let read: SendAnswer = serde_json::from_str(example).unwrap();
    let mut written = serde_json::to_value(read).unwrap();
    if given.get("conflict").is_some() && given["broker_message_id"].is_null() {
        written["broker_message_id"] = Value::Null;
    }
    assert_eq!(written, given);
    check_members(&given, schema);
}

#[derive(serde::Serialize, serde::Deserialize)]
struct TopicsAnswer {
    topics: Vec<TopicItem>,
}

#[test]
fn answers_have_the_members_that_are_described() {
    let mut checked = 0;
    for endpoint in endpoints() {
        let route = IpcRoute::find(endpoint.method.as_str(), endpoint.path).unwrap();
        for response in &endpoint.operation.responses {
            let ResponseContent::Json(schema) = &response.content else {
                continue;
            };
            if response.example.is_empty() {
                continue;
            }
            if matches!(route.path(), path::SEND | path::TOPIC_POST | path::INTENTS) {
                check_sent(response.example, schema);
                checked += 1;
                continue;
            }
            let check = match route.path() {
                path::INBOX => check::<IpcItemList<InboxItem>>,
                path::OUTBOX => check::<IpcItemList<OutboxItem>>,
                path::OUTBOX_REQUEUE => check::<RequeueAnswer>,
                path::HEALTH => check::<HealthAnswer>,
                path::VERSION => check::<VersionAnswer>,
                path::COMPAT => check::<CompatAnswer>,
                path::TOPIC_LIST => check::<TopicsAnswer>,
                other => panic!("{other} has an example without a type"),
            };
            check(response.example, schema);
            checked += 1;
        }
    }
    assert_eq!(checked, 3 * 3 + 7);
}
