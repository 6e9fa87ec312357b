//! The same host: a Unix socket for messages, shared memory for bytes.
