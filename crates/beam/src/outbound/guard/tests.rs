//! The guard with a resolver whose answers the test chooses.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::resolve::LookupFuture;
use super::*;

/// Gives one answer after the other; the last one is repeated.
#[derive(Debug)]
pub(in super::super) struct ScriptedResolver {
    answers: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl ScriptedResolver {
    pub(in super::super) fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |ips: &&[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Arc::new(Self {
            answers: answers.iter().map(parse).collect(),
            asked: AtomicUsize::new(0),
        })
    }

    pub(in super::super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl NameResolver for ScriptedResolver {
    fn lookup<'a>(&'a self, _: &'a str) -> LookupFuture<'a> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers[asked.min(self.answers.len() - 1)].clone();
        Box::pin(async move { Ok(answer) })
    }
}

fn guard(allowed: &str, answer: &[&str]) -> AddressGuard {
    let allowed = AllowedTargets::parse(allowed).unwrap();
    AddressGuard::with_resolver(allowed, ScriptedResolver::new(&[answer]))
}

fn target(text: &str) -> String {
    TargetUrl::parse(text).unwrap().authority().to_string()
}

async fn resolve(guard: &AddressGuard, text: &str) -> Result<Vec<SocketAddr>, GuardError> {
    let url = TargetUrl::parse(text)?;
    Ok(guard.resolve(&url).await?.sockets().to_vec())
}

#[tokio::test]
async fn an_address_that_is_not_public_is_refused_by_its_text() {
    let guard = guard("", &["8.8.8.8"]);
    for text in [
        "https://127.0.0.1",
        "https://127.255.0.1:8443",
        "https://0.0.0.0",
        "https://10.1.2.3",
        "https://172.16.0.1",
        "https://192.168.1.1",
        "https://169.254.169.254/latest/meta-data",
        "https://100.100.100.200",
        "https://192.0.2.1",
        "https://198.18.0.1",
        "https://224.0.0.1",
        "https://255.255.255.255",
        "https://[::]",
        "https://[::1]",
        "https://[0:0:0:0:0:0:0:1]",
        "https://[fe80::1]",
        "https://[fc00::1]",
        "https://[fd00:ec2::254]",
        "https://[ff02::1]",
        "https://[2001:db8::1]",
        "https://[::127.0.0.1]",
        "https://[::ffff:127.0.0.1]",
        "https://[::ffff:a9fe:a9fe]",
        "https://[64:ff9b::a00:1]",
        "https://[2002:c0a8:101::1]",
        "https://localhost",
        "https://LOCALHOST:8443",
        "https://a.localhost",
        "https://localhost.localdomain",
        "https://printer.local",
        "https://metadata.google.internal",
        "https://router.home.arpa",
        "https://intranet",
        "https://ip6-loopback",
    ] {
        let expected = GuardError::NotPublic {
            target: target(text),
        };
        assert_eq!(guard.check_text(text), Err(expected.clone()), "{text}");
        assert_eq!(resolve(&guard, text).await, Err(expected), "{text}");
    }
}

#[tokio::test]
async fn a_public_https_url_is_called_at_all_its_addresses() {
    let guard = guard("", &["8.8.8.8", "2606:4700::1111"]);
    assert!(guard.check_text("https://a.example/hook").is_ok());
    let expected = ["8.8.8.8:8443", "[2606:4700::1111]:8443"].map(|text| text.parse().unwrap());
    let sockets = resolve(&guard, "https://a.example:8443/hook").await;
    assert_eq!(sockets.unwrap(), expected);
    let sockets = resolve(&guard, "https://1.1.1.1/hook").await.unwrap();
    assert_eq!(sockets, ["1.1.1.1:443".parse().unwrap()]);
    // Names that only look private.
    for text in ["https://localhost.example", "https://mylocal.example.org"] {
        assert!(guard.check_text(text).is_ok(), "{text}");
    }
    assert!(!is_private_name("a.notlocal"));
}

#[tokio::test]
async fn plain_http_is_refused_even_to_public_addresses() {
    let guard = guard("", &["8.8.8.8"]);
    for text in ["http://a.example", "http://8.8.8.8", "http://localhost:1"] {
        let expected = GuardError::NotHttps {
            target: target(text),
        };
        assert_eq!(guard.check_text(text), Err(expected.clone()));
        assert_eq!(resolve(&guard, text).await, Err(expected));
    }
}

#[tokio::test]
async fn a_name_with_one_address_that_is_not_public_is_refused() {
    for answer in [
        &["10.0.0.1"][..],
        &["8.8.8.8", "10.0.0.1"],
        &["127.0.0.1", "8.8.8.8"],
        &["8.8.8.8", "::1"],
        &[
            "8.8.8.8",
            "1.1.1.1",
            "9.9.9.9",
            "4.4.4.4",
            "169.254.169.254",
        ],
        &["::ffff:10.0.0.1"],
        &["64:ff9b::7f00:1"],
    ] {
        let guard = guard("", answer);
        let refused = resolve(&guard, "https://a.example").await.unwrap_err();
        assert!(refused.is_refusal());
        let shown = refused.to_string();
        assert_eq!(shown, "a.example:443 is not a public address", "{answer:?}");
    }
}

#[tokio::test]
async fn a_listed_host_and_port_is_allowed_literally() {
    let guard = guard(
        " 127.0.0.1:9000,[::1]:9000, Peer.Internal:8443,localhost:80,, ",
        &["10.0.0.1"],
    );
    for (text, allowed) in [
        ("http://127.0.0.1:9000/x", true),
        ("https://127.0.0.1:9000", true),
        ("http://[0::1]:9000", true),
        ("http://peer.internal:8443", true),
        ("https://PEER.internal:8443/a", true),
        ("http://localhost", true),
        // Another port or another spelling of a listed target.
        ("http://127.0.0.1:9001", false),
        ("http://127.0.0.1", false),
        ("http://127.1:9000", false),
        ("http://2130706433:9000", false),
        ("http://user@127.0.0.1:9000", false),
        ("http://127.0.0.1.:9000", false),
        ("http://localhost:9000", false),
        ("http://[::ffff:127.0.0.1]:9000", false),
        ("https://[::ffff:127.0.0.1]:9000", false),
        ("https://peer.internal", false),
        ("https://a.peer.internal:8443", false),
        ("https://localhost", false),
    ] {
        assert_eq!(guard.check_text(text).is_ok(), allowed, "{text}");
        assert_eq!(resolve(&guard, text).await.is_ok(), allowed, "{text}");
    }
}

#[test]
fn an_entry_of_the_list_needs_a_host_and_a_port() {
    for (list, entry, why) in [
        ("localhost", "localhost", UrlError::Port),
        ("a:1, b:x", "b:x", UrlError::Port),
        ("http://a:1", "http://a:1", UrlError::Port),
        (":80", ":80", UrlError::NoHost),
        ("*:80", "*:80", UrlError::Host),
        ("::1:80", "::1:80", UrlError::NoHost),
        ("[::1]", "[::1]", UrlError::Port),
        ("127.1:80", "127.1:80", UrlError::AmbiguousIpv4),
        ("10.0.0.0/8:80", "10.0.0.0/8:80", UrlError::Host),
        ("ü.example:80", "ü.example:80", UrlError::Host),
    ] {
        let entry = entry.to_owned();
        let expected = AllowedTargetsError { entry, why };
        assert_eq!(AllowedTargets::parse(list), Err(expected), "{list}");
    }
    assert_eq!(AllowedTargets::parse(" , "), Ok(AllowedTargets::default()));
}

#[tokio::test]
async fn a_configured_url_is_not_checked() {
    let guard = guard("", &["10.0.0.1"]);
    for (text, expected) in [
        ("http://directory.internal:7000", "10.0.0.1:7000"),
        ("http://127.0.0.1:7000", "127.0.0.1:7000"),
    ] {
        let url = TargetUrl::parse(text).unwrap();
        let target = guard.resolve_configured(&url).await.unwrap();
        assert_eq!(target.sockets(), [expected.parse().unwrap()]);
    }
}

#[tokio::test]
async fn a_name_without_an_address_is_not_a_refusal() {
    let guard = guard("", &[]);
    let error = resolve(&guard, "https://a.example").await.unwrap_err();
    assert!(matches!(error, GuardError::Unresolved { .. }), "{error}");
    assert!(!error.is_refusal());
}

/// Never answers.
#[derive(Debug)]
struct SilentResolver;

impl NameResolver for SilentResolver {
    fn lookup<'a>(&'a self, _: &'a str) -> LookupFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_ends_after_its_limit() {
    let guard = AddressGuard::with_resolver(AllowedTargets::default(), Arc::new(SilentResolver));
    let begun = tokio::time::Instant::now();
    let error = resolve(&guard, "https://a.example").await.unwrap_err();
    assert!(matches!(error, GuardError::Unresolved { .. }), "{error}");
    assert!(begun.elapsed() <= LOOKUP_LIMIT + Duration::from_millis(10));
}

#[tokio::test]
async fn the_system_finds_the_names_of_this_machine() {
    let allowed = AllowedTargets::parse("localhost:80").unwrap();
    let guard = AddressGuard::new(allowed);
    let sockets = resolve(&guard, "http://localhost").await.unwrap();
    assert!(sockets.iter().all(|socket| socket.ip().is_loopback()));
}
