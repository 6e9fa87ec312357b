//! TLS of the server.

use crate::server::ServerTls;
use reverie_core::{Error, Result};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Reads the certificates. `InvalidArgument` names the one that cannot be read. `protocol`: the name of what is served.
pub(crate) fn acceptor(tls: &ServerTls, protocol: &[u8]) -> Result<TlsAcceptor> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS", error))?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem, "the authorities of clients")? {
                roots.add(certificate).map_err(|error| invalid("the authorities of clients", error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| invalid("the authorities of clients", error))?)
        }
    };
    let (chain, key) = &tls.identity;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid("the server's key", error))?;
    let chain = certificates(chain, "the server's certificate")?;
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| invalid("the server's certificate and key", error))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| invalid(what, error))?;
    if read.is_empty() { Err(invalid(what, "it contains no certificate")) } else { Ok(read) }
}

fn invalid(what: &str, error: impl std::fmt::Display) -> Error {
    Error::InvalidArgument(format!("{what}: {error}; it must be PEM"))
}
