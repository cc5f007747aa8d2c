//! Writes the requests of a workload as bytes, signed if requested.
//!
//! Invariant: requests follow the Intent Protocol and set every option except visibility and
//! attempts. Buffers are reused; an unsigned request allocates nothing.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consign_client::{Address, SecretKey, signature};

use crate::Error;
use crate::plan::{BenchPlan, NAMESPACE};

/// Writes requests of one client into its buffer.
#[derive(Debug, Clone)]
pub(crate) struct RequestWriter {
    /// Host, key and worker, the same in every request.
    headers: Vec<u8>,
    signer: Option<RequestSigner>,
    publish_body: Vec<u8>,
    batch_body: Vec<u8>,
    claim_path: String,
    /// The member of a settle request that claims the next ones.
    claim_next: String,
    goal: String,
    payload_bytes: usize,
    body: Vec<u8>,
    path: String,
}

/// The state that makes each signature unique.
#[derive(Debug, Clone)]
struct RequestSigner {
    key: SecretKey,
    nonce_prefix: String,
    count: u64,
}

/// The options of a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimOptions {
    pub(crate) max: Option<usize>,
    pub(crate) wait: Duration,
}

impl RequestWriter {
    /// `client` must be unique among the writers of a run, because nonces contain it.
    pub(crate) fn new(
        plan: &BenchPlan,
        goal: &str,
        claiming: ClaimOptions,
        client: &str,
    ) -> Result<Self, Error> {
        let target = &plan.target;
        let mut headers = fixed_headers(&target.server, &target.key);
        if plan.backlog_mix {
            let _ = write!(headers, "X-Worker-Id: {NAMESPACE}-{client}\r\n");
        }
        let signer = plan
            .signed
            .then(|| RequestSigner::new(&target.key, client))
            .transpose()?;
        let item = item(NAMESPACE, goal, "", &payload(plan.payload_bytes, None));
        let max = claiming.max.map(|max| format!("&max={max}"));
        let wait = claiming.wait.as_secs_f64();
        let wait = (wait > 0.0).then(|| format!("&wait={wait}"));
        Ok(Self {
            headers,
            signer,
            batch_body: batch(std::iter::repeat_n(item.as_str(), plan.batch)),
            publish_body: item.into_bytes(),
            claim_path: format!(
                "/claim?namespace={NAMESPACE}&goal={goal}{}{}",
                max.unwrap_or_default(),
                wait.unwrap_or_default()
            ),
            claim_next: format!(
                r#","claim":{{"namespace":"{NAMESPACE}","goal":"{goal}","max":{}}}"#,
                claiming.max.unwrap_or(1)
            ),
            goal: goal.to_owned(),
            payload_bytes: plan.payload_bytes,
            body: Vec::new(),
            path: String::new(),
        })
    }

    pub(crate) fn publish(&mut self, out: &mut Vec<u8>) {
        let body = std::mem::take(&mut self.publish_body);
        self.post(out, "/intent", &body);
        self.publish_body = body;
    }

    /// A publish whose payload has its start time.
    pub(crate) fn publish_stamped(&mut self, out: &mut Vec<u8>, sent_ns: u64) {
        let payload = payload(self.payload_bytes, Some(sent_ns));
        let body = item(NAMESPACE, &self.goal, "", &payload);
        self.post(out, "/intent", body.as_bytes());
    }

    pub(crate) fn publish_batch(&mut self, out: &mut Vec<u8>) {
        let body = std::mem::take(&mut self.batch_body);
        self.post(out, "/intents", &body);
        self.batch_body = body;
    }

    /// Any list of items, made with [`item`].
    pub(crate) fn publish_items(&mut self, out: &mut Vec<u8>, items: &[String]) {
        let body = batch(items.iter().map(String::as_str));
        self.post(out, "/intents", &body);
    }

    pub(crate) fn claim(&mut self, out: &mut Vec<u8>) {
        let path = std::mem::take(&mut self.claim_path);
        self.post(out, &path, b"");
        self.claim_path = path;
    }

    pub(crate) fn fulfil(&mut self, out: &mut Vec<u8>, (id, token): (&[u8], &[u8])) {
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        path.push_str("/fulfill/");
        path.extend(id.iter().map(|byte| char::from(*byte)));
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.extend_from_slice(b"{\"claim_token\":\"");
        body.extend_from_slice(token);
        body.extend_from_slice(b"\",\"result\":{\"ok\":true}}");
        self.post(out, &path, &body);
        (self.path, self.body) = (path, body);
    }

