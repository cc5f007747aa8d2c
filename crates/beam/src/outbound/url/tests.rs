//! URLs that hostile agents and peers register.

use proptest::prelude::*;

use super::*;

fn check(text: &str, expected: &Result<&str, UrlError>) {
    let parsed = TargetUrl::parse(text).map(|url| url.to_string());
    let expected = expected.map(str::to_owned);
    assert_eq!(parsed, expected, "for {text:?}");
}

#[test]
fn a_url_is_read_and_printed_in_one_spelling() {
    for (text, expected) in [
        ("https://a.example", "https://a.example/"),
        ("HTTPS://A.Example:443/Path", "https://a.example/Path"),
        ("http://a.example:80", "http://a.example/"),
        ("https://a.example:80", "https://a.example:80/"),
        ("https://a.example?x=1&y", "https://a.example/?x=1&y"),
        ("https://a.example/@b?c@d:e", "https://a.example/@b?c@d:e"),
        (
            "https://xn--bcher-kva.example",
            "https://xn--bcher-kva.example/",
        ),
        ("https://my_host.example", "https://my_host.example/"),
        ("https://3com.example", "https://3com.example/"),
        ("https://1.2.3.4.example", "https://1.2.3.4.example/"),
        ("https://0x7f.example", "https://0x7f.example/"),
        ("https://0xg.0xg", "https://0xg.0xg/"),
        ("https://8.8.8.8:00443", "https://8.8.8.8/"),
        ("http://127.0.0.1:7070/a", "http://127.0.0.1:7070/a"),
        ("https://[0:0:0:0:0:0:0:1]", "https://[::1]/"),
        (
            "https://[2001:DB8::A]:8443/x",
            "https://[2001:db8::a]:8443/x",
        ),
        ("https://[::ffff:7f00:1]", "https://[::ffff:127.0.0.1]/"),
    ] {
        check(text, &Ok(expected));
    }
}

