//! Where the examples find a Redis server.

use redlatch_testkit::Fleet;

/// The servers of an example. Those that were started for it end with it.
pub(crate) struct Nodes {
    pub(crate) urls: Vec<String>,
    _started: Option<Fleet>,
}

/// The URLs given as arguments, else the one in `REDIS_URL`; where there is
/// none, a `redis-server` is started that is thrown away at the end.
pub(crate) fn nodes() -> Nodes {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    if urls.is_empty() {
        urls.extend(std::env::var("REDIS_URL"));
    }
    if !urls.is_empty() {
        return Nodes {
            urls,
            _started: None,
        };
    }
    println!("No URL is given, so a redis-server of its own is started for this example.");
    let fleet = Fleet::start(1);
    Nodes {
        urls: fleet.urls(),
        _started: Some(fleet),
    }
}
