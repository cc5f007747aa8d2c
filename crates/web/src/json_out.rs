//! Writing of JSON bodies: members in insertion order, stored payloads copied without parsing.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use consign_kernel::ids::Micros;
use http::{HeaderValue, header};

/// A JSON object under construction.
#[derive(Debug)]
pub struct Json {
    text: String,
}

impl Json {
    pub fn object() -> Self {
        let mut text = String::with_capacity(256);
        text.push('{');
        Self { text }
    }

    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        push_string(&mut self.text, value);
        self
    }

    pub fn maybe_text(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(key, value),
            None => self.raw(key, "null"),
        }
    }

    pub fn number(&mut self, key: &str, value: u64) -> &mut Self {
        self.raw(key, &value.to_string())
    }

    pub fn integer(&mut self, key: &str, value: i64) -> &mut Self {
        self.raw(key, &value.to_string())
    }

    pub fn float(&mut self, key: &str, value: f64) -> &mut Self {
        self.raw(key, &format!("{value:?}"))
    }

    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.raw(key, if value { "true" } else { "false" })
    }

    /// Unix seconds as a number, or null.
    pub fn seconds(&mut self, key: &str, at: Option<Micros>) -> &mut Self {
        match at {
            Some(at) => self.float(key, at.seconds()),
            None => self.raw(key, "null"),
        }
    }

    /// `value` must be JSON already.
    pub fn raw(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        self.text.push_str(value);
        self
    }

    pub fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }

    fn key(&mut self, key: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push('"');
        self.text.push_str(key);
        self.text.push_str("\":");
    }
}

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        json_response(self.finish())
    }
}

/// `[a,b,…]` of finished values.
pub fn array(items: impl Iterator<Item = String>) -> String {
    let mut text = String::from("[");
    for (index, item) in items.enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&item);
    }
    text.push(']');
    text
}

pub fn json_response(body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// A JSON string literal of `value`.
pub fn string(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    push_string(&mut text, value);
    text
}

fn push_string(text: &mut String, value: &str) {
    let plain = value
        .bytes()
        .all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if plain {
        text.push('"');
        text.push_str(value);
        text.push('"');
    } else {
        text.push_str(&serde_json::to_string(value).expect("text is always JSON"));
    }
}
