//! A line, and a server that a test plays itself.

mod bundles;

use std::sync::mpsc;
use std::time::Duration;

use redis::{ErrorKind, cmd};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::*;

type Heard = mpsc::Receiver<(PushKind, Vec<Value>)>;

/// A line through which little goes at a time, and its other end.
fn narrow_line() -> (Line, DuplexStream, Heard) {
    let (ours, theirs) = duplex(16);
    let (said, heard) = mpsc::channel();
    let line = Line::new(Stream::Other(Box::new(ours)));
    line.listen(move |kind, data| drop(said.send((kind, data))));
    (line, theirs, heard)
}

/// A line that can be written to by everybody, and its other end.
async fn tcp_line() -> (Line, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
    let line = Line::new(Stream::Tcp(ours.unwrap()));
    (line, theirs.unwrap().0)
}

fn ask(line: &Line, name: &str) -> Answer<Value> {
    let command = cmd(name);
    line.ask(|out| command.write_packed_command(out))
}

/// The name of the next command that comes.
async fn next_command(server: &mut (impl AsyncRead + Unpin)) -> String {
    next_words(server).await.remove(0)
}

/// The words of the next command that comes.
async fn next_words(server: &mut (impl AsyncRead + Unpin)) -> Vec<String> {
    let count = next_number(server, '*').await;
    let mut words = Vec::new();
    for _ in 0..count {
        // It ends like a line, too.
        let mut word = vec![0; next_number(server, '$').await + 2];
        server.read_exact(&mut word).await.unwrap();
        let word = String::from_utf8(word).unwrap();
        words.push(word.strip_suffix("\r\n").unwrap().to_owned());
    }
    words
}

/// The number in the next line that comes, behind this character.
async fn next_number(server: &mut (impl AsyncRead + Unpin), first: char) -> usize {
    let mut line = String::new();
    while !line.ends_with("\r\n") {
        line.push(server.read_u8().await.unwrap().into());
    }
    let number = line.trim_end().strip_prefix(first).unwrap();
    number.parse().unwrap()
}

/// What is heard next.
async fn next(heard: &Heard) -> (PushKind, Vec<Value>) {
    loop {
        if let Ok(heard) = heard.try_recv() {
            return heard;
        }
        tokio::task::yield_now().await;
    }
}

fn text(value: &str) -> Value {
    Value::SimpleString(value.into())
}

