//! Whether a client may come in.

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

/// Why a client may not come in.
pub(crate) fn wrong(shown: bool) -> String {
    match shown {
        true => "the token is not the server's; pass the one that the server was started with as token=".to_owned(),
        false => "the server asks for a token; pass the one that it was started with as token=".to_owned(),
    }
}
