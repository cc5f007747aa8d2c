//! TLS settings of the client: the public roots, plus one authority of the user's own.
//!
//! Invariant: certificates are always checked; no option disables it.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::Error;

pub(crate) fn config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    if let Some(path) = ca_file {
        add_authorities(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::TlsSetup(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), Error> {
    let refuse = |why: String| Error::CaFile {
        path: path.display().to_string(),
        why,
    };
    let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let mut added = 0_usize;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| refuse(error.to_string()))?;
        added += 1;
    }
    if added == 0 {
        return Err(refuse(
            "it contains no certificate in PEM format".to_owned(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused_by_name() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = config(Some(&path)).unwrap_err().to_string();
        assert!(
            error.contains("Cargo.toml cannot be used: it contains no certificate"),
            "{error}"
        );
    }

    #[test]
    fn the_public_roots_alone_are_enough() {
        assert!(config(None).is_ok());
    }
}
