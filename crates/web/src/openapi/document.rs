//! Operations as an `OpenAPI` 3.1 document.

use std::collections::BTreeMap;

use consign_kernel::error::Code;
use serde_json::{Map, Value, json};

use super::operation::{
    Access, Endpoint, Operation, OperationLink, Parameter, ParameterIn, RequestBody,
    ResponseContent, ResponseSpec,
};
use super::schema::Schema;

/// The version of `OpenAPI` that the documents follow.
pub const VERSION: &str = "3.1.0";

/// How a protocol responds, beyond what its operations say.
pub trait Dialect {
    /// Whether a query parameter without a value is the same as an absent one.
    const EMPTY_QUERY_IS_ABSENT: bool;

    /// The components under `headers` that every successful response has.
    fn headers(&self) -> Vec<&'static str>;

    /// Errors of every operation, which are refused before a handler runs.
    fn refused_early(&self) -> BTreeMap<u16, Vec<Code>>;

    /// The response with this status and one of these codes.
    fn refusal(&self, operation: &Operation, status: u16, codes: &[Code]) -> ErrorResponseSpec;
}

/// An error response.
#[derive(Debug, Clone)]
pub struct ErrorResponseSpec {
    pub about: &'static str,
    /// The names of components under `headers`.
    pub headers: Vec<&'static str>,
    pub schema: Schema,
    /// The name under `responses`, if operations share the response.
    pub shared_as: Option<String>,
}

/// The frame, completed with version, paths, schemas and shared responses.
pub fn document(endpoints: &[Endpoint], dialect: &impl Dialect, mut frame: Value) -> Value {
    let mut components = ComponentMap {
        dialect,
        schemas: Map::new(),
        responses: Map::new(),
    };
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let method = endpoint.method.as_str().to_ascii_lowercase();
        let operation = components.operation(&endpoint.operation);
        let item = paths.entry(endpoint.path).or_default();
        item.insert(method, operation);
    }
    frame["openapi"] = VERSION.into();
    frame["paths"] = json!(paths);
    for (member, found) in [
        ("schemas", components.schemas),
        ("responses", components.responses),
    ] {
        if found.is_empty() {
            continue;
        }
        match frame["components"][member].as_object_mut() {
            Some(own) => own.extend(found),
            None => frame["components"][member] = found.into(),
        }
    }
    frame
}

/// The first document, with the paths, components and tags of the others.
pub fn merge<'a>(mut whole: Value, others: impl IntoIterator<Item = &'a Value>) -> Value {
    for other in others {
        if let Some(paths) = other["paths"].as_object() {
            extend(&mut whole["paths"], paths);
        }
        for member in ["schemas", "responses", "headers", "securitySchemes"] {
            if let Some(components) = other["components"][member].as_object() {
                extend(&mut whole["components"][member], components);
            }
        }
        let tags = other["tags"].as_array().cloned().unwrap_or_default();
        if let Some(own) = whole["tags"].as_array_mut() {
            own.extend(tags);
        }
    }
    whole
}

/// Adds members to an object, which is created if it is absent.
fn extend(own: &mut Value, further: &Map<String, Value>) {
    match own.as_object_mut() {
        Some(own) => own.extend(further.clone()),
        None => *own = further.clone().into(),
    }
}

/// The components that operations refer to.
struct ComponentMap<'d, D> {
    dialect: &'d D,
    schemas: Map<String, Value>,
    responses: Map<String, Value>,
}

