//! `TlsServer`, seen by `redis-cli`.

use std::process::Command;

use redlatch_testkit::TlsServer;

use crate::support::Client;

#[test]
fn clients_that_trust_the_authority_are_served() {
    let server = TlsServer::start();
    let ca = server.ca_path();
    assert_eq!(std::fs::read_to_string(&ca).unwrap(), server.ca_pem());
    for url in [
        server.url(),
        format!("rediss://localhost:{}", server.port()),
    ] {
        let answer = redis_cli(&["-u", &url, "--cacert", ca.to_str().unwrap(), "PING"]);
        assert_eq!(answer, "PONG", "{url}");
    }
    server.restart();
    assert_eq!(server.command(&["PING"]).as_text(), "PONG");
}

#[test]
fn clients_that_do_not_trust_it_or_speak_plainly_are_not() {
    let server = TlsServer::start();
    let distrust = redis_cli(&["-u", &server.url(), "PING"]);
    assert!(distrust.contains("certificate verify failed"), "{distrust}");
    assert!(Client::connect(server.address()).ask("PING").is_err());
}

#[test]
fn a_demanded_client_certificate_opens_the_door() {
    let server = TlsServer::demanding_client_certificates();
    let ca = server.ca_path();
    let trust = ["-u", &server.url(), "--cacert", ca.to_str().unwrap()];
    let anonymous = redis_cli(&[&trust[..], &["PING"]].concat());
    assert_ne!(anonymous, "PONG");

    let (certificate, key) = (server.client_certificate_path(), server.client_key_path());
    let show = [
        "--cert",
        certificate.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
    ];
    let known = redis_cli(&[&trust[..], &show, &["PING"]].concat());
    assert_eq!(known, "PONG");
}

/// What it prints, on either stream.
fn redis_cli(args: &[&str]) -> String {
    let output = Command::new("redis-cli").args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap().trim().to_owned()
}
