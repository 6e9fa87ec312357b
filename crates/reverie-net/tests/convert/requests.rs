//! Conditions, neighbours and windows as messages, and back; and messages that no client sends.

use reverie_core::Error;
use reverie_core::sample::{Borders, Windows};
use reverie_core::table::{Comparison, Condition, Field, Neighbours, Query};
use reverie_net::convert::{batch, query};
use reverie_net::proto;

const FIELDS: [Field; 4] = [Field::Priority, Field::TimesSampled, Field::Version, Field::Age];
const COMPARISONS: [Comparison; 6] = [
    Comparison::Less,
    Comparison::AtMost,
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::AtLeast,
    Comparison::More,
];

#[test]
fn every_query_comes_back_as_it_was() {
    let mut conditions = Vec::new();
    for (index, field) in FIELDS.into_iter().enumerate() {
        for comparison in COMPARISONS {
            conditions.push(Condition::new(field, comparison, index as f64 - 0.5).unwrap());
        }
        for (limit, order) in [(None, None), (Some(3), Some((field, true))), (Some(0), Some((field, false)))] {
            let whole = Query { conditions: conditions.clone(), limit, order };
            let again = query::decode_query(query::encode_query("t", &whole)).unwrap();
            assert_eq!(again, ("t".to_owned(), whole));
        }
    }
}

#[test]
fn conditions_that_no_client_sends_are_refused() {
    let good = proto::Condition { field: 1, comparison: 1, value: 0.0 };
    let refused = |condition: proto::Condition| query::decode_conditions(&[condition]).err();
    assert_eq!(refused(good), None);
    for unknown in [0, 9, -1] {
        assert!(matches!(refused(proto::Condition { field: unknown, ..good }), Some(Error::Protocol(_))));
        assert!(matches!(refused(proto::Condition { comparison: unknown, ..good }), Some(Error::Protocol(_))));
    }
    assert!(matches!(refused(proto::Condition { value: f64::NAN, ..good }), Some(Error::InvalidArgument(_))));
    assert!(query::decode_conditions(&[good; 64]).is_ok());
    assert!(query::decode_conditions(&[good; 65]).is_err());
}

#[test]
fn neighbours_and_windows_come_back_as_they_were_or_are_refused() {
    let neighbours = Neighbours::new(7, 0.5).unwrap();
    assert_eq!(query::decode_neighbours(query::encode_neighbours(neighbours)).unwrap(), neighbours);
    for (count, decay) in [(0, 0.5), (1025, 0.5), (1, 0.0), (1, 1.1), (1, f64::NAN)] {
        assert!(query::decode_neighbours(proto::Neighbours { count, decay }).is_err());
    }
    for borders in [Borders::Drop, Borders::Pad, Borders::Cross] {
        let windows = Windows::new(5, 3, borders).unwrap();
        assert_eq!(batch::decode_windows(batch::encode_windows(&windows)).unwrap(), windows);
    }
    for (length, burn_in, borders) in [(0, 1, 0), (1 << 24, 1, 0), (u32::MAX, u32::MAX, 0), (1, 0, 3)] {
        assert!(batch::decode_windows(proto::Windows { length, burn_in, borders }).is_err());
    }
}
