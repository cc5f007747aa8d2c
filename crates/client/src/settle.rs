//! Settling many claims in one request, and claiming the next ones in the same round trip.
//!
//! Invariant: every item has its own outcome; a refused item does not affect the others.

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::intents::{NextAttempt, NextAttemptFields, Output, OutputField, output_kind};
use crate::{Claimed, Client, Error, ErrorDetail};

/// The settlement of one claim.
#[derive(Clone)]
pub enum ClaimSettlement {
    Fulfil {
        id: String,
        claim_token: String,
        output: Option<Output>,
    },
    Fail {
        id: String,
        claim_token: String,
        error: String,
        next: NextAttempt,
    },
}

/// Leaves out the claim token, which is a credential.
impl std::fmt::Debug for ClaimSettlement {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, id) = match self {
            Self::Fulfil { id, .. } => ("Fulfil", id),
            Self::Fail { id, .. } => ("Fail", id),
        };
        formatter
            .debug_struct(name)
            .field("id", id)
            .finish_non_exhaustive()
    }
}

/// A claim in the same request.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ClaimNext {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The id of the worker, as in a claim of its own.
    #[serde(skip)]
    pub worker_id: Option<String>,
    #[serde(skip)]
    pub capabilities: Vec<String>,
}

/// Outcomes in the order of the items, and the claimed intents.
#[derive(Debug, Clone, Deserialize)]
pub struct SettleResponse {
    pub items: Vec<ItemOutcome>,
    #[serde(default)]
    pub intents: Vec<Claimed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ItemOutcome {
    pub id: String,
    pub ok: bool,
    /// The reason, if `ok` is false.
    #[serde(default)]
    pub error: Option<ErrorDetail>,
    /// The error of a failure was longer than what the server keeps of it.
    #[serde(default)]
    pub error_truncated: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    items: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<&'a ClaimNext>,
}

#[derive(Serialize)]
struct Item<'a> {
    id: &'a str,
    claim_token: &'a str,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<OutputField<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(flatten)]
    next: NextAttemptFields,
}

impl Client {
    /// Settles all `items`; with `claim`, claims more work in the same round trip.
    pub async fn settle(
        &self,
        items: &[ClaimSettlement],
        claim: Option<&ClaimNext>,
    ) -> Result<SettleResponse, Error> {
        let body = Body {
            items: items.iter().map(item).collect(),
            claim,
        };
        let worker_id = claim.and_then(|claim| claim.worker_id.as_deref());
        let capabilities = claim.map(|claim| claim.capabilities.join(","));
        let capabilities = capabilities.filter(|list| !list.is_empty());
        let call = Call::post("settle", "/settle".to_owned())
            .json(&body)?
            .header("x-worker-id", worker_id)?
            .header("x-worker-capabilities", capabilities.as_deref())?;
        self.fetch(call).await
    }
}

fn item(settlement: &ClaimSettlement) -> Item<'_> {
    match settlement {
        ClaimSettlement::Fulfil {
            id,
            claim_token,
            output,
        } => Item {
            id,
            claim_token,
            action: "fulfill",
            result: output.as_ref().map(OutputField::from),
            result_type: output.as_ref().map(output_kind),
            error: None,
            next: NextAttemptFields::default(),
        },
        ClaimSettlement::Fail {
            id,
            claim_token,
            error,
            next,
        } => Item {
            id,
            claim_token,
            action: "fail",
            result: None,
            result_type: None,
            error: Some(error),
            next: (*next).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settlement_is_written_with_only_the_fields_of_its_action() {
        let items = [
            ClaimSettlement::Fulfil {
                id: "a".to_owned(),
                claim_token: "t".to_owned(),
                output: Some(Output::Text("done".to_owned())),
            },
            ClaimSettlement::Fail {
                id: "b".to_owned(),
                claim_token: "u".to_owned(),
                error: "no".to_owned(),
                next: NextAttempt::In(std::time::Duration::from_millis(1_500)),
            },
        ];
        let next = ClaimNext {
            max: Some(2),
            ..ClaimNext::default()
        };
        let body = Body {
            items: items.iter().map(item).collect(),
            claim: Some(&next),
        };
        assert_eq!(
            serde_json::to_string(&body).unwrap(),
            concat!(
                r#"{"items":[{"id":"a","claim_token":"t","action":"fulfill","result":"done","result_type":"text"},"#,
                r#"{"id":"b","claim_token":"u","action":"fail","error":"no","retry_in":1.5}],"claim":{"max":2}}"#
            )
        );
        assert!(!format!("{items:?}").contains("claim_token"));
    }

    #[test]
    fn outcomes_are_read_item_by_item() {
        let settled: SettleResponse = serde_json::from_str(
            r#"{"items":[{"id":"a","ok":true},{"id":"b","ok":false,"error":{"code":"not_found","message":"gone"}}]}"#,
        )
        .unwrap();
        assert!(settled.items[0].ok);
        assert_eq!(settled.items[1].error.as_ref().unwrap().code, "not_found");
        assert!(settled.intents.is_empty() && !settled.items[1].error_truncated);
    }
}
