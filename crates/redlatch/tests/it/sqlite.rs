//! Locks in a file: processes that are killed, and files that can't be used.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use redlatch::node::{NodeError, NodeErrorKind};
use redlatch::{Builder, Error, Redlatch, SqliteNode};
use rusqlite::Connection;

use crate::support::{LONG, NODE_TIMEOUT, eventually, no_quorum};

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn builder(path: &Path) -> Builder {
    Redlatch::builder()
        .nodes([url(path)])
        .node_timeout(NODE_TIMEOUT)
        .connect_timeout(NODE_TIMEOUT)
        .outage_patience(Duration::ZERO)
        .ttl(LONG)
}

async fn client(path: &Path) -> Redlatch {
    builder(path).build().await.unwrap()
}

/// Why a client can't be built over this file.
async fn refusal(path: &Path) -> NodeError {
    no_quorum(builder(path).build().await).failures.remove(0).1
}

struct Place {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    Place {
        _directory: directory,
        path,
    }
}

#[tokio::test]
async fn clients_exclude_each_other_and_fences_grow() {
    let place = place();
    let (one, other) = (client(&place.path).await, client(&place.path).await);
    let guard = one.mutex("job").note("nightly").lock().await.unwrap();
    assert!(other.mutex("job").try_lock().await.unwrap().is_none());
    let held = other.inspect("job").await.unwrap().unwrap();
    assert_eq!(held.owner().note.as_deref(), Some("nightly"));
    let fence = guard.fence();
    guard.renew(2 * LONG).await.unwrap();
    guard.release().await.unwrap();
    let guard = other.mutex("job").try_lock().await.unwrap().unwrap();
    assert!(guard.fence() > fence);
    assert!(one.force_release("job").await.unwrap());
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn urls_name_files_and_nothing_else() {
    let place = place();
    let with_slashes = format!("sqlite://{}", place.path.display());
    let one = Redlatch::connect(&with_slashes).await.unwrap();
    let _guard = one.mutex("job").lock().await.unwrap();
    let other = client(&place.path).await;
    assert!(other.mutex("job").try_lock().await.unwrap().is_none());
    for bad in ["sqlite:", "sqlite://", "sqlite://host/a.db", "sqlite:/tmp/"] {
        let error = Redlatch::connect(bad).await.unwrap_err();
        assert!(error.is_config(), "{bad}: {error}");
    }
}

#[tokio::test]
async fn the_same_file_by_two_names_is_one_node() {
    let place = place();
    client(&place.path).await;
    let link = place.path.with_extension("link");
    std::os::unix::fs::symlink(&place.path, &link).unwrap();
    let nodes = [url(&place.path), url(&link)];
    let error = Redlatch::builder().nodes(nodes).build().await.unwrap_err();
    assert!(error.to_string().contains("same server"), "{error}");
}

#[tokio::test]
async fn a_waiter_is_told_of_a_release_elsewhere() {
    let place = place();
    let (one, other) = (client(&place.path).await, client(&place.path).await);
    let guard = one.mutex("job").lock().await.unwrap();
    let waiter = tokio::spawn(async move { other.mutex("job").lock().await.unwrap() });
    // Where nodes tell, nobody looks again before five seconds are over.
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.release().await.unwrap();
    let soon = tokio::time::timeout(Duration::from_secs(4), waiter).await;
    drop(soon.expect("it was not told").unwrap());
}

#[tokio::test]
async fn a_waiter_for_a_plain_lock_is_told_of_its_end() {
    let place = place();
    let quick = || {
        builder(&place.path)
            .node_timeout(Duration::from_millis(500))
            .build()
    };
    let (one, other) = (quick().await.unwrap(), quick().await.unwrap());
    let short = one.mutex("job").fencing(false).ttl(Duration::from_secs(2));
    let _ = short.renewal(false).lock().await.unwrap().detach();
    // Who asks for a plain lock is not told when it ends, and where nodes tell,
    // nobody looks again before five seconds are over.
    let other = other.mutex("job").fencing(false);
    let soon = tokio::time::timeout(Duration::from_secs(4), other.lock()).await;
    drop(soon.expect("it was not told").unwrap());
}

#[tokio::test]
async fn a_deleted_file_loses_its_locks_and_nothing_else() {
    let place = place();
    let (one, other) = (client(&place.path).await, client(&place.path).await);
    let guard = one.mutex("job").lock().await.unwrap();
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        fs::remove_file(place.path.with_file_name(name)).unwrap();
    }
    let _theirs = other.mutex("job").try_lock().await.unwrap().unwrap();
    assert!(one.mutex("job").try_lock().await.unwrap().is_none());
    assert!(guard.renew(LONG).await.unwrap_err().is_lost());
}

