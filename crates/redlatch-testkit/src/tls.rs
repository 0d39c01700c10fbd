//! A server behind TLS, with a certificate authority made for it.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

use crate::RedisServer;
use crate::server::ClientCertificates;

/// A [`RedisServer`] that speaks only TLS on its port, with a certificate for `127.0.0.1` and
/// `localhost`. The kit's own commands go over its unix socket, which needs none.
pub struct TlsServer {
    server: RedisServer,
    ca_pem: String,
    client: Identity,
    /// Read again at every restart.
    certificates: TempDir,
}

/// A certificate and its private key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate, as PEM.
    pub certificate_pem: String,
    /// The private key, as PEM (PKCS #8).
    pub key_pem: String,
}

impl TlsServer {
    /// Starts a server that asks its clients for no certificate.
    #[track_caller]
    pub fn start() -> TlsServer {
        TlsServer::start_with(ClientCertificates::NotAsked)
    }

    /// Starts a server that serves only clients with [`client`](Self::client)'s certificate.
    #[track_caller]
    pub fn demanding_client_certificates() -> TlsServer {
        TlsServer::start_with(ClientCertificates::Demanded)
    }

    #[track_caller]
    fn start_with(clients: ClientCertificates) -> TlsServer {
        let authority = Authority::new();
        let server = authority.issue("redlatch test server", ExtendedKeyUsagePurpose::ServerAuth);
        let client = authority.issue("redlatch test client", ExtendedKeyUsagePurpose::ClientAuth);

        let certificates = TempDir::new().expect("a temporary directory can be made");
        for (name, pem) in [
            ("ca.pem", &authority.pem),
            ("server.pem", &server.certificate_pem),
            ("server.key", &server.key_pem),
            ("client.pem", &client.certificate_pem),
            ("client.key", &client.key_pem),
        ] {
            fs::write(certificates.path().join(name), pem).expect("a certificate can be written");
        }
        TlsServer {
            server: RedisServer::builder()
                .tls(certificates.path(), clients)
                .start(),
            ca_pem: authority.pem,
            client,
            certificates,
        }
    }

    /// The authority's certificate, which clients have to trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The same as a file.
    pub fn ca_path(&self) -> PathBuf {
        self.certificates.path().join("ca.pem")
    }

    /// What a client may show, and has to where certificates are demanded.
    pub fn client(&self) -> &Identity {
        &self.client
    }

    /// The client's certificate as a file.
    pub fn client_certificate_path(&self) -> PathBuf {
        self.certificates.path().join("client.pem")
    }

    /// The client's private key as a file.
    pub fn client_key_path(&self) -> PathBuf {
        self.certificates.path().join("client.key")
    }
}

impl Deref for TlsServer {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.server
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = params("redlatch test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key pair can be made");
        let certificate = params.self_signed(&key).expect("an authority signs itself");
        Authority {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    fn issue(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> Identity {
        let mut params = params(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key pair can be made");
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("the authority signs");
        Identity {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

fn params(common_name: &str) -> CertificateParams {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).expect("these are valid names");
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}
