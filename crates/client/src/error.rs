//! The errors of the client.
//!
//! Invariant: messages are lower case, name the server or the document, and contain no key; `hint`
//! says what to do next. A refusal keeps the server's status and stable code, so that callers
//! branch on those and never on text.

use std::time::Duration;

use http::StatusCode;

use crate::Address;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("server address {given} cannot be used: {why}")]
    Address { given: String, why: &'static str },

    #[error("certificate file {path} cannot be used: {why}")]
    CaFile { path: String, why: String },

    #[error("cannot prepare the TLS connection: {0}")]
    TlsSetup(String),

    #[error("request cannot be sent: {0}")]
    Request(String),

    #[error("no source of random numbers: {0}")]
    Entropy(String),

    // The cause is part of the message and therefore not a source, which would print it twice.
    #[error("cannot reach {server}: {cause}")]
    Unreachable {
        server: Address,
        cause: std::io::Error,
    },

    /// Nothing was sent.
    #[error("{path} is not served by the server of its data directory: {why}")]
    Peer { path: String, why: String },

    #[error("no answer from {server} within {} s", .after.as_secs_f64())]
    TimedOut { server: Address, after: Duration },

    /// The connection broke after the request may have been sent; whether it was executed is
    /// unknown.
    #[error("connection to {server} broke before the answer was complete: {cause}")]
    Broken {
        server: Address,
        cause: hyper::Error,
    },

    /// The server answered with a status of 400 or more.
    #[error("{message} ({code}, status {})", .status.as_u16())]
    Refused {
        status: StatusCode,
        code: String,
        message: String,
        /// Seconds to wait, if the server sent them.
        retry_after_s: Option<u64>,
    },

    /// The server is a Consign server without a site of agent transactions.
    #[error("{server} serves no agent transactions")]
    NotServed { server: Address },

    #[error("answer of {server} is larger than {limit_bytes} bytes")]
    TooLarge { server: Address, limit_bytes: usize },

    #[error("answer to {what} is not what this version expects: {why}")]
    Unreadable { what: &'static str, why: String },
}

impl Error {
    /// The status when the server itself refused.
    pub fn status(&self) -> Option<StatusCode> {
        if let Self::Refused { status, .. } = self {
            return Some(*status);
        }
        None
    }

    /// The server's stable code when the server itself refused.
    pub fn code(&self) -> Option<&str> {
        if let Self::Refused { code, .. } = self {
            return Some(code);
        }
        None
    }

    /// Whether the server could not be reached, in contrast to an answer.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Peer { .. }
                | Self::TimedOut { .. }
                | Self::Broken { .. }
        )
    }

    /// Whether it was reached and is not trusted; another attempt would fail too.
    pub(crate) fn is_distrust(&self) -> bool {
        matches!(self, Self::Unreachable { cause, .. } if is_certificate_problem(cause))
            || matches!(self, Self::Peer { .. })
    }

    /// The next step for the reader of the message.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Address { .. } => {
                "use a form like http://127.0.0.1:7070 or https://bus.example.org/path-of-the-proxy"
                    .to_owned()
            }
            Self::CaFile { .. } => {
                "give a PEM file that holds the certificate of the authority".to_owned()
            }
            Self::Unreachable { cause, .. } if is_certificate_problem(cause) => {
                "if the server has its own certificate authority, name it with --ca-file".to_owned()
            }
            Self::Unreachable { cause, .. } if is_no_tls(cause) => {
                "the server does not speak TLS on this port; use an http:// address, or start it with --tls-cert and --tls-key".to_owned()
            }
            Self::Unreachable { server, cause } if is_unknown_name(cause) => format!(
                "the name {} has no address; check its spelling, and whether this machine can ask a name server",
                server.host
            ),
            Self::Unreachable { server, .. } if is_here(&server.host) => {
                "start it with: consign serve".to_owned()
            }
            Self::Unreachable { .. } => {
                "check the address and the port, and that the server runs there and lets this machine in".to_owned()
            }
            Self::Broken { cause, .. } if cause.is_parse() => {
                "the server did not answer in HTTP; if it has a certificate, use an https:// address".to_owned()
            }
            Self::Peer { .. } => {
                "no key was sent; find out which process created this socket, and start the server with: consign serve".to_owned()
            }
            Self::TimedOut { .. } => {
                "check the server's log, or increase the limit with --timeout".to_owned()
            }
            Self::Broken { .. } => {
                "check what became of it before sending it again; with an idempotency key \
                                    sending it again is safe"
                    .to_owned()
            }
            Self::Refused {
                status,
                code,
                retry_after_s,
                message,
            } => {
                return if message.contains("disk is full") {
                    Some("free space on the disk of the server; its log names the file".to_owned())
                } else {
                    refusal_hint(*status, code, *retry_after_s)
                };
            }
            Self::NotServed { .. } => {
                "start it with ATP_SITE set; see consign serve --help".to_owned()
            }
            Self::TooLarge { .. } => "request less at once, for example with --limit".to_owned(),
            Self::Unreadable { .. } => {
                "check that the address belongs to a Consign server and that both sides \
                                        have the same version"
                    .to_owned()
            }
            Self::TlsSetup(_) | Self::Request(_) | Self::Entropy(_) => return None,
        })
    }
}

