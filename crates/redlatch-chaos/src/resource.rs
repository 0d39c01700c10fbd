//! What the locks protect: a set that is read, and written back with one more member.
//!
//! A resource is served over TCP by this program, to its workers. Nothing here can fail or be late
//! but for the worker itself, so what is lost was lost by the lock.
//!
//! A worker does not carry the whole set around: a read gives the number of a version, and a write
//! names the version that it was made from. The new version is that one and a member more, and
//! takes the place of whatever is there, as a write of the whole set would.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

/// How a worker uses a resource, and what the resource checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Fences are registered before reading, and lower ones refused.
    Fenced,
    /// No fences; the worker asks `ensure_held` just before it writes.
    Asked,
    /// No fences, and the worker does not look.
    Blind,
}

/// Every resource, by the name of its lock.
pub(crate) const RESOURCES: [(&str, Manner); 3] = [
    ("fenced", Manner::Fenced),
    ("asked", Manner::Asked),
    ("blind", Manner::Blind),
];

/// What came of the updates of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Updates {
    /// Writes that the resource said yes to.
    pub(crate) acknowledged: usize,
    /// Those of them that are not in the set at the end.
    pub(crate) lost: usize,
    /// Reads and writes that were refused because of their fence.
    pub(crate) refused: usize,
}

/// One set and the highest fence that it has seen.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// The version that each version was made from; version 0 is the empty set.
    made_from: Vec<usize>,
    now: usize,
    fence: u64,
    refused: usize,
}

impl Set {
    /// A read, with the fence registered first where there is one.
    pub(crate) fn read(&mut self, fence: Option<u64>) -> Option<usize> {
        self.admit(fence).then_some(self.now)
    }

    /// A write of the version `read` and one member more.
    pub(crate) fn write(&mut self, read: usize, fence: Option<u64>) -> bool {
        if !self.admit(fence) {
            return false;
        }
        self.made_from.push(read);
        self.now = self.made_from.len();
        true
    }

    fn admit(&mut self, fence: Option<u64>) -> bool {
        let fence = fence.unwrap_or(self.fence);
        let admitted = fence >= self.fence;
        self.fence = self.fence.max(fence);
        self.refused += usize::from(!admitted);
        admitted
    }

    pub(crate) fn updates(&self) -> Updates {
        let (mut kept, mut version) = (0, self.now);
        while version > 0 {
            kept += 1;
            version = self.made_from[version - 1];
        }
        let acknowledged = self.made_from.len();
        Updates {
            acknowledged,
            lost: acknowledged - kept,
            refused: self.refused,
        }
    }
}

/// Serves all resources until the process ends.
pub(crate) struct Server {
    address: SocketAddr,
    sets: Arc<[Mutex<Set>; RESOURCES.len()]>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let sets: Arc<[Mutex<Set>; RESOURCES.len()]> = Arc::default();
        let served = sets.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sets = served.clone();
                std::thread::spawn(move || serve(&*sets, &stream));
            }
        });
        Self { address, sets }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What came of the updates, in the order of [`RESOURCES`].
    pub(crate) fn updates(&self) -> [Updates; RESOURCES.len()] {
        std::array::from_fn(|at| lock(&self.sets[at]).updates())
    }
}

/// `[resource, fence]` reads, `[resource, fence, version]` writes; answered by a number, or null
/// where it is refused.
fn serve(sets: &[Mutex<Set>], stream: &TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut writer = stream;
    for line in BufReader::new(stream).lines() {
        let request: Value = serde_json::from_str(&line.ok()?).ok()?;
        let mut set = lock(sets.get(request[0].as_u64()? as usize)?);
        let fence = request[1].as_u64();
        let answer = match request[2].as_u64() {
            None => set.read(fence),
            Some(read) => set.write(read as usize, fence).then_some(0),
        };
        drop(set);
        writer
            .write_all(format!("{}\n", json!(answer)).as_bytes())
            .ok()?;
    }
    Some(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_from_an_old_read_loses_what_was_written_since() {
        let mut set = Set::default();
        let (one, two) = (set.read(None), set.read(None));
        assert!(set.write(one.unwrap(), None));
        assert!(set.write(two.unwrap(), None));
        let three = set.read(None).unwrap();
        assert!(set.write(three, None));
        let (acknowledged, lost, refused) = (3, 1, 0);
        assert_eq!(
            set.updates(),
            Updates {
                acknowledged,
                lost,
                refused
            }
        );
    }

    #[test]
    fn a_lower_fence_is_refused_from_the_read_of_a_higher_one_on() {
        let mut set = Set::default();
        let early = set.read(Some(5)).unwrap();
        let late = set.read(Some(6)).unwrap();
        assert!(!set.write(early, Some(5)), "a later holder has read");
        assert!(set.write(late, Some(6)));
        assert_eq!(set.read(Some(4)), None);
        let (acknowledged, lost, refused) = (1, 0, 2);
        assert_eq!(
            set.updates(),
            Updates {
                acknowledged,
                lost,
                refused
            }
        );
    }
}
