//! From a URL to a server's address, without a word of its password.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

/// Where a server is, and how to log in there.
#[derive(Clone)]
pub(crate) struct Address {
    client: Client,
    name: String,
}

/// What TLS connections need beside the URL.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// The only authorities that are trusted, in PEM; those of the system when missing.
    #[cfg(feature = "tls")]
    pub(crate) root: Option<Vec<u8>>,
    /// Our own certificate and its key, in PEM, for servers that ask for one.
    #[cfg(feature = "tls")]
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Address {
    /// Reads a URL. The error says what is wrong without repeating the URL.
    pub(crate) fn parse(url: &str, tls: &Tls) -> Result<Self, String> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        let is_tls = matches!(scheme, "rediss" | "valkeys");
        if !is_tls
            && !matches!(
                scheme,
                "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix"
            )
        {
            return Err(
                "it must begin with redis://, rediss://, valkey://, valkeys:// or unix://".into(),
            );
        }
        if is_tls && cfg!(not(feature = "tls")) {
            return Err(format!(
                "{scheme}:// needs redlatch's feature \"tls\", which is off"
            ));
        }
        if is_tls && url.contains('#') {
            return Err(
                "certificates are always verified: give a private authority with root_certificate \
                 instead of #insecure"
                    .into(),
            );
        }
        let info = url.into_connection_info().map_err(|error| {
            // The library's own words name no part of the URL.
            error.detail().is_none().then(|| error.to_string())
        });
        let info = info.map_err(|words| words.unwrap_or("a part of it makes no sense".into()))?;
        let name = name_of(info.addr(), info.redis_settings().db());
        let info = with_settings(info);
        let client = match is_tls {
            true => tls_client(info, tls)?,
            false => Client::open(info).map_err(|error| error.to_string())?,
        };
        Ok(Self { client, name })
    }

    /// How people call this server: host, port, and the database unless it is 0.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether both are the same server, whatever the database and the user.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        let place = |address: &Self| name_of(address.client.get_connection_info().addr(), 0);
        place(self) == place(other)
    }

    /// Whether what is sent there is encrypted; nothing when it stays on this machine.
    pub(super) fn is_encrypted(&self) -> Option<bool> {
        let is_loopback = |host: &str| {
            let address = host.parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        match self.client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { .. } => Some(true),
            ConnectionAddr::Tcp(host, _) if !is_loopback(host) => Some(false),
            _ => None,
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The same for a server that is too old for RESP3.
    pub(super) fn resp2_client(&self) -> Client {
        let info = self.client.get_connection_info().clone();
        let settings = info.redis_settings().clone();
        let info = info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP2));
        Client::open(info).unwrap_or_else(|_| self.client.clone())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.name)
    }
}

fn name_of(addr: &ConnectionAddr, db: i64) -> String {
    let place = match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            }
        }
        ConnectionAddr::Unix(path) => format!("unix:{}", path.display()),
        other => other.to_string(),
    };
    match db {
        0 => place,
        db => format!("{place}/{db}"),
    }
}

fn with_settings(info: ConnectionInfo) -> ConnectionInfo {
    // Off by default in the client library; a lock's requests are small and must not wait.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5));
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("redlatch", env!("CARGO_PKG_VERSION"));
    info.set_tcp_settings(tcp).set_redis_settings(settings)
}

#[cfg(feature = "tls")]
fn tls_client(info: ConnectionInfo, tls: &Tls) -> Result<Client, String> {
    use redis::{ClientTlsConfig, TlsCertificates};

    // Where the program has not chosen a provider of its own, and the tree
    // holds several, rustls would panic.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client_tls = tls.identity.clone();
    let certificates = TlsCertificates {
        client_tls: client_tls.map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: tls.root.clone(),
    };
    Client::build_with_tls(info, certificates).map_err(|error| error.to_string())
}

#[cfg(not(feature = "tls"))]
fn tls_client(_: ConnectionInfo, _: &Tls) -> Result<Client, String> {
    Err("TLS needs redlatch's feature \"tls\", which is off".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, String> {
        Address::parse(url, &Tls::default())
    }

    #[test]
    fn names_hold_no_password() {
        let name = |url| parse(url).unwrap().name().to_owned();
        assert_eq!(name("redis://user:secret@db.example"), "db.example:6379");
        assert_eq!(name("redis://:secret@10.0.0.1:7000/3"), "10.0.0.1:7000/3");
        assert_eq!(name("redis://[::1]:7000"), "[::1]:7000");
        assert_eq!(
            name("unix:///run/redis.sock?pass=secret"),
            "unix:/run/redis.sock"
        );
        assert_eq!(name("valkey://a"), "a:6379");
        let debug = format!("{:?}", parse("redis://user:secret@a").unwrap());
        assert!(!debug.contains("secret"), "{debug}");
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for url in [
            "",
            "localhost:6379",
            "http://user:secret@a",
            "redis://",
            "redis://user:secret@",
            "redis://:secret@a:notaport",
            "redis://:secret@a/notanumber",
            "redis://:secret@a/?protocol=secret",
            "redis://:secret@0.0.0.0",
            "unix://",
        ] {
            let error = parse(url).unwrap_err();
            assert!(!error.contains("secret"), "{url}: {error}");
            assert!(!error.is_empty());
        }
    }

    #[test]
    fn the_same_server_is_recognised_in_another_database() {
        let one = parse("redis://a:secret@host:1/0").unwrap();
        let other = parse("redis://host:1/5").unwrap();
        let third = parse("redis://host:2").unwrap();
        assert!(one.is_same_server(&other));
        assert!(!one.is_same_server(&third));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn verification_can_not_be_switched_off_in_the_url() {
        let error = parse("rediss://a#insecure").unwrap_err();
        assert!(error.contains("always verified"), "{error}");
        assert!(parse("rediss://a").is_ok());
    }
}
