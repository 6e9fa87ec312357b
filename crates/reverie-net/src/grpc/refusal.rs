//! The reasons why a TLS connection failed, with advice.

use reverie_core::Error;
use std::io;
use tokio_rustls::rustls;

/// The error for a failed TLS connection: one end does not trust the other, or the connection was lost.
pub(super) fn refusal(error: &io::Error, address: &str) -> Error {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(tls) => Error::Unauthenticated(format!("{address}: TLS was refused ({tls}); {}", advice(tls))),
        None => Error::Unavailable(format!("{address} cannot be reached: {error}")),
    }
}

/// Advice for the user, with the argument names of `ClientTLS`.
fn advice(error: &rustls::Error) -> &'static str {
    use rustls::{CertificateError, Error::*};
    match error {
        InvalidMessage(_) => "does the server speak TLS? without, leave out tls=",
        InvalidCertificate(CertificateError::UnknownIssuer) => {
            "ClientTLS(ca=) must name the authority that signed the server's certificate"
        }
        InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) => {
            "use an address that the certificate names, or say which of its names to expect: ClientTLS(server_name=)"
        }
        InvalidCertificate(_) => "the server needs another certificate",
        AlertReceived(_) => "does the server ask for a certificate of the client, and trust it? ClientTLS(cert=, key=)",
        _ => "do ClientTLS(ca=, cert=, key=, server_name=) and the server's certificate fit one another?",
    }
}
