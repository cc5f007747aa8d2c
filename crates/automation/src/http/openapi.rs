//! The `OpenAPI` document: one operation for each command of each plugin, built from the manifests.

pub mod api;

use crate::plugin::command::PluginCommand;
use crate::program::{Plugin, Program};
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::ApiState;
use super::about::DESCRIPTION;
use super::api_error::{ApiError, ok};
use super::auth::{AnyToken, AuthorizedCaller};
use super::query::Segments;

pub(super) async fn whole(
    State(state): State<ApiState>,
    _: AuthorizedCaller<AnyToken>,
) -> Response {
    let program = state.runtime.program();
    ok(&document(&program, program.plugins()))
}

pub(super) async fn of_plugin(
    State(state): State<ApiState>,
    _: AuthorizedCaller<AnyToken>,
    Segments(name): Segments<String>,
) -> Result<Response, ApiError> {
    let program = state.runtime.program();
    let unknown = || ApiError::not_found(program.missing_plugin(&name));
    let plugin = program.plugin(&name).ok_or_else(unknown)?;
    Ok(ok(&document(&program, std::iter::once(plugin))))
}

pub(super) async fn ai_plugin(
    State(state): State<ApiState>,
    _: AuthorizedCaller<AnyToken>,
) -> Response {
    let program = state.runtime.program();
    let name = &program.config().service.name;
    ok(&json!({
        "schema_version": "v1",
        "name_for_human": name,
        "name_for_model": name,
        "description_for_human": DESCRIPTION,
        "description_for_model": DESCRIPTION,
        "auth": {"type": "service_http", "authorization_type": "bearer"},
        "api": {"type": "openapi", "url": "/openapi.json"},
    }))
}

fn document<'p>(program: &Program, plugins: impl Iterator<Item = &'p Plugin>) -> Value {
    let mut paths = Map::new();
    for plugin in plugins {
        for command in &plugin.manifest.commands {
            let path = format!("/plugin/{}/{}", plugin.name, command.name);
            paths.insert(path, json!({"post": operation(plugin, command)}));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": program.config().service.name, "description": DESCRIPTION, "version": env!("CARGO_PKG_VERSION"),
        },
        "security": [{"bearer": []}],
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    })
}

fn operation(plugin: &Plugin, command: &PluginCommand) -> Value {
    let described = |text: &str| json!({"description": text});
    let mut operation = json!({
        "operationId": format!("{}__{}", plugin.name, command.name),
        "tags": [plugin.name],
        "responses": {
            "202": described("The job is queued; its id is in the response."),
            "400": described("The body is not valid."),
            "401": described("The token is missing or unknown."),
            "403": described("The token's scopes do not allow this."),
        },
    });
    if let Some(description) = &command.description {
        operation["description"] = description.as_str().into();
    }
    if let Some(schema) = &command.input_schema {
        let body = json!({"type": "object", "properties": {"payload": schema}});
        operation["requestBody"] = json!({"content": {"application/json": {"schema": body}}});
    }
    operation
}