#[tokio::test]
async fn each_gets_its_own_answer() {
    let (line, mut server, _heard) = narrow_line();
    let names: Vec<String> = (0..100).map(|number| format!("N{number}")).collect();
    let answers: Vec<_> = names.iter().map(|name| ask(&line, name)).collect();
    let echo = async {
        for name in &names {
            let command = next_command(&mut server).await;
            assert_eq!(command, *name, "in the order in which they were asked");
            let answer = format!("+{command}\r\n");
            server.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(answers), echo);
    for (name, answer) in names.iter().zip(answers) {
        assert_eq!(answer.unwrap(), text(name));
    }
}

#[tokio::test]
async fn what_lets_others_go_first_gets_its_own_answer() {
    let (line, mut server, _heard) = narrow_line();
    let put = |out: &mut Vec<u8>| cmd("RELEASE").write_packed_command(out);
    let (released, next) = (line.ask_after_you(put), ask(&line, "NEXT"));
    for name in ["TIME", "RELEASE", "NEXT"] {
        assert_eq!(next_command(&mut server).await, name);
    }
    // Whatever comes of the first.
    let answers = b"-NOPERM no\r\n+released\r\n+next\r\n";
    server.write_all(answers).await.unwrap();
    assert_eq!(released.await.unwrap(), text("released"));
    assert_eq!(next.await.unwrap(), text("next"));
}

#[tokio::test]
async fn many_threads_share_a_line_in_order() {
    let (line, mut server) = tcp_line().await;
    let echo = tokio::spawn(async move {
        let mut bytes = Vec::new();
        // What comes is a valid answer too: an array with the name.
        while server.read_buf(&mut bytes).await.unwrap_or(0) > 0 {
            server.write_all(&bytes).await.unwrap();
            bytes.clear();
        }
    });
    let clients = (0..64).map(|client| {
        let line = line.clone();
        tokio::task::spawn_blocking(move || {
            for number in 0..200 {
                let name = format!("C{client}-{number}");
                let answer = tokio::runtime::Handle::current().block_on(ask(&line, &name));
                let name = Value::BulkString(name.into_bytes());
                assert_eq!(answer.unwrap(), Value::Array(vec![name]));
            }
        })
    });
    for client in futures_util::future::join_all(clients).await {
        client.unwrap();
    }
    drop(line);
    echo.await.unwrap();
}

#[tokio::test]
async fn who_stops_waiting_takes_nobody_elses_answer() {
    let (line, mut server, _heard) = narrow_line();
    drop(ask(&line, "FIRST"));
    let second = ask(&line, "SECOND");
    assert_eq!(
        next_command(&mut server).await,
        "FIRST",
        "it was on its way"
    );
    assert_eq!(next_command(&mut server).await, "SECOND");
    server.write_all(b"+one\r\n+two\r\n").await.unwrap();
    assert_eq!(second.await.unwrap(), text("two"));
}

#[tokio::test]
async fn what_comes_unasked_is_heard_in_its_place() {
    let (line, mut server, heard) = narrow_line();
    let answer = ask(&line, "ASK");
    let subscribed = ask(&line, "SUBSCRIBE");
    let said = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n+answer\r\n\
                 >3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n";
    server.write_all(said).await.unwrap();
    assert_eq!(answer.await.unwrap(), text("answer"));
    let Value::Push { kind, .. } = subscribed.await.unwrap() else {
        panic!("SUBSCRIBE is answered by a push");
    };
    assert_eq!(kind, PushKind::Subscribe);
    drop(server);
    let words = |words: &str| Value::BulkString(words.into());
    let message = (PushKind::Message, vec![words("c"), words("hi")]);
    assert_eq!(next(&heard).await, message);
    assert_eq!(next(&heard).await, (PushKind::Invalidate, vec![Value::Nil]));
    assert_eq!(next(&heard).await.0, PushKind::Disconnection);
}

#[tokio::test]
async fn everybody_is_told_that_the_server_hung_up() {
    let (line, mut server, heard) = narrow_line();
    let one = ask(&line, "ONE");
    let many = line.ask_all(2, |out| out.extend(b"*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n"));
    next_command(&mut server).await;
    next_command(&mut server).await;
    // Half of what they wait for.
    server.write_all(b"+one\r\n+first").await.unwrap();
    assert_eq!(one.await.unwrap(), text("one"));
    drop(server);
    let error = many.await.unwrap_err();
    assert!(error.is_unrecoverable_error(), "{error}");
    let later = ask(&line, "LATER").await.unwrap_err();
    assert!(later.is_unrecoverable_error(), "{later}");
    assert_eq!(next(&heard).await.0, PushKind::Disconnection);
}

#[tokio::test]
async fn who_listens_late_is_told_that_it_is_over() {
    let (ours, theirs) = duplex(16);
    let line = Line::new(Stream::Other(Box::new(ours)));
    drop(theirs);
    ask(&line, "ASK").await.unwrap_err();
    let (said, heard) = mpsc::channel();
    line.listen(move |kind, data| drop(said.send((kind, data))));
    assert_eq!(heard.try_recv().unwrap().0, PushKind::Disconnection);
}

#[tokio::test]
async fn what_a_closed_line_had_in_hand_is_never_sent() {
    let (line, mut server, _heard) = narrow_line();
    let names = (0..10).map(|number| format!("N{number}"));
    let answers: Vec<_> = names.map(|name| ask(&line, &name)).collect();
    assert_eq!(next_command(&mut server).await, "N0");
    line.close();
    for answer in answers {
        let error = answer.await.unwrap_err();
        assert!(error.is_unrecoverable_error(), "{error}");
    }
    assert!(ask(&line, "LATER").await.is_err());
    drop(line);
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
    assert!(!String::from_utf8(rest).unwrap().contains("N9"));
}

#[tokio::test]
async fn answers_that_came_before_nonsense_count() {
    let (line, mut server, _heard) = narrow_line();
    let (one, other) = (ask(&line, "ONE"), ask(&line, "OTHER"));
    server.write_all(b"+one\r\n?\r\n").await.unwrap();
    assert_eq!(one.await.unwrap(), text("one"));
    assert_eq!(other.await.unwrap_err().kind(), ErrorKind::Parse);
}

#[tokio::test]
async fn what_is_not_redis_is_found_out() {
    for nonsense in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "$x\r\n",
        "*99999999999\r\n",
        "+a\n",
    ] {
        let (line, mut server, _heard) = narrow_line();
        let answer = ask(&line, "ASK");
        server.write_all(nonsense.as_bytes()).await.unwrap();
        let error = answer.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Parse, "{nonsense:?}: {error}");
    }
    let (line, mut server, heard) = narrow_line();
    server.write_all(b"+unasked\r\n").await.unwrap();
    assert_eq!(next(&heard).await.0, PushKind::Disconnection);
    let error = ask(&line, "ASK").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parse, "{error}");
}

#[tokio::test]
async fn a_server_that_refuses_before_it_was_asked_is_quoted() {
    let (line, mut server, heard) = narrow_line();
    let full = b"-ERR max number of clients reached\r\n";
    server.write_all(full).await.unwrap();
    drop(server);
    assert_eq!(next(&heard).await.0, PushKind::Disconnection);
    let error = ask(&line, "ASK").await.unwrap_err().to_string();
    assert!(error.contains("max number of clients"), "{error}");
}

#[test]
fn nobody_waits_for_a_runtime_that_has_ended() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (line, _server, answer) = runtime.block_on(async {
        let (line, server, _heard) = narrow_line();
        let answer = ask(&line, "ASK");
        (line, server, answer)
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let error = runtime.block_on(async {
        let minute = Duration::from_secs(60);
        tokio::time::timeout(minute, answer)
            .await
            .expect("told at once")
            .unwrap_err()
    });
    assert!(error.is_unrecoverable_error(), "{error}");
    assert!(runtime.block_on(ask(&line, "LATER")).is_err());
}
