//! The client's side of TLS.

use super::connector::Stream;
use super::refusal::refusal;
use crate::endpoint::ClientTls;
use reverie_core::{Error, Result};
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The TLS configuration of one server.
pub(super) struct TlsConfig {
    connector: TlsConnector,
    name: ServerName<'static>,
    /// True if the client has a certificate to show.
    pub(super) has_identity: bool,
}

impl TlsConfig {
    /// Reads the options. `InvalidArgument` if one cannot be read.
    pub(super) fn new(tls: &ClientTls, address: &str) -> Result<Self> {
        let refuse = |what: &str, reason: &dyn std::fmt::Display| Error::InvalidArgument(format!("{what}: {reason}"));
        let roots = roots(tls.ca.as_deref())?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse("TLS", &error))?
            .with_root_certificates(roots);
        let mut config = match &tls.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let what = "the client's certificate and key (PEM)";
                let chain = certificates(chain, what)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| refuse(what, &error))?;
                config.with_client_auth_cert(chain, key).map_err(|error| refuse(what, &error))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let name = tls.server_name.clone().unwrap_or_else(|| host.to_owned());
        let name = ServerName::try_from(name.clone())
            .map_err(|error| refuse(&format!("'{name}' as the name of the server's certificate"), &error))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name, has_identity: tls.identity.is_some() })
    }

    /// Does the handshake. `Unauthenticated` if either end does not trust the other.
    pub(super) async fn wrap(&self, stream: Box<dyn Stream>, address: &str) -> Result<Box<dyn Stream>> {
        match self.connector.connect(self.name.clone(), stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(refusal(&error, address)),
        }
    }
}

fn roots(ca: Option<&[u8]>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let what = "the certificates of the authorities to trust (PEM)";
    match ca {
        Some(pem) => {
            for certificate in certificates(pem, what)? {
                roots.add(certificate).map_err(|error| Error::InvalidArgument(format!("{what}: {error}")))?;
            }
        }
        // Certificates of the system that cannot be parsed are not trusted.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    if roots.is_empty() {
        return Err(Error::InvalidArgument(format!("{what}: the file contains none")));
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let refuse = |error: &dyn std::fmt::Display| Error::InvalidArgument(format!("{what}: {error}"));
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| refuse(&error))?;
    if found.is_empty() { Err(refuse(&"it contains no certificate")) } else { Ok(found) }
}