    /// Settles `held`, which was built with [`hold`], and claims the next if requested.
    pub(crate) fn settle(&mut self, out: &mut Vec<u8>, held: &[u8], claims_next: bool) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.extend_from_slice(b"{\"items\":[");
        body.extend_from_slice(held);
        body.push(b']');
        if claims_next {
            body.extend_from_slice(self.claim_next.as_bytes());
        }
        body.push(b'}');
        self.post(out, "/settle", &body);
        self.body = body;
    }

    /// A request with an idempotency key, which may be sent again safely.
    pub(crate) fn post_once(&self, out: &mut Vec<u8>, path: &str, key: &str, body: &str) {
        out.clear();
        let length = body.len();
        let _ = write!(out, "POST {path} HTTP/1.1\r\n");
        out.extend_from_slice(&self.headers);
        let _ = write!(
            out,
            "Idempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
    }

    pub(crate) fn post(&mut self, out: &mut Vec<u8>, path: &str, body: &[u8]) {
        out.clear();
        out.extend_from_slice(b"POST ");
        out.extend_from_slice(path.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        out.extend_from_slice(&self.headers);
        if let Some(signer) = &mut self.signer {
            signer.sign(out, path, body);
        }
        let _ = write!(out, "Content-Length: {}\r\n\r\n", body.len());
        out.extend_from_slice(body);
    }
}

impl RequestSigner {
    fn new(key: &SecretKey, client: &str) -> Result<Self, Error> {
        Ok(Self {
            key: key.clone(),
            nonce_prefix: format!("{}-{client}", random_word()?),
            count: 0,
        })
    }

    fn sign(&mut self, out: &mut Vec<u8>, path: &str, body: &[u8]) {
        self.count += 1;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let timestamp = since_epoch.map_or(0, |since| since.as_secs()).to_string();
        let nonce = format!("{}-{}", self.nonce_prefix, self.count);
        let signature = signature(&self.key, "POST", path, &timestamp, &nonce, body);
        let _ = write!(
            out,
            "X-Timestamp: {timestamp}\r\nX-Nonce: {nonce}\r\nX-Signature: {signature}\r\n"
        );
    }
}

fn fixed_headers(server: &Address, key: &SecretKey) -> Vec<u8> {
    let authority = server.authority();
    format!("Host: {authority}\r\nX-API-KEY: {}\r\n", key.reveal()).into_bytes()
}

/// A request for `/metrics`.
pub(crate) fn scrape(server: &Address, admin_token: &SecretKey) -> Vec<u8> {
    let (authority, token) = (server.authority(), admin_token.reveal());
    format!("GET /metrics HTTP/1.1\r\nHost: {authority}\r\nX-Admin-Token: {token}\r\n\r\n")
        .into_bytes()
}

/// Adds a lease to those that the next settle request ends.
pub(crate) fn hold(held: &mut Vec<u8>, (id, token): (&[u8], &[u8])) {
    if !held.is_empty() {
        held.push(b',');
    }
    for part in [
        b"{\"id\":\"",
        id,
        b"\",\"claim_token\":\"",
        token,
        b"\",\"action\":\"fulfill\",\"result\":{\"ok\":true}}",
    ] {
        held.extend_from_slice(part);
    }
}

/// One intent as JSON; `more` has further members, each with a leading comma.
pub(crate) fn item(namespace: &str, goal: &str, more: &str, payload: &str) -> String {
    format!(r#"{{"namespace":"{namespace}","goal":"{goal}"{more},"payload":{payload}}}"#)
}

/// A payload of `bytes` bytes, if that is enough for its members.
pub(crate) fn payload(bytes: usize, sent_ns: Option<u64>) -> String {
    let stamp = sent_ns.map_or_else(String::new, |sent_ns| format!(r#""sent_ns":{sent_ns},"#));
    let without_filler = format!(r#"{{{stamp}"filler":""}}"#).len();
    let filler = "x".repeat(bytes.saturating_sub(without_filler));
    format!(r#"{{{stamp}"filler":"{filler}"}}"#)
}

/// Eight random bytes in hexadecimal digits, so that runs do not collide.
pub(crate) fn random_word() -> Result<String, Error> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::Entropy(error.to_string()))?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}

fn batch<'a>(items: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut body = b"{\"intents\":[".to_vec();
    for (index, item) in items.enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(item.as_bytes());
    }
    body.extend_from_slice(b"]}");
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_size_asked_for_and_is_json() {
        for stamp in [None, Some(0), Some(u64::MAX)] {
            let text = payload(200, stamp);
            assert_eq!(text.len(), 200);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["sent_ns"].as_u64(), stamp);
        }
    }

    #[test]
    fn a_request_that_happens_once_carries_its_key_and_its_length() {
        let writer = RequestWriter {
            headers: b"Host: h\r\n".to_vec(),
            signer: None,
            publish_body: Vec::new(),
            batch_body: Vec::new(),
            claim_path: String::new(),
            claim_next: String::new(),
            goal: String::new(),
            payload_bytes: 0,
            body: Vec::new(),
            path: String::new(),
        };
        let mut request = b"what was sent before".to_vec();
        writer.post_once(&mut request, "/p", "k", "{}");
        let expected =
            "POST /p HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(String::from_utf8(request).unwrap(), expected);
    }

    #[test]
    fn held_leases_become_one_settle_request() {
        let mut held = Vec::new();
        hold(&mut held, (b"a", b"t"));
        hold(&mut held, (b"b", b"u"));
        let text = format!("[{}]", String::from_utf8(held).unwrap());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value[1]["claim_token"], "u");
        assert_eq!(value[0]["action"], "fulfill");
    }
}
