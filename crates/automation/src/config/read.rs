//! Builds the configuration from the merged tree, and collects all problems.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fields::SectionReader;
use super::find::{self, Environment};
use super::intents;
use super::mesh;
use super::messages;
use super::model::{
    ApiConfig, Config, EndpointTarget, LogLevel, PluginConfig, ServiceConfig, Strictness,
    WebhookEndpoint, WebhooksConfig,
};
use super::node::ConfigNode;
use super::plugins;
use super::problem::{ConfigProblems, Severity};
use super::sources::{Drafts, Sources};
use super::tokens::{self, TokenSet};

const DAY: Duration = Duration::from_hours(24);
const TICK_LEAST: Duration = Duration::from_millis(100);
const TICK_USUAL: Duration = Duration::from_secs(1);
const HOOK_DEPTH: usize = 4;
const BODY_BYTES: u64 = 1 << 20;

/// Reads everything; the result is valid only if no problem is an error.
pub(super) fn read(
    path: &Path,
    sources: Sources,
    environment: &Environment,
    drafts: &Drafts,
    report: &RefCell<ConfigProblems>,
) -> Config {
    let dir = path.parent().unwrap_or(path);
    let mut top = SectionReader::top(&sources.merged, "", report);
    let service = service(top.section("service"), environment);
    let state_path = state_path(&mut top, dir, environment);
    let roots = top.texts("plugin_roots");
    if roots.is_empty() {
        let fix = "list the directories of the plugins";
        top.error(
            &top.position_of("plugin_roots"),
            "`plugin_roots` is empty",
            fix,
        );
    }
    let mut tokens = tokens::entries(top.list("tokens"), dir, environment, drafts, report);
    let api = api(top.section("api"), &mut tokens, report);
    let plugins = plugins::read(top.node("plugins"), service.max_workers, &tokens, report);
    let routes = top.list("routes");
    check_routes(routes, &plugins, report);
    let webhooks = top.node("webhooks").map(|node| {
        webhooks(
            SectionReader::top(node, "webhooks", report),
            &plugins,
            &tokens,
            report,
        )
    });
    let pipelines = top.list("pipelines").to_vec();
    let received = messages::received(top.section("beam"), report);
    let received_items = mesh::received(top.section("mesh"), report);
    for key in ["secrets", "accounts"] {
        if let Some(node) = top.node(key) {
            let message = format!("`{key}` is not supported and ignored");
            top.notice(&node.at, message, "");
        }
    }
    for key in ["instances", "remote_ingress"] {
        if let Some(node) = top.node(key) {
            let message =
                format!("`{key}` is ignored, because events are not relayed between services");
            top.warn(
                &node.at,
                message,
                "remove it, and use a plugin that sends events",
            );
        }
    }
    top.ignore(&["tcc_paths", "workspace"]);
    let routes = routes.to_vec();
    top.finish();
    let scope_files = tokens.scope_files.iter().map(|file| &file.path);
    let links = scope_files.filter(|file| file.is_symlink());
    let links = links.chain(&sources.links);
    check_links(links, service.allow_symlinks, report);
    let mut files = sources.files;
    files.extend(tokens.scope_files);
    Config {
        path: path.to_owned(),
        dir: dir.to_owned(),
        plugin_roots: roots
            .iter()
            .map(|root| find::resolve(root, dir, environment))
            .collect(),
        service,
        state_path,
        api,
        plugins,
        routes,
        pipelines,
        webhooks,
        received,
        received_items,
        tokens: tokens.entries,
        registry: tokens.registry,
        files,
        merged: sources.merged,
    }
}

