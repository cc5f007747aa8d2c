//! Codes, reasons and exit statuses.

use super::*;

#[test]
fn codes_read_back_and_have_short_reasons() {
    for code in MeshCloseCode::ALL {
        assert_eq!(MeshCloseCode::from_code(code.code()), Some(*code));
        assert!(code.reason().len() <= CLOSE_REASON_BYTES_MAX);
    }
    assert_eq!(MeshCloseCode::from_code(1006), None);
}

#[test]
fn failed_negotiations_exit_with_10_11_and_12() {
    let status = |code| {
        MeshCloseCode::from_code(code)
            .unwrap()
            .exit()
            .map(DaemonExit::status)
    };
    assert_eq!(
        [4010, 4011, 4012].map(status),
        [Some(10), Some(11), Some(12)]
    );
    assert_eq!([4002, 4003].map(status), [Some(5), Some(6)]);
    assert_eq!([1000, 1001, 1008, 1009].map(status), [None; 4]);
}

#[test]
fn reasons_are_json_that_fits_a_close_frame() {
    let reason = |detail: &str| MeshCloseReason {
        kind: "feature_param_below_floor".to_owned(),
        feature: "client_message_id_dedupe".to_owned(),
        detail: detail.to_owned(),
    };
    assert_eq!(
        reason("days 2 < 3").to_text(),
        r#"{"kind":"feature_param_below_floor","feature":"client_message_id_dedupe","detail":"days 2 < 3"}"#
    );
    for detail in ["\u{1f600}".repeat(50), "\"".repeat(200), "\0".repeat(90)] {
        let text = reason(&detail).to_text();
        assert!(text.len() <= CLOSE_REASON_BYTES_MAX, "{text}");
        let read: MeshCloseReason = serde_json::from_str(&text).unwrap();
        assert_eq!(read.feature, "client_message_id_dedupe");
        assert!(detail.starts_with(&read.detail));
    }
    let long = MeshCloseReason {
        feature: "f".repeat(500),
        kind: "k".repeat(500),
        detail: String::new(),
    };
    assert!(long.to_text().len() <= CLOSE_REASON_BYTES_MAX);
}
