//! Clients of the server's host: which process they trust under the server's name, and what they report if shared
//! memory runs short.

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::replay::Replay as _;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables};
use reverie_core::{Error, Result};
use reverie_net::client::Remote;
use reverie_net::endpoint::{EndpointOptions, Transport};
use reverie_net::listen::Server;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::server_message::Body as ServerBody;
use reverie_net::proto::{self, Challenge, ClientMessage, Proof, ServerMessage};
use reverie_net::server;
use reverie_net::transport::client::{Inlet, Outlet};
use ring::hmac;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const TOKEN: &str = "a secret of this test";

fn serve(limits: server::Limits) -> Server {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let table = TableOptions {
        name: "replay".to_owned(),
        sampler: SelectorOptions::Uniform,
        remover: SelectorOptions::Fifo,
        max_size: 500,
        limiter: Limiter::min_size(1).unwrap(),
        max_times_sampled: 0,
        signature: None,
        max_bytes: None,
        compression: Compression::None,
        shard: 0,
        sampler_seed: 1,
        constructed: None,
        remover_seed: 2,
        extensions: Vec::new(),
    };
    let options = server::ServerOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        token: Some(TOKEN.to_owned()),
        tls: None,
        insecure: false,
        local: true,
        grace: Duration::from_secs(1),
        limits,
        checkpoint: None,
        spans: false,
    };
    Server::start(Arc::new(Tables::new(vec![table], None, &clock, 7).unwrap()), options).unwrap()
}

fn client(server: &Server, transport: Transport) -> Arc<Remote> {
    Remote::new(EndpointOptions {
        address: server.address().to_string(),
        transport,
        token: Some(TOKEN.to_owned()),
        tls: None,
        patience: Duration::from_secs(100),
        grace: Duration::from_millis(50),
        max_kept_bytes: 0,
    })
    .unwrap()
}

fn proof(token: &str, label: &str, session: &[u8], client_nonce: &[u8], server_nonce: &[u8]) -> Vec<u8> {
    let text = [label.as_bytes(), session, client_nonce, server_nonce].concat();
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()), &text).as_ref().to_vec()
}

async fn send(outlet: &mut impl Outlet, body: ClientBody) -> Result<()> {
    outlet.send(ClientMessage { body: Some(body), ..Default::default() })?;
    while outlet.is_pressed() {
        outlet.ready(0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_token_is_asked_for_on_the_socket_too_and_each_end_proves_that_it_has_it() -> Result<()> {
    let server = serve(server::Limits::default());
    let (session, mine) = (vec![7; 16], vec![9; 32]);
    for (token, label, admitted) in [
        (TOKEN, "reverie.v1 client", true),
        ("wrong", "reverie.v1 client", false),
        ("", "reverie.v1 client", false),
        (TOKEN, "reverie.v1 server", false),
    ] {
        let (mut outlet, mut inlet) =
            reverie_net::local::connect(server.local_socket().unwrap(), &Arc::default()).await?;
        let (protocol, session, nonce) = (proto::PROTOCOL, session.clone(), mine.clone());
        let hello = proto::ClientHello { protocol, session: session.clone(), nonce, ..Default::default() };
        send(&mut outlet, ClientBody::Hello(hello)).await?;
        let reply = inlet.receive().await?.unwrap().message.body;
        let Some(ServerBody::Challenge(Challenge { nonce, proof: theirs })) = reply else {
            panic!("no challenge: {reply:?}")
        };
        assert_eq!(theirs, proof(TOKEN, "reverie.v1 server", &session, &mine, &nonce));
        send(&mut outlet, ClientBody::Proof(Proof { proof: proof(token, label, &session, &mine, &nonce) })).await?;
        let answer = inlet.receive().await?.unwrap().message.body;
        assert_eq!(matches!(answer, Some(ServerBody::Hello(_))), admitted, "{answer:?}");
        assert_eq!(matches!(answer, Some(ServerBody::Goodbye(_))), !admitted);
    }
    Ok(())
}

/// Listens under the server's name, as any process that may write its directory can. The messages of clients are the
/// thread's result.
fn listen_instead(server: &Server, answer: impl Fn(Vec<u8>) -> ServerBody + Send + 'static) -> JoinHandle<Vec<u8>> {
    let path = server.local_socket().unwrap();
    fs::rename(path, PathBuf::from(path).with_extension("away")).unwrap();
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut received = vec![0; 4];
        // Servers that start look which sockets live, and send nothing.
        let mut stream = loop {
            let (mut stream, _) = listener.accept().unwrap();
            if stream.read_exact(&mut received).is_ok() {
                break stream;
            }
        };
        let mut hello = vec![0; u32::from_le_bytes(received[..4].try_into().unwrap()) as usize];
        stream.read_exact(&mut hello).unwrap();
        received.extend(&hello);
        let message = prost::Message::encode_to_vec(&ServerMessage { body: Some(answer(hello)) });
        stream.write_all(&[&(message.len() as u32).to_le_bytes()[..], &message].concat()).unwrap();
        // The rest of the client's messages, until it ends the connection.
        let _ = stream.read_to_end(&mut received);
        received
    })
}

#[tokio::test]
async fn a_process_that_listens_under_the_servers_name_is_not_given_the_token_nor_anything_else() -> Result<()> {
    let greets = |_| ServerBody::Hello(proto::ServerHello { protocol: proto::PROTOCOL, ..Default::default() });
    let guesses = |_| ServerBody::Challenge(Challenge { nonce: vec![1; 32], proof: vec![2; 32] });
    let breaks_rules = |_| ServerBody::Challenge(Challenge::default());
    for answer in [greets as fn(Vec<u8>) -> ServerBody, guesses, breaks_rules] {
        let server = serve(server::Limits::default());
        let impostor = listen_instead(&server, answer);
        let client = client(&server, Transport::Auto);
        client.describe().await?;
        let (link, received) = (client.link(), impostor.join().unwrap());
        assert_eq!(link.transport, Some("grpc".into()));
        assert!(link.reason.contains("did not prove that it knows the token"), "{}", link.reason);
        let received_token = received.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes());
        assert!(!received_token && received.len() < 200, "{} bytes", received.len());
    }
    Ok(())
}

