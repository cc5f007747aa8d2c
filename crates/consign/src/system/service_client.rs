//! The client of commands: uses the control socket of the running service, the URL of a remote one, or, if none runs, the ledger
//! itself. All transports accept the same requests, because all end in the same router.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use consign_automation::config::SealCheck;
use consign_automation::program::Program;
use consign_automation::runtime::{Options, Runtime};
use consign_client::SecretKey;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::automation::{self, launcher};
use super::remote_service::RemoteService;
use super::start::NODE;
use super::state::{AutomationLedger, START_SERVER_HINT, StateDir};
use crate::commands::automation::config::tree::ConfigTree;
use crate::failure::Failure;
use crate::secrets::read_at;
use crate::serve::begin::BeginArgs;

const OTHER_USER_HINT: &str = "run the command as the user of the service (or as root), or name its HTTP interface with --api-url and a token with --api-key";
/// Long, because a synchronous pipeline may take its time.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// How long a one-shot command waits for running jobs at its end.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// What a command does if no service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenStopped {
    /// Read an existing ledger.
    ReadLedger,
    /// Run the jobs that this command queues, in one attempt, and no others.
    RunJobs,
}

/// A client of the automation.
pub(crate) struct ServiceClient {
    transport: Transport,
}

enum Transport {
    Socket(StateDir),
    Url(Box<RemoteService>),
    Local(Box<LocalRuntime>),
}

struct LocalRuntime {
    open: AutomationLedger,
    runtime: Runtime,
    router: Router,
    runs_jobs: bool,
    _draining: watch::Sender<bool>,
}

/// A successful response.
#[derive(Debug)]
pub(crate) struct ServiceResponse {
    pub(crate) body: Value,
}

impl ServiceClient {
    pub(crate) async fn new(tree: &ConfigTree, when_stopped: WhenStopped) -> anyhow::Result<Self> {
        let state = StateDir::of_tree(tree)?;
        if let Some(transport) = Self::running_transport(&state).await? {
            return Ok(Self { transport });
        }
        state.require_own_ledger(START_SERVER_HINT)?;
        if when_stopped == WhenStopped::ReadLedger && !state.ledger().exists() {
            let message = format!(
                "nothing has run yet: no ledger exists at {}",
                state.ledger().display()
            );
            let hint = "start the service with `system start`, or run a plugin once with `plugin run NAME`";
            return Err(Failure::failed(message).hint(hint).into());
        }
        let program = match when_stopped {
            WhenStopped::ReadLedger => tree.load_readonly()?,
            WhenStopped::RunJobs => tree.load(SealCheck::AsConfigured)?.0,
        };
        let local =
            LocalRuntime::new(&state, tree, program, when_stopped == WhenStopped::RunJobs).await?;
        Ok(Self {
            transport: Transport::Local(Box::new(local)),
        })
    }

    /// A remote service, by the URL of its HTTP interface.
    pub(crate) fn remote(url: &str, key: Option<&SecretKey>) -> anyhow::Result<Self> {
        let remote = RemoteService::new(url, key, REQUEST_TIMEOUT)?;
        Ok(Self {
            transport: Transport::Url(Box::new(remote)),
        })
    }

    /// Connects only if a service runs.
    pub(crate) async fn connect_running(tree: &ConfigTree) -> anyhow::Result<Option<Self>> {
        let transport = Self::running_transport(&StateDir::of_tree(tree)?).await?;
        Ok(transport.map(|transport| Self { transport }))
    }

    async fn running_transport(state: &StateDir) -> anyhow::Result<Option<Transport>> {
        let socket = state.socket();
        let connected = timeout(CONNECT_TIMEOUT, UnixStream::connect(&socket)).await;
        if matches!(connected, Ok(Ok(_))) {
            return Ok(Some(Transport::Socket(state.clone())));
        }
        if let Ok(Err(error)) = &connected
            && error.kind() == ErrorKind::PermissionDenied
        {
            let message = format!(
                "this user may not connect to the service at {}",
                socket.display()
            );
            return Err(Failure::failed(message).hint(OTHER_USER_HINT).into());
        }
        let Some(pid) = state.service_pid() else {
            return Ok(None);
        };
        let message = format!(
            "the service (pid {pid}) does not respond at {}",
            socket.display()
        );
        let hint = "it may be starting or stopping; check its log and try again";
        Err(Failure::failed(message).hint(hint).into())
    }

