//! Which answers of a broker a daemon accepts.

use serde_json::{Value, json};

use super::*;
use crate::frame::{BrokerFrame, FeatureRequest};
use crate::role::ClonePolicy;

/// The answer of the protocol's text, changed by the caller.
fn response(change: impl FnOnce(&mut Value)) -> FeatureResponse {
    let mut value = json!({"type": "feature_negotiation_response", "supported": {
        "client_message_id_dedupe": {"params": {"version": 2, "mode": "retention_scoped", "dedupe_retention_days": 365,
            "request_fingerprint": true, "tombstone_history_pruned_window_days": 30}},
        "concurrent_connection_policy": {"params": {"version": 1, "default_policy": "prefer_newest"}},
        "member_keypair_rotated_event": {"params": {"version": 1}},
        "max_payload": {"params": {"version": 1, "inline_bytes": 65536, "blob_bytes": 524_288_000}}},
        "missing_required": []});
    change(&mut value);
    let BrokerFrame::FeatureResponse(response) =
        BrokerFrame::parse(&value.to_string()).unwrap().frame
    else {
        panic!("{value}");
    };
    *response
}

fn with_dedupe(name: &str, value: Value) -> FeatureResponse {
    response(|response| response["supported"]["client_message_id_dedupe"]["params"][name] = value)
}

fn without_dedupe(name: &str) -> FeatureResponse {
    response(|response| {
        let params = &mut response["supported"]["client_message_id_dedupe"]["params"];
        params.as_object_mut().unwrap().remove(name);
    })
}

fn code(response: &FeatureResponse) -> u16 {
    match negotiate(&FeatureNeeds::default(), response) {
        Ok(_) => 0,
        Err(failure) => failure.code.code(),
    }
}

#[test]
fn the_answer_of_the_protocols_text_is_accepted() {
    let negotiated = negotiate(&FeatureNeeds::default(), &response(|_| ())).unwrap();
    assert_eq!(negotiated.features, [DEDUPE, CONCURRENT, MAX_PAYLOAD]);
    assert_eq!(negotiated.dedupe_window, Some(DedupeWindow::Days(365)));
    assert_eq!(
        (negotiated.inline_bytes, negotiated.blob_bytes),
        (Some(65_536), Some(524_288_000))
    );
    assert_eq!(negotiated.warnings, []);
    let permanent = with_dedupe("mode", json!("permanent"));
    let negotiated = negotiate(&FeatureNeeds::default(), &permanent).unwrap();
    assert_eq!(negotiated.dedupe_window, Some(DedupeWindow::Permanent));
}

#[test]
fn cm_083_too_few_days_are_4012_and_what_is_no_number_of_days_is_4011() {
    for days in [1, 2] {
        assert_eq!(
            code(&with_dedupe("dedupe_retention_days", json!(days))),
            4012
        );
    }
    for days in [
        json!(0),
        json!(-1),
        json!("3"),
        json!(3.5),
        json!(null),
        json!(1e300),
    ] {
        assert_eq!(
            code(&with_dedupe("dedupe_retention_days", days.clone())),
            4011,
            "{days}"
        );
    }
    assert_eq!(code(&without_dedupe("dedupe_retention_days")), 4011);
    assert_eq!(code(&with_dedupe("dedupe_retention_days", json!(3))), 0);
    assert_eq!(code(&with_dedupe("dedupe_retention_days", json!(3.0))), 0);
    let strict = FeatureNeeds {
        dedupe_days_min: 7,
        ..FeatureNeeds::default()
    };
    let six = with_dedupe("dedupe_retention_days", json!(6));
    assert_eq!(negotiate(&strict, &six).unwrap_err().code.code(), 4012);
}

#[test]
fn cm_131_old_dedupe_is_missing_and_unknown_dedupe_is_invalid() {
    consign_testkit::plants::from_environment();
    assert_eq!(code(&with_dedupe("version", json!(1))), 4010);
    for version in [json!(3), json!(0), json!("2"), json!(null)] {
        assert_eq!(
            code(&with_dedupe("version", version.clone())),
            4011,
            "{version}"
        );
    }
    assert_eq!(code(&without_dedupe("version")), 4011);
    assert_eq!(code(&with_dedupe("mode", json!("sometimes"))), 4011);
    assert_eq!(code(&without_dedupe("mode")), 4011);
    for claim in [json!(false), json!("true"), json!(1)] {
        assert_eq!(code(&with_dedupe("request_fingerprint", claim)), 4011);
    }
    assert_eq!(code(&without_dedupe("request_fingerprint")), 4011);
}

