//! From settings to a client.

use std::path::Path;

use redlatch::{Builder, Redlatch};

use crate::exit_code::Failure;
use crate::output::Output;
use crate::settings::{Settings, Sourced};

/// Connects as the settings say; `program` is what holders are said to run.
pub(crate) async fn connect(
    settings: &Settings,
    program: Option<String>,
    output: &Output,
) -> Result<Redlatch, Failure> {
    if settings.is_local_by_default() {
        // Cron drops the environment, and nobody must lock locally by mistake.
        output.notice(
            "no node is configured: this lock holds on this machine only (give --node or set \
             REDLATCH_NODES; --node sqlite:PATH if it is meant so)",
        );
    }
    let builder = builder(settings)?.describe(user(), program);
    Ok(builder.build().await?)
}

/// A builder with all that the settings say.
pub(crate) fn builder(settings: &Settings) -> Result<Builder, Failure> {
    let urls = settings.nodes.value.iter().map(|node| node.secret());
    let mut builder = Redlatch::builder()
        .nodes(urls)
        .prefix(&settings.prefix.value)
        .ttl(settings.ttl.value)
        .node_timeout(settings.node_timeout.value)
        .connect_timeout(settings.connect_timeout.value)
        .deployment(&settings.deployment.value)
        .max_ttl(settings.max_ttl.value);
    if let Some(restart_guard) = settings.restart_guard.value {
        builder = builder.restart_guard(restart_guard);
    }
    if let Some(path) = &settings.root_certificate.value {
        builder = builder.root_certificate(read(path, &settings.root_certificate)?);
    }
    let Settings {
        client_certificate,
        client_key,
        ..
    } = settings;
    match (&client_certificate.value, &client_key.value) {
        (Some(certificate), Some(key)) => {
            let certificate = read(certificate, client_certificate)?;
            builder = builder.client_certificate(certificate, read(key, client_key)?);
        }
        (None, None) => {}
        _ => {
            return Err(Failure::usage(
                "client_certificate and client_key belong together: set both or none",
            ));
        }
    }
    Ok(builder)
}

fn read<T>(path: &Path, setting: &Sourced<T>) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let (path, origin) = (path.display(), &setting.origin);
        Failure::usage(format!("can't read {path}, set in {origin}: {error}"))
    })
}

/// The name of the user this process runs as, or its number.
fn user() -> Option<String> {
    let id = nix::unistd::getuid();
    match nix::unistd::User::from_uid(id) {
        Ok(Some(user)) => Some(user.name),
        _ => Some(id.to_string()),
    }
}