/// Runs `does` as the user `nobody`, which only root can; `None` if this process is not root's.
fn run_as_nobody<T: Send + 'static>(does: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let nobody = rustix::process::Uid::from_raw(65534);
    let thread = std::thread::spawn(move || {
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok()?;
        Some(does())
    });
    thread.join().unwrap()
}

#[tokio::test]
async fn a_client_of_root_does_not_trust_the_socket_of_another_user() {
    let folder = std::env::temp_dir().join(format!("reverie-test-{}-nobody", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.join("8000-1.sock");
    let bound = path.clone();
    let listener = run_as_nobody(move || UnixListener::bind(bound).unwrap());
    if listener.is_some() {
        let refused = reverie_net::local::connect(path.to_str().unwrap(), &Arc::default()).await.map(drop).unwrap_err();
        assert!(matches!(&refused, Error::Unavailable(why) if why.contains("belongs to user 65534")), "{refused}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_server_of_root_does_not_admit_other_users_even_where_they_can_open_its_socket() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // A directory of its own, which the test opens to all.
    let server = serve(server::Limits::default());
    let real = PathBuf::from(server.local_socket().unwrap());
    let folder = std::env::temp_dir().join(format!("reverie-test-{}-open", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::hard_link(&real, folder.join("open.sock")).unwrap();
    fs::set_permissions(folder.join("open.sock"), fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.join("open.sock");
    let reply = run_as_nobody(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).map(|_| reply)
    });
    // Ended without a message, however the system reports it.
    assert!(reply.unwrap().unwrap_or_default().is_empty());
    fs::remove_dir_all(&folder).unwrap();
}

/// Inserts a row of 80 kB.
async fn insert(client: &Arc<Remote>, writer: &mut RowWriter) -> Result<()> {
    let column = ColumnSpec { path: String::new(), dtype: DType::Float32, shape: vec![20_000] };
    let schema = Arc::new(Schema { columns: vec![column], structure: Structure::Leaf });
    let items = writer.append(&schema, &[ColumnCells { itemsize: 4, bytes: &[0; 80_000] }], 1)?;
    let items = items.into_iter().map(|item| (item, Priority::Value(1.0)));
    client.insert("replay", Inserts::from_iter(items))?.await.map(drop)
}

fn writer(client: &Arc<Remote>) -> RowWriter {
    let sink: Arc<dyn Sink> = client.clone();
    RowWriter::new(sink, Compression::None, false)
}

#[tokio::test]
async fn a_writer_without_room_in_shared_memory_goes_on_and_its_link_reports_it_until_there_is_some() -> Result<()> {
    // Room for one insert slot.
    let server = serve(server::Limits { total_batch_bytes: 6 << 20, ..Default::default() });
    let (first, second) = (client(&server, Transport::SharedMemory), client(&server, Transport::SharedMemory));
    for client in [&first, &second] {
        client.describe().await?;
    }
    let (mut first_rows, mut second_rows) = (writer(&first), writer(&second));
    for _ in 0..2 {
        insert(&first, &mut first_rows).await?;
        first.info().await?;
    }
    insert(&second, &mut second_rows).await?;
    second.info().await?;
    assert_eq!(first.link().reason, "the server is on this host");
    let reason = second.link().reason;
    assert_eq!(second.link().transport, Some("shared-memory".into()));
    assert!(reason.contains("no shared memory left for inserts, which go through the socket"), "{reason}");
    first_rows.close();
    first.close();
    drop((first_rows, first));
    while second.link().reason != "the server is on this host" {
        insert(&second, &mut second_rows).await?;
    }
    Ok(())
}
