//! The host names under which a site accepts requests that change something.
//!
//! A page of another site can make a browser send a request here: as a cross-site request, which `Origin` and
//! `Sec-Fetch-Site` show; or by DNS rebinding, which only `Host` shows. Programs send neither header, and use the address
//! that they were given.
//! Invariant: every route that changes something is guarded unless it is listed here, so a new route is guarded by
//! default.

use std::net::IpAddr;

use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::HOST;
use http::{HeaderMap, Method};

use super::{ProblemResponse, TransactionFace};
use consign_web::cross_site::is_cross_site_to;

const FORWARDED_HOST: &str = "x-forwarded-host";

/// The host names of a site besides those that are always accepted.
#[derive(Clone, Debug, Default)]
pub struct SiteHosts {
    /// The site's origin, as intents name it.
    site: String,
    /// Without ports, in lower case.
    hosts: Vec<String>,
}

impl SiteHosts {
    /// The host of the site's origin, and further hosts of the operator.
    pub fn new(site: &str, further: &[String]) -> Self {
        let authority = site.split_once("://").map_or(site, |(_, host)| host);
        let hosts = further.iter().map(String::as_str).chain([authority]);
        Self {
            site: site.to_owned(),
            hosts: hosts
                .map(|host| host_without_port(host).unwrap_or(host).to_ascii_lowercase())
                .collect(),
        }
    }

    /// Refuses requests that a page of another site made a browser send.
    fn check(&self, request: &Request, trust_proxy: bool) -> Result<(), Problem> {
        let headers = request.headers();
        if is_cross_site_to(headers, |origin| origin.eq_ignore_ascii_case(&self.site)) {
            return Err(Problem::CrossSite);
        }
        let named = request.uri().authority().map(http::uri::Authority::as_str);
        let is_ours = named.is_none_or(|host| self.is_own_host(host))
            && self.reaches_own_host(headers, trust_proxy);
        if is_ours {
            Ok(())
        } else {
            Err(Problem::ForeignHost)
        }
    }

    /// A trusted proxy may use its own name for this server; it then forwards the client's host.
    fn reaches_own_host(&self, headers: &HeaderMap, trust_proxy: bool) -> bool {
        let forwarded = headers.get_all(FORWARDED_HOST).iter().next_back();
        if let Some(forwarded) = forwarded.filter(|_| trust_proxy) {
            let nearest = forwarded.to_str().unwrap_or_default().rsplit(',').next();
            return nearest.is_some_and(|host| self.is_own_host(host.trim()));
        }
        let mut hosts = headers.get_all(HOST).iter();
        match (hosts.next(), hosts.next()) {
            // Browsers always send one.
            (None, _) => true,
            (Some(host), None) => host.to_str().is_ok_and(|host| self.is_own_host(host)),
            (Some(_), Some(_)) => false,
        }
    }

    /// Addresses and `localhost` cannot be rebound; any other name must be listed.
    fn is_own_host(&self, host: &str) -> bool {
        let Some(name) = host_without_port(host) else {
            return false;
        };
        let unbracketed = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        unbracketed.unwrap_or(name).parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|own| name.eq_ignore_ascii_case(own))
    }
}

/// A host without its port and without the final dot. None if the port is not a number.
fn host_without_port(host: &str) -> Option<&str> {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        // The last part of an address in brackets.
        Some((_, port)) if port.ends_with(']') => host,
        Some((name, port)) if is_port(port) => name,
        Some(_) => return None,
        None => host,
    };
    Some(name.strip_suffix('.').unwrap_or(name))
}

pub(super) async fn guard(
    State(face): State<TransactionFace>,
    request: Request,
    next: Next,
) -> Response {
    let trust_proxy = face.options.policy.trust_proxy;
    if changes_something(&request)
        && let Err(problem) = face.options.hosts.check(&request, trust_proxy)
    {
        return ProblemResponse(problem).into_response();
    }
    next.run(request).await
}

/// Callbacks come under any name and are authenticated; verification changes nothing.
fn changes_something(request: &Request) -> bool {
    let path = request.uri().path();
    let is_free = path == "/api/atp/receipts/verify"
        || (path.starts_with("/api/atp/rails/") && path.ends_with("/callback"));
    let only_reads = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    !only_reads && !is_free
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn names() -> SiteHosts {
        SiteHosts::new(
            "https://Shop.example:8443",
            &["consign.internal".to_owned()],
        )
    }

    fn check(trust_proxy: bool, headers: &[(&str, &str)]) -> Result<(), Problem> {
        let mut request = Request::builder().method("POST").uri("/api/atp/execute");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        names().check(&request, trust_proxy)
    }

    #[test]
    fn addresses_and_own_names_lead_here_and_nothing_else_does() {
        for host in [
            "127.0.0.1:7070",
            "127.0.0.1",
            "[::1]:7070",
            "[::1]",
            "192.0.2.7:80",
            "localhost",
            "LOCALHOST:7070",
            "localhost.",
            "shop.example",
            "SHOP.example.:443",
            "shop.example:8443",
            "consign.internal:7070",
        ] {
            assert_eq!(check(false, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "",
            ":7070",
            "evil.example",
            "rebind.evil.example:7070",
            "localhost.evil.example",
            "shop.example.evil.example",
            "evilshop.example",
            "shop.example:evil.example",
            "shop.example@evil.example",
            "127.0.0.1.evil.example",
            "[::1].evil.example",
            "0x7f.1",
            "internal",
            "x.localhost",
        ] {
            let refused = check(false, &[("host", host)]);
            assert_eq!(refused, Err(Problem::ForeignHost), "{host}");
        }
        assert_eq!(check(false, &[]), Ok(()), "no browser leaves it out");
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(check(false, &twice), Err(Problem::ForeignHost));
    }

    #[test]
    fn what_a_page_elsewhere_makes_a_browser_send_is_refused() {
        let host = ("host", "127.0.0.1:7070");
        for header in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:7071"),
            ("origin", "https://shop.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(check(false, &[host, header]), Err(Problem::CrossSite));
        }
        for header in [
            ("origin", "http://127.0.0.1:7070"),
            ("origin", "https://shop.example:8443"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(check(false, &[host, header]), Ok(()), "{header:?}");
        }
    }

    #[test]
    fn a_trusted_proxy_says_what_the_client_called_the_site() {
        let behind = |trust, forwarded| {
            check(
                trust,
                &[("host", "upstream:7070"), ("x-forwarded-host", forwarded)],
            )
        };
        assert_eq!(behind(true, "shop.example"), Ok(()));
        assert_eq!(behind(true, "evil.example, shop.example"), Ok(()));
        let foreign = Err(Problem::ForeignHost);
        assert_eq!(behind(true, "shop.example, evil.example"), foreign);
        assert_eq!(behind(false, "shop.example"), foreign);
        let direct = [
            ("host", "shop.example"),
            ("x-forwarded-host", "evil.example"),
        ];
        assert_eq!(check(false, &direct), Ok(()), "nobody is trusted to say so");
    }

    #[test]
    fn the_target_of_a_request_counts_as_well() {
        let sent = |uri: &str| {
            let request = Request::builder().uri(uri).header("host", "localhost");
            let request = request.body(Body::empty()).unwrap();
            names().check(&request, false)
        };
        assert_eq!(sent("http://localhost:7070/api/atp/execute"), Ok(()));
        let foreign = sent("http://evil.example/api/atp/execute");
        assert_eq!(foreign, Err(Problem::ForeignHost));
    }
}
