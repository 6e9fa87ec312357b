//! The token that admits clients.

use reverie_core::{Error, Result};
use ring::hmac;
use subtle::ConstantTimeEq;

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 32;

/// The token that every client must show. The time of a comparison reveals only the token's length.
#[derive(Clone)]
pub(crate) struct Token(Vec<u8>);

/// The data that the proofs of one connection cover: a proof that was overheard is useless on another connection.
pub(crate) struct Exchange<'a> {
    pub(crate) session: &'a [u8; 16],
    /// Each end's own nonce, for this connection only.
    pub(crate) client_nonce: &'a [u8; NONCE_BYTES],
    pub(crate) server_nonce: &'a [u8; NONCE_BYTES],
}

/// The end that proves that it has the token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Prover {
    Client,
    Server,
}

impl Token {
    /// The token with this text.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// True for the same text.
    pub(crate) fn admits(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }

    /// The proof (HMAC-SHA-256) that this end has the token, without revealing it.
    pub(crate) fn proof(&self, prover: Prover, exchange: &Exchange<'_>) -> Vec<u8> {
        hmac::sign(&self.key(), &exchange.text(prover)).as_ref().to_vec()
    }

    /// True if the other end's proof is valid. In constant time.
    pub(crate) fn is_proven(&self, prover: Prover, exchange: &Exchange<'_>, proof: &[u8]) -> bool {
        hmac::verify(&self.key(), &exchange.text(prover), proof).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl Exchange<'_> {
    fn text(&self, prover: Prover) -> Vec<u8> {
        let label: &[u8] = match prover {
            Prover::Client => b"reverie.v1 client",
            Prover::Server => b"reverie.v1 server",
        };
        [label, self.session, self.client_nonce, self.server_nonce].concat()
    }
}

/// A number that is used once.
pub(crate) fn nonce() -> Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    match getrandom::fill(&mut nonce) {
        Ok(()) => Ok(nonce),
        Err(error) => Err(Error::Unavailable(format!("the system returned no random bytes: {error}"))),
    }
}

/// Refuses a token that no client could send: it must fit in an HTTP header.
pub(crate) fn check(token: &str) -> Result<()> {
    let wrong = match token {
        "" => "the token must not be empty",
        _ if token.ends_with(['\n', '\r']) => "the token ends in a line break, as read from a file: .strip() it",
        _ if !token.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
            "a token may have printable ASCII characters only; `openssl rand -hex 32` makes one"
        }
        _ => return Ok(()),
    };
    Err(Error::InvalidArgument(wrong.to_owned()))
}

/// The reason why a client is refused.
pub(crate) fn wrong(shown: bool) -> String {
    match shown {
        true => "the token is not the server's; pass the one that the server was started with as token=".to_owned(),
        false => "the server asks for a token; pass the one that it was started with as token=".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_token_its_end_and_its_connection_alone() {
        let (token, session, [one, other]) = (Token::new("secret"), [1; 16], [[2; NONCE_BYTES], [3; NONCE_BYTES]]);
        let exchange = Exchange { session: &session, client_nonce: &one, server_nonce: &other };
        let proof = token.proof(Prover::Client, &exchange);
        assert!(token.is_proven(Prover::Client, &exchange, &proof));
        assert!(!token.is_proven(Prover::Server, &exchange, &proof));
        assert!(!Token::new("secrets").is_proven(Prover::Client, &exchange, &proof));
        for elsewhere in [
            Exchange { session: &[4; 16], ..exchange },
            Exchange { client_nonce: &other, ..exchange },
            Exchange { server_nonce: &one, ..exchange },
        ] {
            assert!(!token.is_proven(Prover::Client, &elsewhere, &proof));
        }
        assert!(!token.is_proven(Prover::Client, &exchange, &proof[1..]) && !proof.is_empty());
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}
