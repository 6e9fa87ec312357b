//! Whether a client may come in.

use reverie_core::{Error, Result};
use subtle::ConstantTimeEq;

/// What every client must show. How long the comparison takes says nothing of the token but its length.
#[derive(Clone)]
pub(crate) struct Token(Vec<u8>);

impl Token {
    /// The token with this text.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// True for the same text.
    pub(crate) fn admits(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

/// Refuses what no client could show: a header of HTTP has to hold it.
pub(crate) fn check(token: &str) -> Result<()> {
    let wrong = match token {
        "" => "the token must not be empty",
        _ if token.ends_with(['\n', '\r']) => "the token ends in a line break, as read from a file: .strip() it",
        _ if !token.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
            "a token has printable ASCII characters only, as `openssl rand -hex 32` makes it"
        }
        _ => return Ok(()),
    };
    Err(Error::InvalidArgument(wrong.to_owned()))
}

/// Why a client may not come in.
pub(crate) fn wrong(shown: bool) -> String {
    match shown {
        true => "the token is not the server's; pass the one that the server was started with as token=".to_owned(),
        false => "the server asks for a token; pass the one that it was started with as token=".to_owned(),
    }
}
