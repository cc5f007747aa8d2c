//! Connecting over TLS: the server's certificate matches the address, or nothing is sent to it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use consign_testkit::unprivileged::User;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::{PASSWORD, Server, carries_megabytes, open, refused, told, works};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }
}

impl Server {
    /// Makes the server present a certificate for this name.
    fn show(&self, name: &str, signed_by: &Authority) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &signed_by.0).unwrap();
        let (certificate_file, key_file) = (self.file("server.pem"), self.file("server.key"));
        fs::write(&certificate_file, certificate.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        // The server refuses a key file that others can read.
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).unwrap();
        User::find().unwrap().owns(&key_file).unwrap();
        self.configure(&format!(
            "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'",
            certificate_file.display(),
            key_file.display()
        ));
        self.reload();
        assert_eq!(self.sql("SHOW ssl"), "on");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn verified(&self, authority: &Authority) -> String {
        let roots = self.file("roots.pem");
        fs::write(&roots, authority.0.pem()).unwrap();
        format!(
            "{}?sslmode=verify-full&sslrootcert={}",
            self.url(),
            roots.display()
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_encrypted_and_the_password_is_proven_by_scram() {
    let server = Server::start("hostssl ledger app 127.0.0.1/32 scram-sha-256");
    let authority = Authority::new();
    server.show("127.0.0.1", &authority);
    let url = server.verified(&authority);
    let world = open(&url, Some(PASSWORD)).await.unwrap();
    works(&world).await;
    carries_megabytes(&world).await;
    let all = "SELECT bool_and(ssl) AND count(*) > 2 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
               WHERE application_name = 'consign'";
    assert_eq!(server.sql(all), "t");
    // The server accepts no unencrypted connection.
    let why = refused(&server.url(), Some(PASSWORD)).await;
    assert!(why.contains("no encryption"), "{why}");
    // A wrong password is refused over TLS as well.
    server.sql("ALTER ROLE app PASSWORD 'changed'");
    server.dismiss();
    for why in [told(&world).await, refused(&url, Some(PASSWORD)).await] {
        assert!(why.contains("password authentication failed"), "{why}");
        assert!(!why.contains(PASSWORD), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_who_the_address_says_is_refused() {
    let server = Server::start("hostssl ledger app 127.0.0.1/32 trust");
    let authority = Authority::new();
    server.show("127.0.0.1", &authority);
    let url = server.verified(&authority);
    let world = open(&url, None).await.unwrap();
    works(&world).await;

    server.show("127.0.0.1", &Authority::new());
    server.dismiss();
    for why in [told(&world).await, refused(&url, None).await] {
        assert!(why.contains("invalid peer certificate"), "{why}");
    }
    server.show("db.example", &authority);
    for why in [told(&world).await, refused(&url, None).await] {
        assert!(why.contains("not valid for name"), "{why}");
    }
    server.configure("ssl = off");
    server.reload();
    for why in [told(&world).await, refused(&url, None).await] {
        assert!(why.contains("TLS"), "{why}");
    }

    server.show("127.0.0.1", &authority);
    works(&world).await;
}
