//! HTTPS with a self-signed certificate that is replaced while the server runs.

use std::path::Path;
use std::time::{Duration, Instant};

use consign_testkit::process::Server;

use super::{Place, code, printed, start};

/// Writes a new certificate for 127.0.0.1 and its key.
fn certify(place: &Place) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])
        .expect("a certificate can be made");
    std::fs::write(place.path("key.pem"), made.signing_key.serialize_pem())
        .expect("the key can be written");
    std::fs::write(place.path("cert.pem"), made.cert.pem())
        .expect("the certificate can be written");
}

/// Uses the address: by default, commands on this machine use the socket of the data directory.
fn publish(place: &Place, server: &Server, authority: &Path) -> std::process::Output {
    let key = place.data().join("keys/bus_secret");
    let args = ["intent", "publish", "safe", "{}", "--json", "--server"];
    let paths = [authority, &key].map(|path| path.to_string_lossy().into_owned());
    let named = [
        server.base_url(),
        "--ca-file",
        &paths[0],
        "--key-file",
        &paths[1],
    ];
    place.consign(&[&args[..], &named].concat())
}

#[test]
fn ip_050_ip_175_https_is_served_and_its_certificate_reloaded_on_sighup() {
    let place = Place::new();
    certify(&place);
    let options = place
        .options()
        .env("BUS_ENFORCE_HTTPS", "true")
        .arg("--tls-cert")
        .arg(&place.path("cert.pem").to_string_lossy())
        .arg("--tls-key")
        .arg(&place.path("key.pem").to_string_lossy());
    let server = start(&options);
    assert!(server.base_url().starts_with("https://"));
    let first = place.path("first.pem");
    std::fs::copy(place.path("cert.pem"), &first).unwrap();
    assert_eq!(
        printed(&publish(&place, &server, &first))["status"],
        "published"
    );
    // Commands on this machine need no certificate.
    let local = place.consign(&["intent", "publish", "safe", "{}", "--json"]);
    assert_eq!(printed(&local)["status"], "published");
    // Plain HTTP is refused.
    assert!(server.http().get("/health").is_err());

    certify(&place);
    server.signal("HUP").unwrap();
    let deadline = Instant::now() + Duration::from_secs(3);
    while code(&publish(&place, &server, &place.path("cert.pem"))) != 0 {
        assert!(Instant::now() < deadline, "{}", server.stderr());
    }
    assert_eq!(code(&publish(&place, &server, &first)), 5);

    // An invalid certificate leaves the old one in use.
    let second = place.path("second.pem");
    std::fs::copy(place.path("cert.pem"), &second).unwrap();
    std::fs::write(place.path("cert.pem"), "no certificate").unwrap();
    server.signal("HUP").unwrap();
    while !server.stderr().contains("not reloaded") {
        assert!(Instant::now() < deadline, "{}", server.stderr());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(
        printed(&publish(&place, &server, &second))["status"],
        "published"
    );
}

#[test]
fn a_certificate_without_its_key_refuses_the_start() {
    let place = Place::new();
    certify(&place);
    let options = place.options().arg("--tls-cert").arg("cert.pem");
    assert_eq!(super::refusal(&options).0, 2);
    let options = options.arg("--tls-key").arg("nowhere.pem");
    let (code, said) = super::refusal(&options);
    assert_eq!(code, 1);
    assert!(said.contains("cert.pem"), "{said}");
}
