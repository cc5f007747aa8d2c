//! The built-in catalog, the texts of refusals, and catalogs that cannot be loaded.

use serde_json::{Value, json};

use super::schema::FieldType;
use super::*;

/// Required and optional fields of each intent, `name:type`, with the values of an enumeration after a `=`.
const FIELDS: [(&str, &str, &str); 11] = [
    (
        "escalation.request",
        "caseId:string reason:string",
        "urgency:string=low/medium/high/critical customerName:string",
    ),
    (
        "payment.status_check",
        "",
        "projectId:string invoiceNumber:string customerName:string",
    ),
    (
        "sales.pipeline_summary",
        "",
        "timeRange:string owner:string",
    ),
    (
        "system.broadcast",
        "message:string",
        "priority:string=info/warning/critical",
    ),
    ("agent.ping", "", "message:string"),
    ("agent.introduce", "", "question:string"),
    (
        "conversation.message",
        "message:string",
        "context:object language:string",
    ),
    (
        "quote.request",
        "sku:string quantity:integer shipTo:string",
        "project:string neededBy:string",
    ),
    (
        "inventory.check",
        "sku:string quantity:integer",
        "shipTo:string",
    ),
    (
        "purchase.preflight",
        "requestNonce:string sku:string quantity:integer totalPriceEur:number",
        "",
    ),
    (
        "task.delegate",
        "task:string",
        "context:string deadline:string priority:string=low/medium/high",
    ),
];

#[test]
fn be_091_the_built_in_catalog_lists_eleven_intents() {
    let ids: Vec<&str> = BUILT_IN.intents().iter().map(|i| i.id.as_str()).collect();
    assert_eq!(ids, FIELDS.map(|(id, _, _)| id));
    for (id, required, optional) in FIELDS {
        let listed = |wanted: bool| -> Vec<String> {
            let schema = &BUILT_IN.get(id).unwrap().payload;
            let fields = schema
                .fields()
                .filter(|(_, field)| field.required == wanted);
            fields.map(|(name, field)| describe(name, field)).collect()
        };
        assert_eq!(listed(true).join(" "), required, "{id}");
        assert_eq!(listed(false).join(" "), optional, "{id}");
    }
}

fn describe(name: &str, field: &schema::PayloadField) -> String {
    let mut text = format!("{name}:{}", field.kind.map_or("", FieldType::word));
    let values = field.allowed.iter().flatten().map(|value| {
        let schema::EnumValue::Text(text) = value else {
            panic!("{value:?}");
        };
        text.as_str()
    });
    for (index, value) in values.enumerate() {
        text.push(if index == 0 { '=' } else { '/' });
        text.push_str(value);
    }
    text
}

#[test]
fn be_091_an_intent_is_refused_with_the_first_error() {
    for (intent, payload, expected) in [
        ("no.such", json!({}), "Unknown intent type: no.such"),
        ("", json!({}), "Unknown intent type: "),
        ("Agent.Ping", json!({}), "Unknown intent type: Agent.Ping"),
        (
            "system.broadcast",
            json!({}),
            "Invalid payload for intent system.broadcast at /: must have required property 'message'",
        ),
        (
            "quote.request",
            json!({"quantity": "many"}),
            "Invalid payload for intent quote.request at /: must have required property 'sku'",
        ),
        (
            "quote.request",
            json!({"sku": 1, "quantity": "many", "shipTo": "Bonn", "project": 7}),
            "Invalid payload for intent quote.request at /project: must be string",
        ),
        (
            "quote.request",
            json!({"sku": "A", "quantity": 2.5, "shipTo": "Bonn"}),
            "Invalid payload for intent quote.request at /quantity: must be integer",
        ),
        (
            "purchase.preflight",
            json!({"requestNonce": "n", "sku": "A", "quantity": 1, "totalPriceEur": "9"}),
            "Invalid payload for intent purchase.preflight at /totalPriceEur: must be number",
        ),
        (
            "conversation.message",
            json!({"message": "hi", "context": []}),
            "Invalid payload for intent conversation.message at /context: must be object",
        ),
        (
            "conversation.message",
            json!({"message": null}),
            "Invalid payload for intent conversation.message at /message: must be string",
        ),
        (
            "task.delegate",
            json!({"task": "t", "priority": "urgent"}),
            "Invalid payload for intent task.delegate at /priority: must be equal to one of the allowed values",
        ),
        (
            "task.delegate",
            json!({"task": "t", "priority": 1}),
            "Invalid payload for intent task.delegate at /priority: must be string",
        ),
        (
            "agent.ping",
            json!([]),
            "Invalid payload for intent agent.ping at /: must be object",
        ),
    ] {
        let refusal = BUILT_IN.check(intent, &payload).unwrap_err();
        assert_eq!(refusal.to_string(), expected);
    }
}

