//! The memory of a simulated Redis, and the commands that our scripts make.

use std::collections::{BTreeMap, BTreeSet};

use crate::value::Value;

/// The clock of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) micros: u64,
}

impl Now {
    pub(crate) fn millis(self) -> u64 {
        self.micros / 1000
    }

    /// What TIME says.
    pub(crate) fn told(self) -> Value {
        Value::Array(vec![
            Value::text((self.micros / 1_000_000).to_string()),
            Value::text((self.micros % 1_000_000).to_string()),
        ])
    }
}

/// All that a server keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    entries: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    data: Data,
    /// The last millisecond at which it is there.
    last: Option<u64>,
}

#[derive(Clone, Debug)]
enum Data {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Scores are whole numbers below 2^53 here.
    Sorted(BTreeMap<Vec<u8>, i64>),
}

/// What a command did beside answering.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) touched: BTreeSet<Vec<u8>>,
}

/// What a server that takes no writes refuses to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Whatever changes something: too few replicas, or a failed save.
    Writes,
    /// Whatever needs more memory.
    Growth,
}

impl Refusal {
    /// What is answered to a command; `None` where it is carried out.
    pub(crate) fn of(self, command: &[u8]) -> Option<Value> {
        let grows = matches!(command, b"SET" | b"HSET" | b"ZADD");
        let writes = grows || matches!(command, b"DEL" | b"PEXPIRE" | b"ZREM");
        match self {
            Self::Writes if writes => Some("NOREPLICAS Not enough good replicas to write."),
            Self::Growth if grows => {
                Some("OOM command not allowed when used memory > 'maxmemory'.")
            }
            _ => None,
        }
        .map(|error| Value::Error(error.into()))
    }
}

/// Whether a command has changed something, for a script that is refused only
/// its first write.
pub(crate) fn is_write(command: &[u8]) -> bool {
    Refusal::Writes.of(command).is_some()
}

pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Store {
    /// Runs one command. What is not here is called by none of our scripts.
    pub(crate) fn run(&mut self, words: &[Vec<u8>], now: Now, effects: &mut Effects) -> Value {
        let name = words[0].to_ascii_uppercase();
        let keys = match &name[..] {
            b"MGET" | b"EXISTS" | b"DEL" => &words[1..],
            _ => &words[1..words.len().min(2)],
        };
        for key in keys {
            self.expire(key, now);
        }
        let text = |at: usize| words[at].clone();
        match (&name[..], words.len()) {
            (b"TIME", 1) => now.told(),
            (b"GET", 2) => match self.entries.get(&words[1]).map(|entry| &entry.data) {
                None => Value::Nil,
                Some(Data::Text(text)) => Value::Text(text.clone()),
                Some(_) => Value::Error(WRONG_TYPE.into()),
            },
            (b"SET", 5 | 6) if words[words.len() - 2] == b"PX" => {
                let only_new = words[3] == b"NX";
                if only_new && self.entries.contains_key(&words[1]) {
                    return Value::Nil;
                }
                let ttl = number(&words[words.len() - 1]) as u64;
                let entry = Entry {
                    data: Data::Text(text(2)),
                    last: Some(now.millis() + ttl),
                };
                self.entries.insert(text(1), entry);
                effects.touched.insert(text(1));
                Value::Status("OK")
            }
            // Of a key of another type it says nothing.
            (b"MGET", _) => {
                let get = |key| match self.entries.get(key).map(|entry| &entry.data) {
                    Some(Data::Text(text)) => Value::Text(text.clone()),
                    _ => Value::Nil,
                };
                Value::Array(keys.iter().map(get).collect())
            }
            (b"DEL", _) => {
                let is_there = |key: &&Vec<u8>| self.entries.remove(*key).is_some();
                let gone: Vec<_> = keys.iter().filter(is_there).cloned().collect();
                let count = gone.len() as i64;
                effects.touched.extend(gone);
                Value::Int(count)
            }
            (b"EXISTS", _) => {
                let is_there = |key: &&Vec<u8>| self.entries.contains_key(*key);
                Value::Int(keys.iter().filter(is_there).count() as i64)
            }
            (b"PTTL", 2) => Value::Int(match self.entries.get(&words[1]) {
                None => -2,
                Some(Entry { last: None, .. }) => -1,
                Some(Entry {
                    last: Some(last), ..
                }) => (*last - now.millis()) as i64,
            }),
            (b"PEXPIRE", 3) => match self.entries.get_mut(&words[1]) {
                None => Value::Int(0),
                Some(entry) => {
                    entry.last = Some(now.millis() + number(&words[2]) as u64);
                    effects.touched.insert(text(1));
                    Value::Int(1)
                }
            },
            (b"HGET", 3) => match self.hash(&words[1]).get(&words[2]) {
                None => Value::Nil,
                Some(text) => Value::Text(text.clone()),
            },
            (b"HMGET", _) => {
                let hash = self.hash(&words[1]);
                let get = |field| {
                    hash.get(field)
                        .map_or(Value::Nil, |text| Value::Text(text.clone()))
                };
                Value::Array(words[2..].iter().map(get).collect())
            }
            (b"HSET", count) if count.is_multiple_of(2) => {
                let hash = self.hash(&words[1]);
                for pair in words[2..].chunks(2) {
                    hash.insert(pair[0].clone(), pair[1].clone());
                }
                Value::Int((count as i64 - 2) / 2)
            }
            (b"ZADD", _) => {
                let only_new = words[2] == b"NX";
                let pairs = &words[2 + words.len() % 2..];
                let sorted = self.sorted(&words[1]);
                let mut added = 0;
                for pair in pairs.chunks(2) {
                    let (score, member) = (number(&pair[0]), &pair[1]);
                    let is_new = !sorted.contains_key(member);
                    if is_new || !only_new {
                        sorted.insert(member.clone(), score);
                    }
                    added += i64::from(is_new);
                }
                Value::Int(added)
            }
            (b"ZSCORE", 3) => {
                let rows = self.rows(&words[1]);
                let row = rows.into_iter().find(|(_, member)| *member == words[2]);
                row.map_or(Value::Nil, |(score, _)| Value::text(score.to_string()))
            }
            (b"ZRANGE", 4) => {
                let range = number(&words[2]) as usize..=number(&words[3]) as usize;
                let rows = self.rows(&words[1]).into_iter().enumerate();
                let rows = rows.filter(|(rank, _)| range.contains(rank));
                Value::Array(rows.map(|(_, (_, member))| Value::Text(member)).collect())
            }
            (b"ZRANGE", 5) if words[4] == b"BYSCORE" => {
                let range = number(&words[2])..=number(&words[3]);
                let rows = self.rows(&words[1]).into_iter();
                let rows = rows.filter(|(score, _)| range.contains(score));
                Value::Array(rows.map(|(_, member)| Value::Text(member)).collect())
            }
            (b"ZREM", _) => self.remove(&words[1], &words[2..]),
            _ => panic!("no script of ours calls {}", String::from_utf8_lossy(&name)),
        }
    }

    /// Takes away what has run out, and says what that was.
    pub(crate) fn sweep(&mut self, now: Now) -> Vec<Vec<u8>> {
        let over = |entry: &Entry| entry.last.is_some_and(|last| now.millis() > last);
        let gone = self.entries.iter().filter(|(_, entry)| over(entry));
        let gone: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
        for key in &gone {
            self.entries.remove(key);
        }
        gone
    }

    /// All keys but those that are kept for ever.
    pub(crate) fn passing(&self) -> Vec<String> {
        let passing = self
            .entries
            .iter()
            .filter(|(_, entry)| !matches!(entry.data, Data::Hash(_)));
        passing
            .map(|(key, _)| String::from_utf8_lossy(key).into_owned())
            .collect()
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        self.entries.remove(key).is_some()
    }

    fn expire(&mut self, key: &[u8], now: Now) {
        let entry = self.entries.get(key);
        if entry.is_some_and(|entry| entry.last.is_some_and(|last| now.millis() > last)) {
            self.entries.remove(key);
        }
    }

    fn hash(&mut self, key: &[u8]) -> &mut BTreeMap<Vec<u8>, Vec<u8>> {
        let data = Data::Hash(BTreeMap::new());
        let entry = self
            .entries
            .entry(key.to_vec())
            .or_insert(Entry { data, last: None });
        match &mut entry.data {
            Data::Hash(hash) => hash,
            _ => panic!("only hashes are used as hashes"),
        }
    }

    fn sorted(&mut self, key: &[u8]) -> &mut BTreeMap<Vec<u8>, i64> {
        let data = Data::Sorted(BTreeMap::new());
        let entry = self
            .entries
            .entry(key.to_vec())
            .or_insert(Entry { data, last: None });
        match &mut entry.data {
            Data::Sorted(sorted) => sorted,
            _ => panic!("only sorted sets are used as sorted sets"),
        }
    }

    /// The members of a sorted set with their scores, in order.
    fn rows(&self, key: &[u8]) -> Vec<(i64, Vec<u8>)> {
        let mut rows: Vec<_> = match self.entries.get(key).map(|entry| &entry.data) {
            Some(Data::Sorted(sorted)) => sorted
                .iter()
                .map(|(member, score)| (*score, member.clone()))
                .collect(),
            _ => Vec::new(),
        };
        rows.sort();
        rows
    }

    /// Takes members out of a sorted set, and says how many there were.
    fn remove(&mut self, key: &[u8], members: &[Vec<u8>]) -> Value {
        let sorted = self.sorted(key);
        let gone = members
            .iter()
            .filter(|member| sorted.remove(*member).is_some());
        let gone = gone.count() as i64;
        if sorted.is_empty() {
            self.entries.remove(key);
        }
        Value::Int(gone)
    }
}

/// A whole number, as scripts write it.
fn number(text: &[u8]) -> i64 {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let whole = text.parse::<i64>().ok();
    whole.unwrap_or_else(|| panic!("not a whole number: {text:?}"))
}
