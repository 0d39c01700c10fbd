//! All that the model remembers at one instant.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use redlatch_core::rules::Stored;
use redlatch_core::{Ballot, NodeState, Reply, Vote};

use crate::config::Clock;
use crate::mixer::Mixer;

/// One instant of the whole system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The tick.
    pub now: u8,
    /// The nodes, each with what is on its way to it.
    pub nodes: Vec<Arc<Node>>,
    /// The clients.
    pub clients: [Client; 2],
    /// The administrator's FORCE that is under way.
    pub force: Option<ForceRound>,
    /// What may still go wrong.
    pub left: Budget,
    /// What has happened, as far as the properties ask for it.
    pub history: History,
}

/// A node, and all that concerns it alone. So nodes can be put in any order.
#[derive(Clone, Debug)]
pub struct Node {
    /// Tells nodes apart in a trace, and is no part of the state: nodes that
    /// change places are still the same state.
    pub name: usize,
    /// Stands for all the rest, so that what did not change is not hashed
    /// again. Nothing when it is to be worked out anew.
    rank: u64,
    /// What it remembers.
    pub state: Arc<NodeState>,
    /// What it remembered at the beginning of this tick, while it can come back.
    pub saved: Option<Arc<NodeState>>,
    /// What was sent to it and may still arrive, in any order or never.
    pub inbox: Vec<Message>,
    /// What it answered in each client's current round.
    pub answers: [Option<Answer>; 2],
    /// Whether it has done the FORCE that is under way.
    pub forced: bool,
    /// One bit a token: what was released here. Kept only to look for stray keys.
    pub released: u16,
}

/// A request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// The client that sent it; an administrator's FORCE has none.
    pub from: usize,
    /// The lease that it is about, as an index.
    pub token: u8,
    /// What it asks for.
    pub ask: Ask,
}

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ask {
    /// ACQUIRE
    Acquire(Ballot),
    /// EXTEND, in this round of its lease.
    Extend(u8),
    /// REJOIN, with the ballot that the lease was won with, and a new one.
    Rejoin(Ballot, Ballot),
    /// RELEASE
    Release(Ballot),
    /// FORCE, which the rules as they are give no ballot.
    Force(Ballot),
}

/// What a node answered in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// What it means for the round.
    pub vote: Vote,
    /// What else the client learns.
    pub lesson: Lesson,
}

/// What a client learns from an answer, beside the vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lesson {
    /// Nothing.
    Nothing,
    /// The ballot must be higher than this.
    Low(Ballot),
    /// Its clock is far ahead.
    Future,
    /// The node has no such key, and wants a ballot higher than this.
    Missing(Ballot),
}

impl From<&Reply> for Answer {
    fn from(reply: &Reply) -> Self {
        let lesson = match reply {
            Reply::Low { seen, .. } => Lesson::Low(*seen),
            Reply::Future(_) => Lesson::Future,
            Reply::Missing => Lesson::Missing(Ballot::default()),
            _ => Lesson::Nothing,
        };
        // Whether a node refused or failed makes no difference to a client that
        // is in no hurry.
        let vote = match Vote::from(reply) {
            Vote::Failed => Vote::Refused,
            vote => vote,
        };
        Self { vote, lesson }
    }
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// How wrong its wall clock is.
    pub clock: Clock,
    /// How many more tokens it may ask for.
    pub attempts: u8,
    /// What it is doing.
    pub phase: Phase,
}

/// What a client is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    Idle,
    /// It asks for the lock.
    Asking(Asking),
    /// It has won the lock, and the lease is not over.
    Holding(Holding),
}

/// An attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asking {
    /// Names the lease to be, as an index.
    pub token: u8,
    /// When its first ACQUIRE was sent.
    pub sent: u8,
    /// The newest ballot.
    pub ballot: Ballot,
    /// How often it may still propose again.
    pub proposals: u8,
    /// The highest fence of all acquisitions that completed before this began.
    pub below: Ballot,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// Names the lease, as an index.
    pub token: u8,
    /// The ballot that it was won with.
    pub born: Ballot,
    /// The highest ballot ever sent for it.
    pub high: Ballot,
    /// When the request was sent that its validity counts from.
    pub confirmed: u8,
    /// How many more rounds of EXTEND it gets.
    pub extends: u8,
    /// The newest of them.
    pub round: Option<ExtendRound>,
    /// Whether the lock was taken away from it.
    pub taken: Taken,
}