#[test]
fn be_091_listed_and_additional_fields_are_accepted() {
    for (intent, payload) in [
        ("agent.ping", json!({})),
        ("agent.ping", json!({"message": "hi", "more": {"any": [1]}})),
        ("inventory.check", json!({"sku": "A", "quantity": 2})),
        ("inventory.check", json!({"sku": "A", "quantity": 2.0})),
        ("inventory.check", json!({"sku": "A", "quantity": -2e3})),
        ("task.delegate", json!({"task": "t", "priority": "high"})),
        // A length limit is documentation.
        (
            "conversation.message",
            json!({"message": "x".repeat(40_000)}),
        ),
    ] {
        BUILT_IN.check(intent, &payload).unwrap();
    }
}

#[test]
fn another_catalog_can_use_every_type() {
    let text = r#"{"intents": [{"id": "t", "params": {
        "z/~": {"type": "boolean"}, "a": {"type": "array"}, "n": {"enum": [1, true, null, "x"]}, "free": {}
    }}]}"#;
    let catalog = Catalog::parse(text).unwrap();
    assert_eq!(catalog.document(), text);
    let intent = catalog.get("t").unwrap();
    assert!(intent.is_from_every_agent() && intent.is_to_every_agent());
    let check = |payload: Value| {
        let refusal = catalog.check("t", &payload).err()?;
        Some(refusal.to_string().split_once(" at ")?.1.to_owned())
    };
    for accepted in [json!(1), json!(1.0), json!(true), json!(null), json!("x")] {
        assert_eq!(check(json!({"n": accepted, "free": [null]})), None);
    }
    for (payload, expected) in [
        // The order is that of the catalog.
        (json!({"a": 1, "z/~": 1}), "/z~1~0: must be boolean"),
        (json!({"a": {}}), "/a: must be array"),
        (
            json!({"n": 2}),
            "/n: must be equal to one of the allowed values",
        ),
        (
            json!({"n": {}}),
            "/n: must be equal to one of the allowed values",
        ),
    ] {
        assert_eq!(check(payload).as_deref(), Some(expected));
    }
}

#[test]
fn a_text_that_is_no_catalog_is_refused_with_the_reason() {
    for (text, expected) in [
        ("", "the catalog is not valid: EOF while parsing"),
        (
            "intents: []",
            "the catalog is not valid: expected value at line 1",
        ),
        ("{}", "the catalog is not valid: missing field `intents`"),
        (
            r#"{"intents": [{}]}"#,
            "the catalog is not valid: missing field `id` at line 1",
        ),
        (
            r#"{"intents": [{"id": "a"}, {"id": " "}]}"#,
            "intent 2 of the catalog has a blank id",
        ),
        (
            r#"{"intents": [{"id": "a"}, {"id": "a"}]}"#,
            "the catalog lists the intent `a` twice",
        ),
        (
            r#"{"intents": [{"id": "a", "payload": {"x": {"type": "text"}}}]}"#,
            "the catalog is not valid: unknown variant `text`, expected one of `string`",
        ),
        (
            r#"{"intents": [{"id": "a", "payload": {"x": {"enum": [[]]}}}]}"#,
            "the catalog is not valid: a text, number, boolean or null",
        ),
        (
            r#"{"intents": [{"id": "a", "payload": {"x": {}, "x": {}}}]}"#,
            "the catalog is not valid: the field `x` occurs twice",
        ),
        (
            r#"{"intents": [{"id": "a", "payload": []}]}"#,
            "the catalog is not valid: invalid type: sequence, expected an object with a rule per field",
        ),
    ] {
        let error = Catalog::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}
