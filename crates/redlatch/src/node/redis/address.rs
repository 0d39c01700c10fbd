//! From a URL to a server's address, without a word of its password.

use std::{fmt, io};

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use tokio::net::TcpStream;

use super::line::Stream;

/// Where a server is, and how to log in there.
#[derive(Clone)]
pub(crate) struct Address {
    info: ConnectionInfo,
    encryption: Option<Encryption>,
    name: String,
}

/// How what is sent there is encrypted.
#[cfg(feature = "tls")]
type Encryption = tokio_rustls::TlsConnector;
#[cfg(not(feature = "tls"))]
type Encryption = std::convert::Infallible;

/// What TLS connections need beside the URL.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// The only authorities that are trusted, in PEM; those of the system when missing.
    #[cfg(feature = "tls")]
    pub(crate) root: Option<Vec<u8>>,
    /// Our own certificate and its key, in PEM, for servers that ask for one.
    #[cfg(feature = "tls")]
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// What came of these: the same for all nodes, and made when it is first needed.
    #[cfg(feature = "tls")]
    encryption: std::sync::OnceLock<Encryption>,
}

impl Tls {
    #[cfg(feature = "tls")]
    fn encryption(&self) -> Result<Encryption, String> {
        if let Some(made) = self.encryption.get() {
            return Ok(made.clone());
        }
        let made = encryption(self)?;
        Ok(self.encryption.get_or_init(|| made).clone())
    }

    #[cfg(not(feature = "tls"))]
    fn encryption(&self) -> Result<Encryption, String> {
        Err("TLS needs redlatch's feature \"tls\", which is off".into())
    }
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
        // Encryption is our own business, here and below.
        let clear = match is_tls {
            true => url.replacen("s://", "://", 1),
            false => url.to_owned(),
        };
        let info = clear.into_connection_info().map_err(|error| {
            // The library's own words name no part of the URL.
            error.detail().is_none().then(|| error.to_string())
        });
        let info = info.map_err(|words| words.unwrap_or("a part of it makes no sense".into()))?;
        let name = name_of(info.addr(), info.redis_settings().db());
        let encryption = is_tls.then(|| tls.encryption()).transpose()?;
        Ok(Self {
            info,
            encryption,
            name,
        })
    }

    /// How people call this server: host, port, and the database unless it is 0.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether both are the same server, whatever the database and the user.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        let place = |address: &Self| name_of(address.info.addr(), 0);
        place(self) == place(other)
    }

    /// Whether what is sent there is encrypted; nothing when it stays on this machine.
    pub(super) fn is_encrypted(&self) -> Option<bool> {
        let is_loopback = |host: &str| {
            let address = host.parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        match self.info.addr() {
            _ if self.encryption.is_some() => Some(true),
            ConnectionAddr::Tcp(host, _) if !is_loopback(host) => Some(false),
            _ => None,
        }
    }

    pub(super) fn place(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    pub(super) fn login(&self) -> &RedisConnectionInfo {
        self.info.redis_settings()
    }

    /// The stream through which to speak with the server: encrypted, if it shall be.
    #[cfg(feature = "tls")]
    pub(super) async fn encrypt(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let Some(connector) = &self.encryption else {
            return Ok(Stream::Tcp(stream));
        };
        let host = rustls::pki_types::ServerName::try_from(host.to_owned());
        let host = host.map_err(io::Error::other)?;
        let stream = connector.connect(host, stream).await?;
        Ok(Stream::Other(Box::new(stream)))
    }

    #[cfg(not(feature = "tls"))]
    pub(super) async fn encrypt(&self, _: &str, stream: TcpStream) -> io::Result<Stream> {
        Ok(Stream::Tcp(stream))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.name)
    }
}

fn name_of(addr: &ConnectionAddr, db: i64) -> String {
    let place = match addr {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
        ConnectionAddr::Tcp(host, port) => format!("{host}:{port}"),
        ConnectionAddr::Unix(path) => format!("unix:{}", path.display()),
        other => other.to_string(),
    };
    match db {
        0 => place,
        db => format!("{place}/{db}"),
    }
}

#[cfg(feature = "tls")]
fn encryption(tls: &Tls) -> Result<Encryption, String> {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, RootCertStore};

    let certificates = |pem: &[u8]| {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let all = all.map_err(|error| format!("a certificate makes no sense: {error}"))?;
        match all.is_empty() {
            true => Err("there is no certificate in what was given as one".to_owned()),
            false => Ok(all),
        }
    };
    let mut roots = RootCertStore::empty();
    match &tls.root {
        Some(pem) => {
            for certificate in certificates(pem)? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("a root certificate makes no sense: {error}"))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            // Some of a system's certificates may be odd; the others do.
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                let why = found.errors.first().map(ToString::to_string);
                let why = why.map_or_else(String::new, |why| format!(" ({why})"));
                return Err(format!(
                    "this system trusts no authority{why}: install its certificates, or give a \
                     root_certificate"
                ));
            }
        }
    }
    // The program, or another library in it, may have chosen another provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match &tls.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| format!("the key of our certificate makes no sense: {error}"))?;
            config
                .with_client_auth_cert(certificates(certificate)?, key)
                .map_err(|error| format!("our certificate can't be used: {error}"))?
        }
    };
    Ok(Arc::new(config).into())
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
