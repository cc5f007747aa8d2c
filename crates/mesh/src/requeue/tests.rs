//! All forms of the command.

use super::*;

fn parsed(words: &str) -> Result<(String, Option<String>, Option<String>), RequeueError> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let command = RequeueCommand::parse(&words)?;
    let new_id = command.new_client_message_id.map(|id| id.to_string());
    Ok((command.row_id, new_id, command.patch_payload))
}

#[test]
fn cm_081_every_form_of_requeue_is_read() {
    let row = |new_id: Option<&str>, patch: Option<&str>| {
        Ok((
            "row".to_owned(),
            new_id.map(str::to_owned),
            patch.map(str::to_owned),
        ))
    };
    for words in [
        "row",
        "--id row",
        "--new-id row",
        "row --auto",
        "--id row --auto",
        "--new-id row --auto",
    ] {
        assert_eq!(parsed(words), row(None, None), "{words}");
    }
    for words in [
        "row --new-id n",
        "--new-id n row",
        "row --new-client-id n",
        "--id row --new-client-id n",
        "--new-id row --new-client-id n",
    ] {
        assert_eq!(parsed(words), row(Some("n"), None), "{words}");
    }
    assert_eq!(
        parsed("row --auto --patch-payload text"),
        row(None, Some("text"))
    );
}

#[test]
fn words_that_name_no_row_or_two_are_refused() {
    assert_eq!(parsed(""), Err(RequeueError::NoRow));
    assert_eq!(parsed("--auto"), Err(RequeueError::NoRow));
    assert_eq!(parsed("--new-client-id n"), Err(RequeueError::NoRow));
    for words in [
        "row other",
        "row --id other",
        "row --new-id a --new-client-id b",
        "row --auto --new-client-id b",
        "--id a --id b",
    ] {
        assert!(
            matches!(parsed(words), Err(RequeueError::Repeated(_))),
            "{words}"
        );
    }
    assert_eq!(
        parsed("row --new-client-id"),
        Err(RequeueError::NoValue("--new-client-id".to_owned()))
    );
    assert_eq!(
        parsed("row --force"),
        Err(RequeueError::Unknown("--force".to_owned()))
    );
    assert_eq!(
        parsed("row --new-client-id ö"),
        Err(RequeueError::InvalidId)
    );
}