impl<D: Dialect> ComponentMap<'_, D> {
    fn operation(&mut self, operation: &Operation) -> Value {
        let mut out = Map::new();
        out.insert("operationId".to_owned(), operation.id.into());
        out.insert("tags".to_owned(), json!([operation.tag.title]));
        out.insert("summary".to_owned(), operation.summary.into());
        if !operation.about.is_empty() {
            out.insert("description".to_owned(), operation.about.into());
        }
        out.insert("security".to_owned(), security(operation.access));
        if !operation.parameters.is_empty() {
            let parameters = operation.parameters.iter().map(|one| self.parameter(one));
            out.insert("parameters".to_owned(), parameters.collect());
        }
        if let Some(body) = &operation.body {
            out.insert("requestBody".to_owned(), self.body(body));
        }
        out.insert("responses".to_owned(), self.responses(operation));
        out.into()
    }

    /// Adds the definition of a schema and returns a reference to it.
    fn schema(&mut self, schema: &Schema) -> Value {
        schema.each_named(&mut |name, named| {
            self.schemas.insert(name.to_owned(), named.definition());
        });
        schema.reference()
    }

    fn parameter(&mut self, parameter: &Parameter) -> Value {
        let mut out = json!({
            "name": parameter.name,
            "in": parameter.location.name(),
            "required": parameter.location == ParameterIn::Path,
            "schema": self.schema(&parameter.schema),
        });
        if !parameter.about.is_empty() {
            out["description"] = parameter.about.into();
        }
        if D::EMPTY_QUERY_IS_ABSENT && parameter.location == ParameterIn::Query {
            out["allowEmptyValue"] = true.into();
        }
        out
    }

    fn body(&mut self, body: &RequestBody) -> Value {
        json!({
            "required": body.required,
            "description": format!("At most {} bytes.", body.bytes_max),
            "content": {"application/json": self.content(&body.schema, body.example)},
        })
    }

    fn content(&mut self, schema: &Schema, example: &str) -> Value {
        let mut content = json!({"schema": self.schema(schema)});
        if !example.is_empty() {
            content["example"] = serde_json::from_str(example).expect("an example is JSON");
        }
        content
    }

    fn responses(&mut self, operation: &Operation) -> Value {
        let mut out = Map::new();
        for response in &operation.responses {
            out.insert(response.status.as_str().to_owned(), self.response(response));
        }
        let mut refusals = operation.refusals();
        refusals.extend(self.dialect.refused_early());
        for (status, codes) in refusals {
            let refusal = self.dialect.refusal(operation, status, &codes);
            out.insert(status.to_string(), self.refusal(refusal));
        }
        out.into()
    }

    fn response(&mut self, response: &ResponseSpec) -> Value {
        let mut names = self.dialect.headers();
        names.extend(response.headers);
        let mut out = described(response.about, &names);
        match &response.content {
            ResponseContent::Nothing => {}
            ResponseContent::Json(schema) => {
                let content = self.content(schema, response.example);
                out["content"] = json!({"application/json": content});
            }
            ResponseContent::Text(kind) => {
                out["content"] = json!({*kind: {"schema": {"type": "string"}}});
            }
        }
        if !response.links.is_empty() {
            let links = response
                .links
                .iter()
                .map(|one| (one.to.to_owned(), link(*one)));
            out["links"] = links.collect::<Map<_, _>>().into();
        }
        out
    }

    fn refusal(&mut self, refusal: ErrorResponseSpec) -> Value {
        let mut response = described(refusal.about, &refusal.headers);
        response["content"] = json!({"application/json": {"schema": self.schema(&refusal.schema)}});
        let Some(name) = refusal.shared_as else {
            return response;
        };
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        self.responses.insert(name, response);
        reference
    }
}

/// A response without content.
fn described(about: &str, headers: &[&str]) -> Value {
    let mut out = json!({"description": about});
    if headers.is_empty() {
        return out;
    }
    let references = headers.iter().map(|name| {
        let reference = json!({"$ref": format!("#/components/headers/{name}")});
        // One header may have two descriptions: always sent with one response, sometimes with another.
        let sent = name.strip_prefix("Maybe-").unwrap_or(name);
        (sent.to_owned(), reference)
    });
    out["headers"] = references.collect::<Map<_, _>>().into();
    out
}

fn link(link: OperationLink) -> Value {
    let mut out = json!({"operationId": link.to, "parameters": {"id": "$response.body#/id"}});
    if link.with_token {
        out["requestBody"] = json!({"claim_token": "$response.body#/claim_token"});
    }
    out
}

/// Alternative credentials.
fn security(access: Access) -> Value {
    let all_of = |schemes: &&[&str]| {
        let schemes = schemes.iter().map(|name| ((*name).to_owned(), json!([])));
        Value::from(schemes.collect::<Map<_, _>>())
    };
    access.schemes.iter().map(all_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_document_has_the_paths_components_and_tags_of_all() {
        let whole = json!({
            "openapi": VERSION,
            "paths": {"/a": {}},
            "components": {"schemas": {"A": {}}, "responses": {"A400": {}}},
            "tags": [{"name": "A"}],
        });
        let other = json!({
            "openapi": "of another document",
            "paths": {"/b": {}},
            "components": {
                "schemas": {"B": {}},
                "responses": {"B400": {}},
                "headers": {"B-Header": {}},
                "securitySchemes": {"bKey": {}},
            },
            "tags": [{"name": "B"}],
        });
        let expected = json!({
            "openapi": VERSION,
            "paths": {"/a": {}, "/b": {}},
            "components": {
                "schemas": {"A": {}, "B": {}},
                "responses": {"A400": {}, "B400": {}},
                "headers": {"B-Header": {}},
                "securitySchemes": {"bKey": {}},
            },
            "tags": [{"name": "A"}, {"name": "B"}],
        });
        assert_eq!(merge(whole.clone(), [&other]), expected);
        assert_eq!(merge(whole.clone(), [&json!({})]), whole, "nothing to add");
    }
}
