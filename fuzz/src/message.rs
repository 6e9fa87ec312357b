//! Whole messages, both ways: what decodes is, encoded again, the same message; what the core takes of it can be counted.

use prost::Message;
use reverie_net::convert::{batch, error, table};
use reverie_net::head;
use reverie_net::proto::{ClientMessage, ServerMessage, reply, request, server_message};

/// Panics if it does not hold for this input. True if the input is a message of a client or of a server.
pub fn check(input: &[u8]) -> bool {
    let mut decoded = false;
    if let Ok(message) = head::decode::<ClientMessage>(input) {
        let again = head::decode::<ClientMessage>(&message.encode_to_vec()[..]).expect("it was just encoded");
        assert_eq!(again.encode_to_vec(), message.encode_to_vec());
        decoded = true;
        if let Some(reverie_net::proto::client_message::Body::Request(request)) = message.body {
            match request.body {
                Some(request::Body::Sample(sample)) => drop(batch::decode_read_options(sample.reading)),
                Some(request::Body::Configure(change)) => drop(table::decode_change(change)),
                _ => {}
            }
        }
    }
    if let Ok(message) = ServerMessage::decode(input) {
        let again = ServerMessage::decode(&message.encode_to_vec()[..]).expect("it was just encoded");
        assert_eq!(again.encode_to_vec(), message.encode_to_vec());
        let Some(server_message::Body::Reply(reply)) = message.body else { return true };
        match reply.body {
            Some(reply::Body::Error(detail)) => drop(error::encode(&error::decode(detail))),
            Some(reply::Body::Info(info)) => {
                for info in info.tables {
                    if let Ok(info) = table::decode_info(info) {
                        assert!(info.options.validate().is_ok());
                    }
                }
            }
            _ => {}
        }
        decoded = true;
    }
    decoded
}