fn refusal_hint(status: StatusCode, code: &str, retry_after_s: Option<u64>) -> Option<String> {
    if let Some(hint) = beam_hint(status, code) {
        return Some(hint.to_owned());
    }
    let hint = match (status.as_u16(), code) {
        (_, "invalid_signature") => {
            "check that the key is the right one and that both clocks agree within five minutes"
        }
        (_, "https_required") => "use an https:// address",
        (_, "idempotency_conflict") => {
            "this idempotency key already belongs to another request; choose a new one"
        }
        (_, "limit_exceeded") => "let workers take what waits before publishing more",
        (_, "nonce_consumed") => {
            "it was authorized before, under another idempotency key; see: consign tx show"
        }
        (_, "intent_expired") => "create a new intent with: consign tx create",
        (_, "not_authorized") => "authorize it first with: consign tx authorize",
        (_, "unknown_agent_key") => "ask the site to register the key that `consign tx key` prints",
        (_, "site_mismatch") => "name the site that the server serves with --site",
        (_, "timestamp_out_of_window") => {
            "correct the clock of this machine, and create a new intent"
        }
        (_, "idempotency_mismatch") => {
            "it was begun with other arguments; repeat those, or name a further execution with --nth"
        }
        (_, "intent_not_found" | "execution_limit_reached" | "already_compensated") => {
            "check the id with: consign tx show, or as operator: consign tx list"
        }
        (_, "invalid_state") => "check its state with: consign tx show",
        (_, "node_draining") => "name another server with --server",
        (401, _) => "check the key or token; a file is named with --key-file or --admin-token-file",
        (403, _) => "use the key of the publisher, of the worker, or the main key",
        (404, _) => "check the id; a lease that ran out is also reported this way",
        (413, _) => "make the payload smaller; keep large data elsewhere and send a reference",
        (429 | 503, _) => {
            return Some(match retry_after_s {
                Some(seconds) => format!("try again in {seconds} s"),
                None => "try again later".to_owned(),
            });
        }
        (500.., _) => "check the server's log",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Beam spells its codes in upper case.
fn beam_hint(status: StatusCode, code: &str) -> Option<&'static str> {
    Some(match (status.as_u16(), code) {
        (_, "ADMIN_UNAVAILABLE") => {
            "the server has no operators: set BEAM_ADMIN_EMAILS, BEAM_OPERATOR_EMAILS or BEAM_VIEWER_EMAILS to their \
             addresses, start it again, and name one of them with --email"
        }
        (403, "UNAUTHORIZED") => {
            "use an address of BEAM_ADMIN_EMAILS, BEAM_OPERATOR_EMAILS or BEAM_VIEWER_EMAILS of the server"
        }
        (401, "UNAUTHORIZED" | "INVALID_TOKEN") => {
            "give a token with --token-file: the API key of the agent, the key of the bus, or the session of an \
             operator; on the machine of the server an operator is named with --email"
        }
        (_, "FEDERATION_UNAUTHORIZED") => {
            "the secret must be the same as BEAM_FEDERATION_SHARED_SECRET of the server; without that variable, the \
             server has no peers"
        }
        (_, "FORBIDDEN") => {
            "let the recipient's directory allow it: consign acl allow TARGET INTENT FROM"
        }
        (_, "OFFLINE") => {
            "the recipient is not connected; connect it and send again, or send with --bus, which retries"
        }
        (_, "TIMEOUT") => {
            "send it again with the same --nonce: a result that arrives meanwhile is returned, and nothing is done twice"
        }
        (_, "IN_PROGRESS") => "wait for its result, then send it again with the same --nonce",
        (_, "KEY_ROTATION_REQUIRED") => {
            "name the file of its identity with --key; to replace its key: consign agent rotate"
        }
        (_, "ACTIVE_KEY_REQUIRED") => "replace it with: consign agent rotate --key FILE",
        (_, "INVALID_BEAM_ID") => {
            "a Beam-ID looks like alice@acme.beam.directory or alice@beam.directory"
        }
        (_, "ACL_ERROR") => "register it first with: consign agent register",
        (_, "INVALID_PEER" | "INVALID_HTTP_ENDPOINT") => {
            "use an https URL of a public host, or list its host:port in BEAM_ALLOW_TARGETS of the server"
        }
        (_, "FEDERATION_ERROR") => {
            "the peer is registered, and is asked again when one of its agents is needed; check its URL and its secret"
        }
        (_, "INVALID_STATE") => "see its status with: consign message history",
        (_, "MESSAGE_NOT_FOUND") => "list the messages with: consign message history",
        (_, "NOT_FOUND" | "KEY_NOT_FOUND") => {
            "check the spelling; consign agent list and consign peer list show what there is"
        }
        _ => return None,
    })
}

/// The other end answered a TLS handshake with something else.
fn is_no_tls(cause: &std::io::Error) -> bool {
    let inner = cause.get_ref();
    matches!(
        inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()),
        Some(rustls::Error::InvalidMessage(_))
    )
}

