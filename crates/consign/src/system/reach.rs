//! How a command reaches the automation: through the control socket of the running service, at the URL of one elsewhere, or,
//! when none runs, on the ledger itself. All answer the same requests, because all have the same router behind them.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use consign_automation::config::Verify;
use consign_automation::program::Program;
use consign_automation::runtime::{Options, Runtime};
use consign_client::Key;
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
use super::elsewhere::Elsewhere;
use super::start::NODE;
use super::state::{ASK_ITS_SERVER, Open, StateDir};
use crate::commands::automation::config::tree::Tree;
use crate::failure::Failure;
use crate::secrets::read_at;
use crate::serve::begin::BeginArgs;

const OF_ANOTHER_USER: &str = "run the command as the user of the service (or as root), or name its HTTP interface with --api-url and a token with --api-key";
/// A synchronous pipeline may take its time.
const PATIENCE: Duration = Duration::from_mins(15);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Jobs that a command of one job still waits for at its end.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// What a command needs when no service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// A look at a ledger that is there.
    Look,
    /// The jobs that are asked for here are run here, in one attempt, and no others.
    Work,
}

/// The way to the automation.
pub(crate) struct Reach {
    way: Way,
}

enum Way {
    Socket(StateDir),
    Url(Box<Elsewhere>),
    Here(Box<Here>),
}

struct Here {
    open: Open,
    runtime: Runtime,
    router: Router,
    works: bool,
    _draining: watch::Sender<bool>,
}

/// An answer that is no refusal.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Value,
}

impl Reach {
    pub(crate) async fn new(tree: &Tree, alone: Alone) -> anyhow::Result<Self> {
        let state = StateDir::at(tree)?;
        if let Some(way) = Self::running(&state).await? {
            return Ok(Self { way });
        }
        state.require_here(ASK_ITS_SERVER)?;
        if alone == Alone::Look && !state.ledger().exists() {
            let message = format!(
                "nothing has run yet: there is no {}",
                state.ledger().display()
            );
            let hint = "start the service with `system start`, or run a plugin once with `plugin run NAME`";
            return Err(Failure::failed(message).hint(hint).into());
        }
        let program = match alone {
            Alone::Look => tree.look()?,
            Alone::Work => tree.load(Verify::AsConfigured)?.0,
        };
        let here = Here::new(&state, tree, program, alone == Alone::Work).await?;
        Ok(Self {
            way: Way::Here(Box::new(here)),
        })
    }

    /// A service elsewhere, by the address of its HTTP interface.
    pub(crate) fn at(url: &str, key: Option<&Key>) -> anyhow::Result<Self> {
        let elsewhere = Elsewhere::new(url, key, PATIENCE)?;
        Ok(Self {
            way: Way::Url(Box::new(elsewhere)),
        })
    }

    /// Only if a service runs.
    pub(crate) async fn of_running(tree: &Tree) -> anyhow::Result<Option<Self>> {
        let way = Self::running(&StateDir::at(tree)?).await?;
        Ok(way.map(|way| Self { way }))
    }

    async fn running(state: &StateDir) -> anyhow::Result<Option<Way>> {
        let socket = state.socket();
        let connected = timeout(CONNECT_PATIENCE, UnixStream::connect(&socket)).await;
        if matches!(connected, Ok(Ok(_))) {
            return Ok(Some(Way::Socket(state.clone())));
        }
        if let Ok(Err(error)) = &connected
            && error.kind() == ErrorKind::PermissionDenied
        {
            let message = format!(
                "this user may not speak to the service at {}",
                socket.display()
            );
            return Err(Failure::failed(message).hint(OF_ANOTHER_USER).into());
        }
        let Some(pid) = state.running() else {
            return Ok(None);
        };
        let message = format!(
            "the service (pid {pid}) does not answer at {}",
            socket.display()
        );
        let hint = "it may be starting or stopping; look at its log and try again";
        Err(Failure::failed(message).hint(hint).into())
    }