    /// Whether no service runs, so that queued jobs run in this process or not at all.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.transport, Transport::Local(_))
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<ServiceResponse> {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<ServiceResponse> {
        self.call(Method::POST, path, body).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<ServiceResponse> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let bytes = self.raw(method, path, body).await?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(ServiceResponse { body })
    }

    /// Sends one request and returns the body of a successful response unchanged.
    pub(crate) async fn raw(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Vec<u8>> {
        let (status, bytes) = timeout(REQUEST_TIMEOUT, self.send(method, path, body))
            .await
            .map_err(|_| Failure::failed("the service took too long to respond"))??;
        if status.is_success() {
            return Ok(bytes);
        }
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let error = match body["error"].as_str() {
            Some(error) => error.to_owned(),
            None => format!("the service responded with {status}"),
        };
        let refused = Failure::failed(error)
            .context(serde_json::json!({"status": status.as_u16(), "path": path}));
        let is_control = matches!(self.transport, Transport::Socket(_));
        Err(if status == StatusCode::UNAUTHORIZED && is_control {
            refused.hint("the service was restarted meanwhile, or another one uses this directory; try again")
        } else if status == StatusCode::UNAUTHORIZED {
            refused.hint("name a token of the automation with --api-key or in DUCTILE_API_KEY, which `config token create` makes; keys and admin tokens of a server of intents are none, and its routes are reached with curl")
        } else {
            refused
        }
        .into())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        match &self.transport {
            Transport::Url(remote) => remote.send(method, path, body).await,
            Transport::Local(local) => {
                let request = request(method, path, body)?;
                let Ok(response) = local.router.clone().oneshot(request).await;
                read_body(response.status(), response.into_body()).await
            }
            Transport::Socket(state) => {
                let mut request = request(method, path, body)?;
                let (stream, token) = connect_control_socket(state).await?;
                request
                    .headers_mut()
                    .insert(http::header::AUTHORIZATION, token);
                let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
                let driving = tokio::spawn(connection);
                let response = sender.send_request(request).await?;
                let read = read_body(response.status(), response.into_body()).await;
                driving.abort();
                read
            }
        }
    }

    /// Closes the client; after local jobs, waits for those that still run.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Transport::Local(local) = self.transport {
            if local.runs_jobs {
                local.runtime.stop(STOP_TIMEOUT).await;
            }
            local.open.close().await?;
        }
        Ok(())
    }
}

impl LocalRuntime {
    async fn new(
        state: &StateDir,
        tree: &ConfigTree,
        program: Program,
        runs_jobs: bool,
    ) -> anyhow::Result<Self> {
        let open = AutomationLedger::open(state, BeginArgs::default()).await?;
        let program = if runs_jobs {
            program.for_one_shot()
        } else {
            program
        };
        let options = Options {
            engine: open.engine.clone(),
            program: Arc::new(program),
            node: NODE.to_owned(),
            launcher: launcher(),
            bus: None,
            mesh: None,
            guarded: state.guarded(),
        };
        let runtime = if runs_jobs {
            Runtime::start_one_shot(options).await?
        } else {
            Runtime::idle(options)
        };
        let (draining, drains) = watch::channel(false);
        let loader = automation::loader(&runtime, &Arc::new(tree.clone()));
        Ok(Self {
            router: automation::local_router(&runtime, loader, drains),
            open,
            runtime,
            runs_jobs,
            _draining: draining,
        })
    }
}

/// Connects to the service and reads the token of its control socket. The token is sent only if the peer is the user who wrote
/// it.
async fn connect_control_socket(state: &StateDir) -> anyhow::Result<(UnixStream, HeaderValue)> {
    let (socket, file) = (state.socket(), state.control_token());
    let stream = UnixStream::connect(&socket)
        .await
        .with_context(|| format!("cannot reach {}", socket.display()))?;
    let owner = match std::fs::metadata(&file) {
        Ok(found) => found.uid(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message = format!(
                "{} is missing, which the service writes at its start",
                file.display()
            );
            let hint = "restart the service if it was started by an earlier version, and use the `state.path` that it uses";
            return Err(Failure::failed(message).hint(hint).into());
        }
        Err(error) => {
            let message = format!("{} cannot be read: {error}", file.display());
            return Err(Failure::failed(message).hint(OTHER_USER_HINT).into());
        }
    };
    let peer = stream.peer_cred();
    let peer = peer.with_context(|| format!("the peer at {} is unknown", socket.display()))?;
    if peer.uid() != owner {
        let (socket, peer) = (socket.display(), peer.uid());
        let message = format!(
            "{socket} is owned by user {peer}, but the service's keys belong to user {owner}"
        );
        let hint = "another process listens there; check who may write to the state directory, and restart the service";
        return Err(Failure::failed(message).hint(hint).into());
    }
    let token = read_at(&file).map_err(|error| {
        let message = format!("{error:#}");
        Failure::failed(message).hint(OTHER_USER_HINT)
    })?;
    let token = token.with_context(|| format!("{} has just been removed", file.display()))?;
    let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
        .with_context(|| format!("{} contains no token", file.display()))?;
    bearer.set_sensitive(true);
    Ok((stream, bearer))
}

fn request(method: Method, path: &str, body: String) -> anyhow::Result<Request<Body>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "localhost")
        .body(Body::from(body))
        .context("the request is not valid")
}

async fn read_body<B>(status: StatusCode, body: B) -> anyhow::Result<(StatusCode, Vec<u8>)>
where
    B: hyper::body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
    let whole = whole.map_err(|error| anyhow::anyhow!("the response ended early: {error}"))?;
    Ok((status, whole.to_bytes().to_vec()))
}

/// Percent-encodes one segment of a path.
pub(crate) fn path_segment(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The query string `?a=b&c=d` of the given pairs.
pub(crate) fn query_string(pairs: &[(&str, Option<String>)]) -> String {
    let given = pairs.iter().filter_map(|(name, value)| {
        let value = value.as_deref()?;
        Some(format!("{name}={}", path_segment(value)))
    });
    let joined = given.collect::<Vec<_>>().join("&");
    if joined.is_empty() {
        joined
    } else {
        format!("?{joined}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(path_segment("a/../b?c"), "a%2F..%2Fb%3Fc");
        let pairs = [("a", Some("x&y".to_owned())), ("b", None)];
        assert_eq!(query_string(&pairs), "?a=x%26y");
        assert_eq!(query_string(&[("b", None)]), "");
    }
}