/// A round of EXTEND.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtendRound {
    /// When it was sent.
    pub sent: u8,
    /// Whether a quorum has confirmed it.
    pub confirmed: bool,
    /// Whether the lock had been taken away when it was sent.
    pub taken: Taken,
    /// Whether another acquisition with a higher fence had completed by then.
    pub superseded: bool,
}

/// Whether a lock was taken away from its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Taken {
    /// It was not.
    No,
    /// A FORCE is under way that began when the lease had been won.
    UnderWay,
    /// A quorum of nodes has done that FORCE.
    Forced,
    /// A stranger deleted it on every node.
    Wiped,
}

/// A FORCE on its way to all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForceRound {
    /// When it was first sent: what is answered much later does not count.
    pub sent: u8,
    /// The newest ballot. Only nodes that accepted this one count.
    pub ballot: Ballot,
    /// The highest that a node wants to see surpassed.
    pub low: Ballot,
}

/// What may still happen in the run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// See [`Config`](crate::Config) for each.
    pub rejoins: u8,
    /// Resends of an ACQUIRE.
    pub resends: u8,
    /// Restarts and losses of memory.
    pub crashes: u8,
    /// FORCE.
    pub forces: u8,
    /// DEL on one node.
    pub deletes: u8,
    /// DEL on all nodes.
    pub wipes: u8,
}

/// What the properties need to know of the past.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct History {
    /// The highest fence of all acquisitions that have completed.
    pub highest: Ballot,
    /// The other fences that an attempt under way could still repeat.
    pub fences: Vec<Ballot>,
    /// Whether the lock was taken away from outside: then validity periods may overlap.
    pub interfered: bool,
    /// The promise that the last step broke.
    pub broken: Option<Broken>,
}

/// A promise that a step can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A fence was not higher than that of an acquisition completed before.
    FenceOrder,
    /// Two acquisitions have the same fence.
    FenceTwice,
    /// A lease was extended by a round that began after a FORCE had completed.
    ExtendedAfterForce,
    /// The same after a stranger had deleted it everywhere.
    ExtendedAfterWipe,
    /// The same after an acquisition with a higher fence had completed.
    ExtendedAfterSuccessor,
    /// What was released on a node appeared there again.
    StrayKey,
}

impl Phase {
    /// The lease that it is about.
    pub fn token(&self) -> Option<u8> {
        match self {
            Self::Idle => None,
            Self::Asking(asking) => Some(asking.token),
            Self::Holding(holding) => Some(holding.token),
        }
    }
}

impl Node {
    /// Puts a message on its way here; one that is there already stays one.
    pub fn send(&mut self, message: Message) {
        if let Err(place) = self.inbox.binary_search(&message) {
            self.inbox.insert(place, message);
        }
    }

    /// Whether the node's key has this value.
    pub fn has(stored: Option<&Stored>, token: &str) -> bool {
        stored.is_some_and(|stored| stored.value.as_deref() == Some(token.as_bytes()))
    }

    /// A node with this memory that nobody has sent anything.
    pub(crate) fn new(name: usize, state: NodeState) -> Self {
        let state = Arc::new(state);
        Self {
            name,
            rank: 0,
            saved: Some(state.clone()),
            state,
            inbox: Vec::new(),
            answers: [None; 2],
            forced: false,
            released: 0,
        }
    }

    /// A number to put nodes in order by; equal ones are as good as the same.
    pub(crate) fn rank(&self) -> u64 {
        self.rank
    }

    fn work_out_rank(&mut self) {
        let mut hasher = Mixer::default();
        self.state.hash(&mut hasher);
        self.saved.hash(&mut hasher);
        self.inbox.hash(&mut hasher);
        self.answers.hash(&mut hasher);
        self.forced.hash(&mut hasher);
        self.released.hash(&mut hasher);
        self.rank = hasher.finish().max(1);
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Node {}

impl Hash for Node {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.rank);
    }
}

impl State {
    /// A node, to change it.
    pub(crate) fn node_mut(&mut self, number: usize) -> &mut Node {
        let node = Arc::make_mut(&mut self.nodes[number]);
        node.rank = 0;
        node
    }

    /// Works out the rank of every node that was changed.
    pub(crate) fn rank_nodes(&mut self) {
        for node in &mut self.nodes {
            if node.rank == 0 {
                Arc::make_mut(node).work_out_rank();
            }
        }
    }
}