#[test]
fn a_missing_required_feature_is_4010() {
    for feature in REQUIRED {
        let missing = response(|response| {
            response["supported"]
                .as_object_mut()
                .unwrap()
                .remove(*feature);
        });
        let failure = negotiate(&FeatureNeeds::default(), &missing).unwrap_err();
        assert_eq!(
            (failure.code.code(), failure.feature.as_str()),
            (4010, *feature)
        );
        let listed = response(|response| response["missing_required"] = json!([feature]));
        assert_eq!(code(&listed), 4010);
    }
    assert_eq!(
        NegotiationFailure::no_answer(&FeatureNeeds::default())
            .code
            .code(),
        4010
    );
    let other =
        response(|response| response["supported"][CONCURRENT]["params"]["version"] = json!(2));
    assert_eq!(code(&other), 4011);
}

#[test]
fn cm_132_bad_optional_parameters_are_reported_and_ignored() {
    let answer = response(|response| {
        response["supported"][DEDUPE]["params"]["tombstone_history_pruned_window_days"] =
            json!("many");
        response["supported"][CONCURRENT]["params"]["default_policy"] = json!("newest");
        response["supported"][MAX_PAYLOAD]["params"]["inline_bytes"] = json!(1023);
    });
    let negotiated = negotiate(&FeatureNeeds::default(), &answer).unwrap();
    let reported: Vec<_> = negotiated
        .warnings
        .iter()
        .map(|one| (one.feature.as_str(), one.param.as_str()))
        .collect();
    assert_eq!(
        reported,
        [
            (DEDUPE, "tombstone_history_pruned_window_days"),
            (CONCURRENT, "default_policy"),
            (MAX_PAYLOAD, "params"),
        ]
    );
    assert_eq!(negotiated.features, [DEDUPE, CONCURRENT]);
    assert_eq!(negotiated.inline_bytes, None);
    let required = FeatureNeeds {
        require: vec![MAX_PAYLOAD.to_owned()],
        ..FeatureNeeds::default()
    };
    assert_eq!(negotiate(&required, &answer).unwrap_err().code.code(), 4011);
}

#[test]
fn this_broker_satisfies_this_daemon() {
    let needs = FeatureNeeds::default();
    let request = FeatureRequest {
        require: needs.require.clone(),
        optional: needs.optional.clone(),
    };
    for window in [
        DedupeWindow::Days(3),
        DedupeWindow::Days(365),
        DedupeWindow::Permanent,
    ] {
        let offer = BrokerOffer {
            window,
            clone_policy: ClonePolicy::PreferOldest,
            compares_fingerprints: true,
        };
        let response = answer(&offer, &request);
        assert_eq!(response.missing_required, Vec::<String>::new());
        let negotiated = negotiate(&needs, &response).unwrap();
        assert_eq!(negotiated.dedupe_window, Some(window));
        assert_eq!(
            response.supported[CONCURRENT].params["default_policy"],
            "prefer_oldest"
        );
    }
    let rolled_back = BrokerOffer {
        window: DedupeWindow::Permanent,
        clone_policy: ClonePolicy::PreferNewest,
        compares_fingerprints: false,
    };
    let response = answer(&rolled_back, &request);
    assert_eq!(response.missing_required, [DEDUPE]);
    assert_eq!(code(&response), 4010);
}

#[test]
fn the_reason_names_kind_feature_and_detail() {
    let failure = negotiate(
        &FeatureNeeds::default(),
        &with_dedupe("dedupe_retention_days", json!(2)),
    )
    .unwrap_err();
    let reason = failure.reason();
    assert_eq!(reason.kind, "feature_param_below_floor");
    assert_eq!(reason.feature, DEDUPE);
    assert_eq!(reason.detail, "dedupe_retention_days 2 < 3");
}
