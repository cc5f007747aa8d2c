//! The listener's certificate: loaded from PEM files, replaceable while connections are open.
//!
//! Invariant: a loaded configuration is complete and consistent (chain present, key matches); a failed reload changes
//! nothing. Connections keep the certificate that they were opened with. Client certificates are not requested.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject as _},
};

/// The paths of the certificate chain and its key, both PEM.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The server's own certificate first, then the intermediate ones.
    pub certificates: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read PEM from {path}")]
    Unreadable { path: PathBuf, source: pem::Error },
    #[error("{path} holds no certificate; give the chain as PEM, the server's own first")]
    NoCertificate { path: PathBuf },
    #[error("{certificates} and {key} do not make a usable pair")]
    Unusable {
        certificates: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

/// The certificate in use; clones share it.
#[derive(Debug, Clone)]
pub struct ReloadableCertificate {
    shared: Arc<CertificateInUse>,
}

#[derive(Debug)]
struct CertificateInUse {
    files: CertificateFiles,
    current: RwLock<Arc<ServerConfig>>,
}

impl ReloadableCertificate {
    /// Loads the files for the first time.
    pub fn load(files: CertificateFiles) -> Result<Self, Error> {
        let current = RwLock::new(Arc::new(load_config(&files)?));
        Ok(Self {
            shared: Arc::new(CertificateInUse { files, current }),
        })
    }

    /// Loads the files again. On success new connections use the new certificate, on failure the old one stays.
    pub fn reload(&self) -> Result<(), Error> {
        let fresh = Arc::new(load_config(&self.shared.files)?);
        // A poisoned lock is still valid: the swap below is the only write.
        let mut current = self
            .shared
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = fresh;
        Ok(())
    }

    /// The configuration for the next connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        let current = self.shared.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }
}

fn load_config(files: &CertificateFiles) -> Result<ServerConfig, Error> {
    let chain = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(&files.certificates))?;
    if chain.is_empty() {
        return Err(Error::NoCertificate {
            path: files.certificates.clone(),
        });
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    // The provider is set explicitly, because the process-wide default may be missing or set by another crate.
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|source| Error::Unusable {
        certificates: files.certificates.clone(),
        key: files.key.clone(),
        source,
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn unreadable(path: &Path) -> impl FnOnce(pem::Error) -> Error {
    let path = path.to_owned();
    |source| Error::Unreadable { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written(directory: &Path) -> CertificateFiles {
        let files = CertificateFiles {
            certificates: directory.join("chain.pem"),
            key: directory.join("key.pem"),
        };
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&files.certificates, made.cert.pem()).unwrap();
        fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        files
    }

    #[test]
    fn a_failed_reload_keeps_the_certificate_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let files = written(directory.path());
        let reload = ReloadableCertificate::load(files.clone()).unwrap();
        let first = reload.current();

        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&files.key, other.signing_key.serialize_pem()).unwrap();
        assert!(matches!(reload.reload(), Err(Error::Unusable { .. })));
        fs::write(&files.key, "no key here").unwrap();
        assert!(matches!(reload.reload(), Err(Error::Unreadable { .. })));
        assert!(Arc::ptr_eq(&first, &reload.current()));

        written(directory.path());
        reload.reload().unwrap();
        assert!(!Arc::ptr_eq(&first, &reload.current()));
    }

    #[test]
    fn missing_and_empty_files_are_named_in_the_error() {
        let directory = tempfile::tempdir().unwrap();
        let files = written(directory.path());
        fs::write(&files.certificates, "").unwrap();
        let empty = ReloadableCertificate::load(files.clone()).unwrap_err();
        assert!(matches!(empty, Error::NoCertificate { .. }));
        fs::remove_file(&files.certificates).unwrap();
        let missing = ReloadableCertificate::load(files).unwrap_err();
        assert!(missing.to_string().contains("chain.pem"));
    }
}