/// The resolver's errors have no kind of their own.
fn is_unknown_name(cause: &std::io::Error) -> bool {
    cause
        .to_string()
        .starts_with("failed to lookup address information")
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

fn is_certificate_problem(cause: &std::io::Error) -> bool {
    let Some(inner) = cause.get_ref() else {
        return false;
    };
    matches!(
        inner.downcast_ref::<rustls::Error>(),
        Some(rustls::Error::InvalidCertificate(_))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str, retry_after_s: Option<u64>) -> Error {
        Error::Refused {
            status: StatusCode::from_u16(status).unwrap(),
            code: code.to_owned(),
            message: "Too many requests.".to_owned(),
            retry_after_s,
        }
    }

    #[test]
    fn a_refusal_shows_message_code_and_status() {
        let error = refused(429, "rate_limited", Some(12));
        assert_eq!(
            error.to_string(),
            "Too many requests. (rate_limited, status 429)"
        );
        assert_eq!(error.code(), Some("rate_limited"));
        assert_eq!(error.hint().as_deref(), Some("try again in 12 s"));
        assert!(!error.is_unreachable());
    }

    #[test]
    fn errors_of_beam_have_hints_of_their_own() {
        let hint = |status, code| refused(status, code, None).hint().unwrap();
        let unavailable = hint(503, "ADMIN_UNAVAILABLE");
        assert!(unavailable.contains("BEAM_ADMIN_EMAILS"), "{unavailable}");
        assert!(hint(403, "FORBIDDEN").contains("consign acl allow"));
        assert!(hint(503, "OFFLINE").contains("--bus"));
        // The same words in lower case are codes of other protocols.
        assert!(hint(403, "forbidden").contains("main key"));
        assert_eq!(hint(503, "STORE_UNAVAILABLE"), "try again later");
    }

    #[test]
    fn a_server_that_is_not_there_names_the_way_to_start_it() {
        let error = Error::Unreachable {
            server: Address::parse("http://127.0.0.1:7070").unwrap(),
            cause: std::io::Error::from(std::io::ErrorKind::ConnectionRefused),
        };
        assert_eq!(
            error.to_string(),
            "cannot reach http://127.0.0.1:7070: connection refused"
        );
        assert_eq!(
            error.hint().as_deref(),
            Some("start it with: consign serve")
        );
        assert!(error.is_unreachable());
    }

    #[test]
    fn each_way_not_to_reach_a_server_has_a_hint_of_its_own() {
        let hint = |server: &str, cause: std::io::Error| {
            let server = Address::parse(server).unwrap();
            Error::Unreachable { server, cause }.hint().unwrap()
        };
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for here in ["http://localhost:1", "http://[::1]:1", "http://127.0.0.2:1"] {
            assert_eq!(hint(here, refused()), "start it with: consign serve");
        }
        let elsewhere = hint("http://bus.example.org:7070", refused());
        assert!(
            elsewhere.contains("the address and the port"),
            "{elsewhere}"
        );
        let nowhere = std::io::Error::other(
            "failed to lookup address information: Name or service not known",
        );
        let unknown = hint("http://bus.exmaple.org", nowhere);
        assert!(
            unknown.contains("bus.exmaple.org has no address"),
            "{unknown}"
        );
        let no_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        let plain = hint("https://127.0.0.1:7070", std::io::Error::other(no_tls));
        assert!(plain.contains("http:// address"), "{plain}");
    }

    #[test]
    fn a_full_disk_is_not_answered_with_try_again() {
        let error = Error::Refused {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "database_busy".to_owned(),
            message: "The server's disk is full; nothing was written.".to_owned(),
            retry_after_s: Some(1),
        };
        let hint = error.hint().unwrap();
        assert!(hint.contains("free space"), "{hint}");
    }
}