fn service(mut fields: SectionReader<'_>, environment: &Environment) -> ServiceConfig {
    let strict = fields.flag("strict_mode").unwrap_or(false);
    let split = fields.node("admission").is_some();
    let mut admission = fields.section("admission");
    let mut admit = |key| admission.flag(key).unwrap_or(false);
    let (verify, drift) = (admit("verify_integrity_on_boot"), admit("fail_on_drift"));
    let (validation, auth) = (admit("validate_config_on_boot"), admit("require_api_auth"));
    admission.finish();
    let level = fields.word("log_level", &["debug", "info", "warn", "error"]);
    fields.ignore(&["unconfined"]);
    let service = ServiceConfig {
        name: fields.text("name").unwrap_or_else(|| "ductile".to_owned()),
        tick_interval: fields
            .duration("tick_interval")
            .unwrap_or(Duration::from_mins(1)),
        log_level: match level {
            Some("debug") => LogLevel::Debug,
            Some("warn") => LogLevel::Warn,
            Some("error") => LogLevel::Error,
            _ => LogLevel::Info,
        },
        log_json: fields.word("log_format", &["json", "text"]) != Some("text"),
        dedupe_ttl: fields.duration("dedupe_ttl").unwrap_or(DAY),
        job_log_retention: fields.duration("job_log_retention").unwrap_or(30 * DAY),
        job_queue_retention: fields.duration("job_queue_retention").unwrap_or(DAY),
        job_transitions_retention: fields
            .duration("job_transitions_retention")
            .unwrap_or(30 * DAY),
        job_attempts_retention: fields
            .duration("job_attempts_retention")
            .unwrap_or(30 * DAY),
        breaker_transitions_retention: fields
            .duration("breaker_transitions_retention")
            .unwrap_or(90 * DAY),
        max_workers: fields
            .count("max_workers", 1)
            .unwrap_or(environment.processors.saturating_sub(1).max(1)),
        strictness: Strictness {
            drift: if split { drift } else { strict },
            validation: if split { validation } else { strict },
        },
        verify_integrity_on_boot: if split { verify } else { strict },
        require_api_auth: if split { auth } else { strict },
        allow_symlinks: fields.flag("allow_symlinks").unwrap_or(false),
        hook_max_depth: match fields.count("hook_max_depth", 0) {
            None | Some(0) => HOOK_DEPTH,
            Some(depth) => depth,
        },
        plugin_env_passthrough: fields.texts("plugin_env_passthrough"),
    };
    check_times(&service, &fields);
    fields.finish();
    service
}

fn check_times(service: &ServiceConfig, fields: &SectionReader<'_>) {
    let tick_at = fields.position_of("tick_interval");
    if service.tick_interval < TICK_LEAST {
        let message = "`service.tick_interval` is below 100ms";
        fields.error(&tick_at, message, "choose 100ms or more");
    } else if service.tick_interval < TICK_USUAL {
        let message = "`service.tick_interval` is below one second";
        fields.warn(&tick_at, message, "choose 1s or more unless this is a test");
    }
    if service.job_queue_retention < service.dedupe_ttl {
        let at = fields.position_of("job_queue_retention");
        let message = "`service.job_queue_retention` is shorter than `service.dedupe_ttl`, so duplicates would not be detected";
        fields.error(&at, message, "set it to at least `service.dedupe_ttl`");
    }
}

fn state_path(top: &mut SectionReader<'_>, dir: &Path, environment: &Environment) -> PathBuf {
    let mut state = top.section("state");
    let mut database = top.section("database");
    let written = state.text("path").or_else(|| database.text("path"));
    database.ignore(&["path"]);
    state.finish();
    database.finish();
    let written = written.as_deref().unwrap_or("./data/state.db");
    find::resolve(written, dir, environment)
}

fn api(
    mut fields: SectionReader<'_>,
    tokens: &mut TokenSet,
    report: &RefCell<ConfigProblems>,
) -> ApiConfig {
    let mut auth = fields.section("auth");
    tokens::api_tokens(auth.list("tokens"), tokens, report);
    let attempted = !auth.list("tokens").is_empty()
        || tokens
            .entries
            .iter()
            .any(|token| token.scopes_file.is_some());
    auth.finish();
    fields.ignore(&["management_socket"]);
    let api = ApiConfig {
        enabled: fields.flag("enabled").unwrap_or(false),
        listen: fields
            .text("listen")
            .unwrap_or_else(|| "127.0.0.1:8080".to_owned()),
        max_concurrent_sync: fields.count("max_concurrent_sync", 1).unwrap_or(10),
        max_sync_timeout: fields
            .duration("max_sync_timeout")
            .unwrap_or(Duration::from_mins(5)),
        allowed_origins: fields.texts("allowed_origins"),
    };
    if api.enabled && !attempted {
        let fix = "add one to `api.auth.tokens`, or an entry with a `scopes_file` to tokens.yaml";
        fields.error(&fields.at, "the API is enabled and has no token", fix);
    }
    fields.finish();
    api
}

