use crate::support::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use reverie_core::Error;
use reverie_net::listen::Server;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::replay_client::ReplayClient;
use reverie_net::proto::{self, DescribeRequest};
use reverie_net::server::{ServerOptions, ServerTls};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

fn with_token() -> ServerOptions {
    ServerOptions { token: Some("secret".to_owned()), ..options() }
}

fn describe(authorization: Option<&str>) -> Request<DescribeRequest> {
    let mut request = Request::new(DescribeRequest { protocol: proto::PROTOCOL });
    if let Some(value) = authorization {
        request.metadata_mut().insert("authorization", value.parse().unwrap());
    }
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_call_but_health_asks_for_the_token() {
    let host = Host::with(vec![table("a")], with_token());
    let mut client = host.client().await;
    for wrong in
        [None, Some("Bearer wrong"), Some("Bearer secre"), Some("Bearer secrets"), Some("secret"), Some("Bearer ")]
    {
        let status = client.describe(describe(wrong)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{wrong:?}");
        assert!(matches!(detail(&status), Kind::Unauthenticated(reason) if reason.contains("token=")));
    }
    assert!(client.describe(describe(Some("Bearer secret"))).await.is_ok());
    let status = client.call(hello([1; 16])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let status = client.session(tokio_stream::pending()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    let channel = Endpoint::from_shared(format!("http://{}", host.server.address())).unwrap().connect().await.unwrap();
    let status = ServerReflectionClient::new(channel.clone()).server_reflection_info(tokio_stream::pending()).await;
    assert_eq!(status.unwrap_err().code(), Code::Unauthenticated);
    let health = HealthClient::new(channel).check(HealthCheckRequest { service: String::new() }).await;
    assert_eq!(health.unwrap().into_inner().status, 1);
}

#[test]
fn a_server_off_loopback_needs_a_token_and_tls_or_the_option_insecure() {
    let anywhere = || ServerOptions { address: "0.0.0.0:0".parse().unwrap(), ..options() };
    let authority = Authority::new();
    let tls = || Some(ServerTls { identity: authority.issue("localhost", false), client_ca: None });
    let start = |options: ServerOptions| {
        let clock: std::sync::Arc<dyn reverie_core::clock::Clock> =
            std::sync::Arc::new(reverie_core::clock::SystemClock::new());
        let tables = reverie_core::table::Tables::new(vec![table("a")], None, &clock, 1).unwrap();
        Server::start(std::sync::Arc::new(tables), options)
    };
    let token = || Some("secret".to_owned());
    for refused in [
        anywhere(),
        ServerOptions { tls: tls(), ..anywhere() },
        ServerOptions { insecure: true, ..anywhere() },
        ServerOptions { insecure: true, tls: tls(), ..anywhere() },
        ServerOptions { token: token(), ..anywhere() },
        ServerOptions { token: Some(String::new()), insecure: true, ..anywhere() },
        ServerOptions { token: Some(String::new()), ..options() },
    ] {
        let Err(Error::InvalidArgument(reason)) = start(refused) else { panic!("it listens") };
        assert!(reason.contains("token") || reason.contains("tls="), "{reason}");
    }
    assert!(start(ServerOptions { token: token(), tls: tls(), ..anywhere() }).is_ok());
    assert!(start(ServerOptions { token: token(), insecure: true, ..anywhere() }).is_ok());
}

#[test]
fn an_option_that_a_server_cannot_start_with_is_named() {
    let host = Host::new(vec![table("a")]);
    let start = |options| Server::start(std::sync::Arc::clone(&host.tables), options).err().unwrap().to_string();
    let taken = ServerOptions { address: host.server.address(), ..options() };
    assert!(start(taken).contains(&host.server.address().to_string()));
    let junk = || b"junk".to_vec();
    let good = Authority::new().issue("localhost", false);
    let tls = |identity, client_ca| ServerOptions { tls: Some(ServerTls { identity, client_ca }), ..options() };
    assert!(start(tls((junk(), good.1.clone()), None)).contains("the server's certificate"));
    assert!(start(tls((good.0.clone(), junk()), None)).contains("the server's key"));
    assert!(start(tls(good, Some(junk()))).contains("the authorities of clients"));
}

/// Signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// Certificate and key.
    pub fn issue(&self, name: &str, client: bool) -> (Vec<u8>, Vec<u8>) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let purpose = if client { ExtendedKeyUsagePurpose::ClientAuth } else { ExtendedKeyUsagePurpose::ServerAuth };
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }
}

async fn over_tls(host: &Host, tls: ClientTlsConfig) -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = Endpoint::from_shared(format!("https://{}", host.server.address()))?.tls_config(tls)?;
    let channel: Channel = endpoint.connect().await?;
    ReplayClient::new(channel).describe(describe(Some("Bearer secret"))).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn over_tls_the_server_shows_its_certificate_and_asks_for_the_clients() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = |client_ca| Some(ServerTls { identity: authority.issue("localhost", false), client_ca });
    let trust = |authority: &Authority| {
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem())).domain_name("localhost")
    };
    let host = Host::with(vec![table("a")], ServerOptions { tls: tls(None), ..with_token() });
    over_tls(&host, trust(&authority)).await.unwrap();
    assert!(over_tls(&host, trust(&other)).await.is_err(), "signed by another authority");
    assert!(over_tls(&host, trust(&authority).domain_name("elsewhere")).await.is_err(), "another name");
    let plain = Endpoint::from_shared(format!("http://{}", host.server.address())).unwrap().connect().await;
    let plain = async { ReplayClient::new(plain?).describe(describe(Some("Bearer secret"))).await.map_err(Into::into) };
    let plain: Result<_, Box<dyn std::error::Error>> = plain.await;
    assert!(plain.is_err(), "in the clear");

    let host = Host::with(vec![table("a")], ServerOptions { tls: tls(Some(authority.pem())), ..with_token() });
    let identity = |(certificate, key): (Vec<u8>, Vec<u8>)| Identity::from_pem(certificate, key);
    over_tls(&host, trust(&authority).identity(identity(authority.issue("client", true)))).await.unwrap();
    assert!(over_tls(&host, trust(&authority)).await.is_err(), "no certificate");
    let foreign = trust(&authority).identity(identity(other.issue("client", true)));
    assert!(over_tls(&host, foreign).await.is_err(), "another client's certificate");
}
