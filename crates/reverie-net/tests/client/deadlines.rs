//! What is left of a caller's timeout after an outage.

use super::fake::Fake;
use super::support::{SECOND, assert_batch, draws, send_batch};

#[tokio::test(start_paused = true)]
async fn a_request_that_is_sent_again_carries_what_is_left_of_its_timeout() {
    let fake = Fake::start();
    let client = fake.client(60 * SECOND);
    let sample = client.draw(draws(4), Some(10 * SECOND));
    let mut talk = fake.session().await;
    let first = talk.request().await;
    let given = first.timeout.expect("the caller gave one");
    assert!((9.0..=10.0).contains(&given), "{given}");
    tokio::time::sleep(4 * SECOND).await;
    drop(talk);
    let mut talk = fake.session().await;
    let again = talk.request().await;
    assert_eq!(again.id, first.id);
    // Time passes only where the test or the client sleeps: 4 s here, and far less than 1 s until it dials again.
    let left = again.timeout.expect("it has one still");
    assert!((given - 5.0..=given - 4.0).contains(&left), "{left} of {given}");
    send_batch(&talk, again.id, 4, 1000, 0, true).await;
    assert_batch(&sample.await.unwrap(), 4);
}