fn check_routes(
    routes: &[ConfigNode],
    plugins: &BTreeMap<String, PluginConfig>,
    report: &RefCell<ConfigProblems>,
) {
    for (node, index) in routes.iter().zip(0..) {
        let mut fields = SectionReader::top(node, format!("routes[{index}]"), report);
        fields.needed_text("event_type");
        for key in ["from", "to"] {
            if let Some(plugin) = fields.needed_text(key) {
                check_plugin(&fields, key, &plugin, plugins);
            }
        }
        fields.finish();
    }
}

fn webhooks(
    mut fields: SectionReader<'_>,
    plugins: &BTreeMap<String, PluginConfig>,
    tokens: &TokenSet,
    report: &RefCell<ConfigProblems>,
) -> WebhooksConfig {
    let listen = fields.text("listen");
    let nodes = fields.list("endpoints");
    let mut endpoints: Vec<WebhookEndpoint> = Vec::new();
    for (node, index) in nodes.iter().zip(0..) {
        let mut fields = SectionReader::top(node, format!("webhooks.endpoints[{index}]"), report);
        let path = fields.needed_text("path");
        let target = target(&mut fields, plugins);
        if endpoints
            .iter()
            .any(|known| Some(&known.path) == path.as_ref())
        {
            fields.error(&fields.at, "another endpoint has the same `path`", "");
        }
        let secret_at = fields.position_of("secret_ref");
        let secret = fields.needed_text("secret_ref").and_then(|name| {
            tokens.named(&name, &fields.path_of("secret_ref"), &secret_at, report)
        });
        let signature_header = fields.needed_text("signature_header");
        let max_body_bytes = fields.size("max_body_size").unwrap_or(BODY_BYTES);
        let name = fields.text("name");
        let at = fields.at.clone();
        fields.finish();
        if let (Some(path), Some(target), Some(secret), Some(signature_header)) =
            (path, target, secret, signature_header)
        {
            endpoints.push(WebhookEndpoint {
                at,
                name,
                path,
                target,
                secret,
                signature_header,
                max_body_bytes,
            });
        }
    }
    fields.finish();
    WebhooksConfig { listen, endpoints }
}

/// An endpoint either feeds a plugin or publishes an intent.
fn target(
    fields: &mut SectionReader<'_>,
    plugins: &BTreeMap<String, PluginConfig>,
) -> Option<EndpointTarget> {
    if fields.node("publish").is_none() {
        let plugin = fields.needed_text("plugin")?;
        check_plugin(fields, "plugin", &plugin, plugins);
        return Some(EndpointTarget::Plugin(plugin));
    }
    if fields.node("plugin").is_some() {
        let fix = "keep `plugin` for an event, or `publish` for an intent";
        fields.error(
            &fields.at,
            "an endpoint has both `plugin` and `publish`",
            fix,
        );
    }
    intents::publication(fields.section("publish")).map(EndpointTarget::Publish)
}

fn check_plugin(
    fields: &SectionReader<'_>,
    key: &str,
    plugin: &str,
    plugins: &BTreeMap<String, PluginConfig>,
) {
    if !plugins.contains_key(plugin) {
        let path = fields.path_of(key);
        let message = format!("`{path}` names `{plugin}`, which is not in `plugins`");
        let names: Vec<&str> = plugins.keys().map(String::as_str).collect();
        let fix = match super::fields::nearest(plugin, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add `{plugin}` to `plugins`"),
        };
        fields.error(&fields.position_of(key), message, fix);
    }
}

fn check_links<'a>(
    links: impl Iterator<Item = &'a PathBuf>,
    allowed: bool,
    report: &RefCell<ConfigProblems>,
) {
    let (severity, fix) = if allowed {
        (Severity::Notice, "")
    } else {
        let fix = "name the file itself, or set `service.allow_symlinks`";
        (Severity::Error, fix)
    };
    for link in links {
        let mut problems = report.borrow_mut();
        problems.push(severity, link, 0, "is a symbolic link", fix);
    }
}