#[tokio::test]
async fn a_damaged_file_is_named_with_what_to_do() {
    let place = place();
    fs::write(
        &place.path,
        "this is no database, and long enough to see that",
    )
    .unwrap();
    let error = refusal(&place.path).await;
    assert_eq!(error.kind(), NodeErrorKind::Storage);
    let text = error.to_string();
    assert!(
        text.contains("damaged") && text.contains("move it away"),
        "{text}"
    );
    let whole = builder(&place.path).build().await.unwrap_err().to_string();
    assert!(whole.contains(&*place.path.to_string_lossy()), "{whole}");

    // One that was well once, found out while it is used.
    fs::remove_file(&place.path).unwrap();
    let latch = client(&place.path).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    guard.release().await.unwrap();
    drop(latch);
    let connection = Connection::open(&place.path).unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(connection);
    let mut bytes = fs::read(&place.path).unwrap();
    let end = bytes.len();
    bytes[4096..end].fill(0x5a);
    fs::write(&place.path, bytes).unwrap();
    let error = match builder(&place.path).build().await {
        Err(error) => no_quorum::<()>(Err(error)),
        Ok(latch) => no_quorum(latch.mutex("job").try_lock().await),
    };
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[tokio::test]
async fn a_path_that_can_not_be_is_named_with_what_to_do() {
    let place = place();
    fs::write(&place.path, "").unwrap();
    let error = refusal(&place.path.join("below/a/file.db")).await;
    assert_eq!(error.kind(), NodeErrorKind::Storage);
    assert!(
        error.to_string().contains("directory can't be made"),
        "{error}"
    );
    let error = refusal(place.path.parent().unwrap()).await;
    assert!(error.to_string().contains("can't be written"), "{error}");
}

#[tokio::test]
async fn a_file_is_given_more_time_than_a_server() {
    let place = place();
    let by_url = Redlatch::builder().nodes([url(&place.path)]);
    let by_node = Redlatch::builder().node(SqliteNode::new(&place.path));
    for builder in [by_url, by_node] {
        // A ttl must be longer than the node timeout.
        let error = builder
            .ttl(Duration::from_millis(500))
            .build()
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("node timeout of 500ms"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_file_that_somebody_keeps_locked_is_told_as_that() {
    let place = place();
    let latch = client(&place.path).await;
    let impatient = builder(&place.path).node_timeout(Duration::from_millis(50));
    let impatient = impatient.build().await.unwrap();
    let connection = Connection::open(&place.path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = no_quorum(impatient.mutex("job").try_lock().await);
    assert_eq!(error.failures[0].1.kind(), NodeErrorKind::TimedOut);
    assert!(
        error.to_string().contains("locked by another process"),
        "{error}"
    );
    // Who is patient gets it when the other is done.
    let waiting = tokio::spawn(async move { latch.mutex("job").try_lock().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    connection.execute_batch("COMMIT").unwrap();
    assert!(waiting.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn a_client_can_be_built_by_node_as_well() {
    let place = place();
    let path = place.path.with_file_name("not/yet/there.db");
    let node = SqliteNode::new(&path);
    let latch = Redlatch::builder().node(node).build().await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    guard.release().await.unwrap();
    assert!(path.exists());
}

// Processes.

#[test]
fn twenty_processes_that_make_the_same_file_at_once_all_get_their_turn() {
    let place = place();
    let path = place.path.with_file_name("not/yet/there.db");
    let children: Vec<Child> = (0..20)
        .map(|_| child("sqlite::turn", &path).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let turns = fs::read_to_string(path.with_extension("turns")).unwrap();
    let fences: Vec<u64> = turns.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(fences.len(), 20);
    assert!(
        fences.windows(2).all(|pair| pair[0] < pair[1]),
        "{fences:?}"
    );
}

/// One of the processes; does nothing unless it was started as one.
#[tokio::test]
async fn turn() {
    let Some(path) = told() else { return };
    let latch = client(&path).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    append(&path.with_extension("turns"), &guard.fence().to_string());
    guard.release().await.unwrap();
}

#[test]
fn processes_that_are_killed_at_any_time_break_nothing() {
    let place = place();
    let counter = place.path.with_extension("counter");
    fs::write(&counter, "0 0").unwrap();
    let start = || {
        child("sqlite::count_for_ever", &place.path)
            .spawn()
            .unwrap()
    };
    let mut children: Vec<Child> = (0..3).map(|_| start()).collect();
    let acknowledged = || {
        let text = fs::read_to_string(place.path.with_extension("acks")).unwrap_or_default();
        text.lines().count()
    };
    let mut kills = 0;
    let begin = std::time::Instant::now();
    while kills < 40 || acknowledged() < 100 {
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "it does not go on"
        );
        // At no particular time in what they do.
        std::thread::sleep(Duration::from_micros(20_000 + 7_919 * (kills % 13)));
        let victim = (kills % 3) as usize;
        children[victim].kill().unwrap();
        let status = children[victim].wait().unwrap();
        assert_eq!(status.code(), None, "it ended by itself");
        children[victim] = start();
        kills += 1;
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    kills += 3;
    let text = fs::read_to_string(&counter).unwrap();
    let counted: usize = text.split(' ').next().unwrap().parse().unwrap();
    let acknowledged = acknowledged();
    let most = acknowledged + kills as usize;
    assert!(
        (acknowledged..=most).contains(&counted),
        "{counted} of {acknowledged}, {kills} killed"
    );
    let connection = Connection::open(&place.path).unwrap();
    let check = "PRAGMA integrity_check";
    let well: String = connection.query_row(check, [], |row| row.get(0)).unwrap();
    assert_eq!(well, "ok");
}

/// Counts until it is killed; does nothing unless it was started to.
#[tokio::test]
async fn count_for_ever() {
    let Some(path) = told() else { return };
    let counter = path.with_extension("counter");
    let ttl = Duration::from_millis(300);
    let latch = builder(&path)
        .node_timeout(ttl / 3)
        .ttl(ttl)
        .outage_patience(LONG);
    let latch = latch.build().await.unwrap();
    loop {
        let guard = latch.mutex("job").lock().await.unwrap();
        let text = fs::read_to_string(&counter).unwrap();
        let (number, last) = text.split_once(' ').unwrap();
        let (number, last): (u64, u64) = (number.parse().unwrap(), last.parse().unwrap());
        assert!(guard.fence() > last, "fences went back");
        tokio::time::sleep(Duration::from_millis(1)).await;
        let next = counter.with_extension(std::process::id().to_string());
        fs::write(&next, format!("{} {}", number + 1, guard.fence())).unwrap();
        if guard.ensure_held().is_err() {
            continue;
        }
        fs::rename(&next, &counter).unwrap();
        append(&path.with_extension("acks"), "");
        let _ = guard.release().await;
    }
}

// What takes a file system, or a limit, of its own.

#[test]
fn a_full_disk_is_told_as_that() {
    in_namespace(
        "mount -t tmpfs -o size=256k tmpfs",
        "sqlite::on_a_full_disk",
    );
}

#[tokio::test]
async fn on_a_full_disk() {
    let Some(path) = told() else { return };
    let directory = path.parent().unwrap();
    let latch = client(&path).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    fill(directory);
    let mut error = None;
    for number in 0..10_000 {
        match latch.mutex(format!("job {number}")).try_lock().await {
            Ok(guard) => drop(guard.unwrap().detach()),
            Err(failed) => {
                error = Some(failed);
                break;
            }
        };
    }
    let error = no_quorum::<()>(Err(error.expect("the disk is full")));
    assert_eq!(error.failures[0].1.kind(), NodeErrorKind::Storage);
    assert!(error.to_string().contains("no space is left"), "{error}");
    // Nobody else gets what is held, and all goes on when there is space again.
    fs::remove_file(directory.join("filler")).unwrap();
    assert!(latch.mutex("job").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    drop(latch.mutex("job").try_lock().await.unwrap().unwrap());

    // Not even a start.
    fs::create_dir(directory.join("new")).unwrap();
    fill(directory);
    let error = refusal(&directory.join("new/locks.db")).await;
    assert_eq!(error.kind(), NodeErrorKind::Storage);
    let text = error.to_string();
    assert!(text.contains("space") || text.contains("full"), "{text}");
}

#[test]
fn a_read_only_directory_is_told_as_that() {
    in_namespace(
        "mount -t tmpfs -o ro tmpfs",
        "sqlite::in_a_read_only_directory",
    );
}

#[tokio::test]
async fn in_a_read_only_directory() {
    let Some(path) = told() else { return };
    let error = refusal(&path).await;
    assert_eq!(error.kind(), NodeErrorKind::Storage);
    assert!(
        error.to_string().contains("let this user write there"),
        "{error}"
    );
}

#[test]
fn a_file_that_became_read_only_is_told_as_that() {
    in_namespace(
        "mount -t tmpfs tmpfs",
        "sqlite::in_a_file_that_became_read_only",
    );
}

#[tokio::test]
async fn in_a_file_that_became_read_only() {
    let Some(path) = told() else { return };
    drop(client(&path).await.mutex("job").lock().await.unwrap());
    let directory = path.parent().unwrap();
    let mut remount = Command::new("mount");
    remount.args(["-o", "remount,ro"]).arg(directory);
    // The client above lets go of its file a moment after it is dropped.
    eventually("the remount", || remount.status().unwrap().success()).await;
    let error = refusal(&path).await;
    assert_eq!(error.kind(), NodeErrorKind::Storage);
    assert!(error.to_string().contains("can't be written"), "{error}");
}

#[test]
fn where_no_watch_is_left_waiters_ask_again() {
    let setup = "echo 0 > /proc/sys/user/max_inotify_instances; true";
    in_namespace(setup, "sqlite::without_a_watch");
}

#[tokio::test]
async fn without_a_watch() {
    let Some(path) = told() else { return };
    let (one, other) = (client(&path).await, client(&path).await);
    let guard = one.mutex("job").lock().await.unwrap();
    let waiter = tokio::spawn(async move { other.mutex("job").lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.release().await.unwrap();
    let soon = tokio::time::timeout(Duration::from_secs(4), waiter).await;
    drop(soon.expect("it waits in vain").unwrap());
}

#[test]
fn a_container_with_a_time_of_its_own_sees_the_same_leases() {
    let place = place();
    let hold = || async {
        let latch = client(&place.path).await;
        let _ = latch.mutex("job").lock().await.unwrap().detach();
    };
    tokio::runtime::Runtime::new().unwrap().block_on(hold());
    let mut unshare = Command::new("unshare");
    // An hour later than here: the lease would have ended long ago.
    unshare.args(["-Ur", "-T", "--boottime", "3600"]);
    if !unshare.arg("true").status().unwrap().success() {
        eprintln!("skipped: this system has no time namespaces for this user");
        return;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["-Ur", "-T", "--boottime", "3600"]);
    let output = run(unshare, "sqlite::finds_it_held", &place.path);
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn finds_it_held() {
    let Some(path) = told() else { return };
    let latch = client(&path).await;
    assert!(latch.mutex("job").try_lock().await.unwrap().is_none());
    let left = latch.inspect("job").await.unwrap().unwrap().remaining();
    assert!(left.unwrap() <= LONG, "{left:?}");
}

/// Runs a test of this binary where `setup` was done for it alone. One that
/// mounts something gets the directory of the file as its last argument.
fn in_namespace(setup: &str, test: &str) {
    let works = Command::new("unshare")
        .args(["-Urm", "true"])
        .stderr(Stdio::null())
        .status();
    if !works.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system has no namespaces for this user");
        return;
    }
    let place = place();
    let mut shell = Command::new("unshare");
    let directory = match setup.starts_with("mount") {
        true => r#""$(dirname "$REDLATCH_TEST_FILE")""#,
        false => "",
    };
    let script = format!(r#"{setup} {directory} && exec "$0" "$@""#);
    shell.args(["-Urm", "sh", "-c", &script]);
    let output = run(shell, test, &place.path);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
}

/// Takes up what is left of the disk.
fn fill(directory: &Path) {
    let mut filler = fs::File::create(directory.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    while filler.write_all(&[0]).is_ok() {}
}

fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    // In one piece: several processes do it.
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// The file that this process was started for.
fn told() -> Option<PathBuf> {
    std::env::var_os("REDLATCH_TEST_FILE").map(PathBuf::from)
}

/// A process that runs one test of this binary.
fn child(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env("REDLATCH_TEST_FILE", path)
        .stdout(Stdio::null());
    command
}

fn run(mut wrapper: Command, test: &str, path: &Path) -> Output {
    wrapper
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("REDLATCH_TEST_FILE", path)
        .output()
        .unwrap()
}

/// The errors above are of the kind that says: the nodes can't be reached.
#[tokio::test]
async fn a_file_that_can_not_be_used_is_no_mistake_in_the_settings() {
    let place = place();
    fs::write(
        &place.path,
        "this is no database, and long enough to see that",
    )
    .unwrap();
    let error = builder(&place.path).build().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
}