    /// Whether there is no service, so that what is queued runs here or not at all.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.way, Way::Here(_))
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.call(Method::POST, path, body).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let bytes = self.raw(method, path, body).await?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Answer { body })
    }

    /// One request and the body of its answer as it came, unless it is a refusal.
    pub(crate) async fn raw(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Vec<u8>> {
        let (status, bytes) = timeout(PATIENCE, self.send(method, path, body))
            .await
            .map_err(|_| Failure::failed("the service took too long to answer"))??;
        if status.is_success() {
            return Ok(bytes);
        }
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let said = match body["error"].as_str() {
            Some(said) => said.to_owned(),
            None => format!("the service answered with {status}"),
        };
        let refused = Failure::failed(said)
            .context(serde_json::json!({"status": status.as_u16(), "path": path}));
        let is_control = matches!(self.way, Way::Socket(_));
        Err(if status == StatusCode::UNAUTHORIZED && is_control {
            refused.hint("the service was started again meanwhile, or another one holds this directory; try once more")
        } else if status == StatusCode::UNAUTHORIZED {
            refused.hint("name a token with --api-key or in DUCTILE_API_KEY")
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
        match &self.way {
            Way::Url(elsewhere) => elsewhere.send(method, path, body).await,
            Way::Here(here) => {
                let request = request(method, path, body)?;
                let Ok(response) = here.router.clone().oneshot(request).await;
                collected(response.status(), response.into_body()).await
            }
            Way::Socket(state) => {
                let mut request = request(method, path, body)?;
                let (stream, token) = attended(state).await?;
                request
                    .headers_mut()
                    .insert(http::header::AUTHORIZATION, token);
                let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
                let driving = tokio::spawn(connection);
                let response = sender.send_request(request).await?;
                let read = collected(response.status(), response.into_body()).await;
                driving.abort();
                read
            }
        }
    }

    /// Whoever worked here waits for what still runs.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Way::Here(here) = self.way {
            if here.works {
                here.runtime.stop(STOP_PATIENCE).await;
            }
            here.open.close().await?;
        }
        Ok(())
    }
}

impl Here {
    async fn new(
        state: &StateDir,
        tree: &Tree,
        program: Program,
        works: bool,
    ) -> anyhow::Result<Self> {
        let open = Open::new(state, BeginArgs::default()).await?;
        let program = if works {
            program.for_an_errand()
        } else {
            program
        };
        let options = Options {
            engine: open.engine.clone(),
            program: Arc::new(program),
            node: NODE.to_owned(),
            launcher: launcher(),
            guarded: state.guarded(),
        };
        let runtime = if works {
            Runtime::on_errand(options).await?
        } else {
            Runtime::idle(options)
        };
        let (draining, drains) = watch::channel(false);
        let loader = automation::loader(&runtime, &Arc::new(tree.clone()));
        Ok(Self {
            router: automation::local_router(&runtime, loader, drains),
            open,
            runtime,
            works,
            _draining: draining,
        })
    }
}

/// A connection to the service, and the token of its control socket. The token goes to nobody but the user who wrote it.
async fn attended(state: &StateDir) -> anyhow::Result<(UnixStream, HeaderValue)> {
    let (socket, file) = (state.socket(), state.control_token());
    let stream = UnixStream::connect(&socket)
        .await
        .with_context(|| format!("cannot reach {}", socket.display()))?;
    let owner = match std::fs::metadata(&file) {
        Ok(found) => found.uid(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message = format!(
                "there is no {}, which the service writes at its start",
                file.display()
            );
            let hint = "restart the service if it was started by an earlier version, and use the `state.path` that it uses";
            return Err(Failure::failed(message).hint(hint).into());
        }
        Err(error) => {
            let message = format!("{} cannot be read: {error}", file.display());
            return Err(Failure::failed(message).hint(OF_ANOTHER_USER).into());
        }
    };
    let peer = stream.peer_cred();
    let peer = peer.with_context(|| format!("nobody is known at {}", socket.display()))?;
    if peer.uid() != owner {
        let (socket, peer) = (socket.display(), peer.uid());
        let message = format!(
            "{socket} is answered by user {peer}, and the service's keys belong to user {owner}"
        );
        let hint = "something else listens there; look at who may write to the state directory, and restart the service";
        return Err(Failure::failed(message).hint(hint).into());
    }
    let token = read_at(&file).map_err(|error| {
        let message = format!("{error:#}");
        Failure::failed(message).hint(OF_ANOTHER_USER)
    })?;
    let token = token.with_context(|| format!("{} was removed just now", file.display()))?;
    let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
        .with_context(|| format!("{} holds no token", file.display()))?;
    bearer.set_sensitive(true);
    Ok((stream, bearer))
}

fn request(method: Method, path: &str, body: String) -> anyhow::Result<Request<Body>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "localhost")
        .body(Body::from(body))
        .context("the request cannot be made")
}

async fn collected<B>(status: StatusCode, body: B) -> anyhow::Result<(StatusCode, Vec<u8>)>
where
    B: hyper::body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let whole = whole.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
    Ok((status, whole.to_bytes().to_vec()))
}

/// A part of a path, whatever characters it has.
pub(crate) fn segment(text: &str) -> String {
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

/// `?a=b&c=d` of those that are given.
pub(crate) fn query(pairs: &[(&str, Option<String>)]) -> String {
    let given = pairs.iter().filter_map(|(name, value)| {
        let value = value.as_deref()?;
        Some(format!("{name}={}", segment(value)))
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
        assert_eq!(segment("a/../b?c"), "a%2F..%2Fb%3Fc");
        let pairs = [("a", Some("x&y".to_owned())), ("b", None)];
        assert_eq!(query(&pairs), "?a=x%26y");
        assert_eq!(query(&[("b", None)]), "");
    }
}