#[test]
fn forms_that_parsers_read_in_different_ways_are_refused() {
    let long_label = format!("https://{}.example", "a".repeat(64));
    let long_name = format!("https://{}example", "abc.".repeat(62));
    let long_url = format!("https://a.example/{}", "a".repeat(URL_BYTES_MAX));
    for (text, expected) in [
        ("", UrlError::Scheme),
        ("a.example", UrlError::Scheme),
        ("//a.example", UrlError::Scheme),
        ("https:a.example", UrlError::Scheme),
        ("https:/a.example", UrlError::Scheme),
        ("ftp://a.example", UrlError::Scheme),
        ("file:///etc/passwd", UrlError::Scheme),
        ("gopher://127.0.0.1:6379/_x", UrlError::Scheme),
        ("javascript://a.example/%0aalert", UrlError::Scheme),
        ("httpss://a.example", UrlError::Scheme),
        ("https://", UrlError::NoHost),
        ("https:///a.example", UrlError::NoHost),
        ("https://:443", UrlError::NoHost),
        ("https://?a", UrlError::NoHost),
        ("https://user@a.example", UrlError::UserPart),
        ("https://user:secret@a.example", UrlError::UserPart),
        ("https://@a.example", UrlError::UserPart),
        ("https://a.example@127.0.0.1", UrlError::UserPart),
        ("https://a.example:443@127.0.0.1:80", UrlError::UserPart),
        ("https://a.example#b", UrlError::Fragment),
        ("https://a.example#@127.0.0.1/", UrlError::Fragment),
        ("https://a.example/b#", UrlError::Fragment),
        ("https://a.example\\@127.0.0.1", UrlError::Character),
        ("https:\\\\127.0.0.1", UrlError::Character),
        (" https://a.example", UrlError::Character),
        ("https://a.example ", UrlError::Character),
        ("https://a.example/a b", UrlError::Character),
        ("https://a.example\r\nHost: b", UrlError::Character),
        ("https://a.example/\r\nX-Beam-Sender:x", UrlError::Character),
        ("https://127.0.\t0.1", UrlError::Character),
        ("https://a.example\0.b.example", UrlError::Character),
        ("https://a.example/\u{7f}", UrlError::Character),
        ("https://a.example/{x}", UrlError::Character),
        ("https://bücher.example", UrlError::Character),
        ("https://１２７.0.0.1", UrlError::Character),
        ("https://127。0。0。1", UrlError::Character),
        ("https://ⓛocalhost", UrlError::Character),
        ("https://a\u{200b}.example", UrlError::Character),
        ("https://%31%32%37.0.0.1", UrlError::Host),
        ("https://localhost%00.example", UrlError::Host),
        ("https://127.0.0.1%2f.example", UrlError::Host),
        ("https://a..example", UrlError::Host),
        ("https://.a.example", UrlError::Host),
        ("https://-a.example", UrlError::Host),
        ("https://a-.example", UrlError::Host),
        ("https://a,b.example", UrlError::Host),
        ("https://*.example", UrlError::Host),
        ("https://a.example&b", UrlError::Host),
        ("https://a.example;b", UrlError::Host),
        ("https://$(id).example", UrlError::Host),
        ("https://a.example.", UrlError::FinalDot),
        ("https://127.0.0.1.", UrlError::FinalDot),
        ("https://localhost.", UrlError::FinalDot),
        ("https://.", UrlError::FinalDot),
        ("https://127.1", UrlError::AmbiguousIpv4),
        ("https://127.0.1", UrlError::AmbiguousIpv4),
        ("https://2130706433", UrlError::AmbiguousIpv4),
        ("https://0", UrlError::AmbiguousIpv4),
        ("https://0x7f.0.0.1", UrlError::AmbiguousIpv4),
        ("https://0X7F000001", UrlError::AmbiguousIpv4),
        ("https://0x", UrlError::AmbiguousIpv4),
        ("https://127.0.0.0x1", UrlError::AmbiguousIpv4),
        ("https://a.0x7f", UrlError::AmbiguousIpv4),
        ("https://017700000001", UrlError::AmbiguousIpv4),
        ("https://0177.0.0.1", UrlError::AmbiguousIpv4),
        ("https://127.0.0.01", UrlError::AmbiguousIpv4),
        ("https://127.0.0.256", UrlError::AmbiguousIpv4),
        ("https://1.2.3.4.5", UrlError::AmbiguousIpv4),
        ("https://a.example.1", UrlError::AmbiguousIpv4),
        ("https://425.510.425.510", UrlError::AmbiguousIpv4),
        ("https://[::1", UrlError::Ipv6),
        ("https://[]", UrlError::Ipv6),
        ("https://[127.0.0.1]", UrlError::Ipv6),
        ("https://[a.example]", UrlError::Ipv6),
        ("https://[fe80::1%eth0]", UrlError::Ipv6),
        ("https://[fe80::1%25eth0]", UrlError::Ipv6),
        ("https://[::1]a.example", UrlError::Ipv6),
        ("https://[v1.x]", UrlError::Ipv6),
        ("https://[::1].a.example:443", UrlError::Ipv6),
        ("https://::1", UrlError::NoHost),
        ("https://fe80::1", UrlError::Port),
        ("https://a.example:", UrlError::Port),
        ("https://a.example:0", UrlError::Port),
        ("https://a.example:65536", UrlError::Port),
        ("https://a.example:+443", UrlError::Port),
        ("https://a.example:-1", UrlError::Port),
        ("https://a.example:443:80", UrlError::Port),
        ("https://a.example:000443", UrlError::Port),
        ("https://a.example:80x", UrlError::Port),
        ("https://[::1]:", UrlError::Port),
        (long_label.as_str(), UrlError::Host),
        (long_name.as_str(), UrlError::Host),
        (long_url.as_str(), UrlError::TooLong),
    ] {
        check(text, &Err(expected));
    }
}

#[test]
fn a_route_is_joined_to_the_path_of_its_base() {
    for (base, expected) in [
        ("https://a.example", "https://a.example/r?x"),
        ("https://a.example/", "https://a.example/r?x"),
        ("https://a.example/b/", "https://a.example/b/r?x"),
        ("https://a.example/b?q=/", "https://a.example/b/r?x"),
    ] {
        let joined = TargetUrl::parse(base).unwrap().join("/r?x").unwrap();
        assert_eq!(joined.to_string(), expected);
    }
    let base = TargetUrl::parse("https://a.example").unwrap();
    for (route, expected) in [
        ("@127.0.0.1", UrlError::Character),
        ("", UrlError::Character),
        ("/a b", UrlError::Character),
        ("/a\r\nX: y", UrlError::Character),
        ("/a#b", UrlError::Fragment),
    ] {
        assert_eq!(base.join(route), Err(expected), "{route:?}");
    }
}

proptest! {
    #[test]
    fn what_parses_is_printed_so_that_it_parses_to_the_same(
        scheme in "(https?|HTTP)://",
        rest in r"[a-z0-9.:@/?#%\[\]xX_-]{0,30}",
    ) {
        if let Ok(url) = TargetUrl::parse(&format!("{scheme}{rest}")) {
            prop_assert_eq!(TargetUrl::parse(&url.to_string()), Ok(url));
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in any::<String>()) {
        let _ = TargetUrl::parse(&text);
    }
}
