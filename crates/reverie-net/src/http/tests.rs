//! Connections to the port, without a network.

use super::events::{Events, MOST_STREAMS};
use super::routes::{App, router};
use super::server::{PATIENCE, http};
use super::watched_server::{WatchedServer, few_tables};
use super::write_timeout_stream::WriteTimeoutStream;
use reverie_core::table::Tables;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

fn app(tables: usize) -> (Arc<Tables>, Arc<App>) {
    let tables = few_tables(tables);
    let app = App::new(Arc::new(WatchedServer::new(Arc::clone(&tables), None)), None);
    (tables, app)
}

fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The whole response to a request.
async fn get(app: &Arc<App>, path: &str) -> String {
    let (near, mut far) = duplex(1 << 16);
    let router = router(app);
    tokio::spawn(async move { http(near, router, &Arc::default()).await });
    far.write_all(&request(path)).await.unwrap();
    let mut response = String::new();
    far.read_to_string(&mut response).await.unwrap();
    response
}

/// A reader of events that has read nothing, and its connection. An event is larger than what hyper buffers.
async fn reader(app: &Arc<App>) -> (DuplexStream, JoinHandle<()>) {
    tokio::spawn(Events::run(Arc::downgrade(&app.events)));
    let (near, mut far) = duplex(1024);
    let router = router(app);
    let served =
        tokio::spawn(async move { http(WriteTimeoutStream::new(near, PATIENCE), router, &Arc::default()).await });
    far.write_all(&request("/api/events")).await.unwrap();
    (far, served)
}

#[tokio::test]
async fn a_server_that_is_not_ready_answers_503_with_the_reason_and_is_alive() {
    let (tables, app) = app(1);
    assert!(get(&app, "/readyz").await.starts_with("HTTP/1.1 200 "));
    tables.close();
    let answer = get(&app, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("'t0'") && answer.contains("closed"), "{answer}");
    assert!(get(&app, "/livez").await.starts_with("HTTP/1.1 200 "));
    let metrics = get(&app, "/metrics").await;
    assert!(metrics.contains("\nreverie_ready{} 0\n"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_events_misses_those_before_the_newest() {
    let (_tables, app) = app(200);
    let (mut far, _served) = reader(&app).await;
    sleep(PATIENCE - Duration::from_secs(1)).await;
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    let marked = "\"uptime_seconds\":";
    while text.matches(marked).count() < 2 || !text.ends_with("\n\n\r\n") {
        let n = timeout(PATIENCE, far.read(&mut buffer)).await.unwrap().unwrap();
        assert!(n > 0, "the stream ended");
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    let after_mark = |part: &str| part.split([',', '}']).next().unwrap().parse::<f64>().unwrap();
    let uptimes: Vec<f64> = text.split(marked).skip(1).map(after_mark).collect();
    assert!(uptimes[0] < 1.0 && uptimes[1] > 8.0, "{uptimes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_events_that_reads_nothing_is_disconnected_and_its_place_is_free() {
    let (_tables, app) = app(200);
    let started = Instant::now();
    let (_far, served) = reader(&app).await;
    timeout(2 * PATIENCE, served).await.unwrap().unwrap();
    assert!(started.elapsed() >= PATIENCE, "{:?}", started.elapsed());
    let streams: Vec<_> = (0..MOST_STREAMS).map(|_| app.events.stream()).collect();
    assert!(streams.iter().all(Option::is_some));
    assert!(app.events.stream().is_none());
}
