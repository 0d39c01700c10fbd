//! One attempt over all nodes: replies in, verdict out.

use crate::request::Reply;

/// The replies of one round of requests, counted.
///
/// The quorum is counted over all *configured* nodes, never over those that
/// answered: two clients cut off from each other must not both win.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    nodes: u32,
    granted: u32,
    again: u32,
    refused: u32,
    failed: u32,
    /// One bit a node: a reply that comes twice must not count twice.
    voted: u64,
}

/// What one node's reply means for the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The node did what it was asked to.
    Granted,
    /// The node would, for another ballot.
    Again,
    /// The node said no.
    Refused,
    /// The node gave no usable answer: out of reach, too slow, broken.
    Failed,
}

impl From<&Reply> for Vote {
    fn from(reply: &Reply) -> Self {
        match reply {
            Reply::Granted | Reply::Extended | Reply::Released | Reply::Guard(_) => Self::Granted,
            Reply::Low { .. } | Reply::Future(_) => Self::Again,
            Reply::Held(_)
            | Reply::Kept
            | Reply::Queued { .. }
            | Reply::Missing
            | Reply::Foreign
            | Reply::Forced
            | Reply::Holder(_) => Self::Refused,
            Reply::Quarantined(_)
            | Reply::ClockBehind(_)
            | Reply::Mismatch(_)
            | Reply::TtlTooLong(_) => Self::Failed,
        }
    }
}

/// Where the round stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It can still go either way.
    Open,
    /// A quorum has granted.
    Won,
    /// No quorum has granted this ballot, but one would grant another.
    Again,
    /// So many nodes refused that no quorum is possible, whatever the others say.
    Refused,
    /// So many nodes failed that no quorum is possible, whatever the others say.
    Unavailable,
    /// No quorum is possible, for refusals and failures together: somebody has
    /// the lock on some nodes, and it can't be told what the failed ones hold.
    Mixed,
}

impl Round {
    /// The most nodes that a deployment can have.
    pub const MAX_NODES: usize = 64;

    /// A round over `nodes` nodes, none of which has answered.
    ///
    /// # Panics
    ///
    /// With no node at all, or with more than [`MAX_NODES`](Self::MAX_NODES).
    pub fn new(nodes: usize) -> Self {
        assert!((1..=Self::MAX_NODES).contains(&nodes), "1 to 64 nodes");
        Self {
            nodes: nodes as u32,
            granted: 0,
            again: 0,
            refused: 0,
            failed: 0,
            voted: 0,
        }
    }

    /// How many of `nodes` nodes make a quorum: more than half.
    pub fn quorum(nodes: usize) -> usize {
        nodes / 2 + 1
    }

    /// Counts the vote of the node with this number; a second vote of the same
    /// node is ignored. Says where the round stands now.
    pub fn vote(&mut self, node: usize, vote: Vote) -> Verdict {
        let bit = 1 << (node as u32 % u64::BITS);
        if node < self.nodes as usize && self.voted & bit == 0 {
            self.voted |= bit;
            match vote {
                Vote::Granted => self.granted += 1,
                Vote::Again => self.again += 1,
                Vote::Refused => self.refused += 1,
                Vote::Failed => self.failed += 1,
            }
        }
        self.verdict()
    }

    /// Where the round stands.
    pub fn verdict(&self) -> Verdict {
        let quorum = Self::quorum(self.nodes as usize) as u32;
        let spare = self.nodes - quorum;
        let pending = self.nodes - self.voted.count_ones();
        if self.granted >= quorum {
            Verdict::Won
        } else if self.granted + pending >= quorum {
            Verdict::Open
        } else if self.granted + self.again >= quorum {
            Verdict::Again
        } else if self.granted + self.again + pending >= quorum {
            Verdict::Open
        } else if self.refused > spare {
            Verdict::Refused
        } else if self.failed > spare {
            Verdict::Unavailable
        } else {
            Verdict::Mixed
        }
    }

    /// Where the round would stand if those nodes of `absent`, one bit a node,
    /// that have not answered had failed.
    pub fn verdict_without(&self, absent: u64) -> Verdict {
        let mut round = self.clone();
        round.fail(absent);
        round.verdict()
    }

    /// Counts those nodes of `absent`, one bit a node, as failed that have not
    /// answered. What they say later counts for nothing.
    pub fn fail(&mut self, absent: u64) {
        for node in 0..self.nodes as usize {
            if absent & (1 << node) != 0 {
                self.vote(node, Vote::Failed);
            }
        }
    }

    /// How many nodes have granted so far.
    pub fn granted(&self) -> usize {
        self.granted as usize
    }

    /// Whether every node has answered, and each said no.
    pub fn is_refused_by_all(&self) -> bool {
        self.refused == self.nodes
    }

    /// Whether every node has answered or failed.
    pub fn is_complete(&self) -> bool {
        self.voted.count_ones() == self.nodes
    }
}

/// Whether a contender keeps what it was granted, when no one has a quorum: the
/// one with most grants does, of several the one with the smallest token, and
/// asks the other nodes again. All others give back what they have, at once.
///
/// `holders` is who has the lock on each node that refused, as far as it is known.
pub fn keeps<'a>(
    token: &[u8],
    granted: usize,
    holders: impl Iterator<Item = Option<&'a [u8]>>,
) -> bool {
    let mut others: Vec<Option<&[u8]>> = holders.collect();
    others.sort_unstable();
    granted > 0
        && others
            .chunk_by(|one, other| one == other)
            .all(|same| match same[0] {
                _ if granted != same.len() => granted > same.len(),
                Some(other) => token < other,
                // Nobody knows who would yield.
                None => false,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last two of five nodes.
    const SILENT: u64 = 0b11000;

    fn round(votes: [Vote; 3]) -> Round {
        let mut round = Round::new(5);
        for (node, vote) in votes.into_iter().enumerate() {
            round.vote(node, vote);
        }
        round
    }

    #[test]
    fn without_those_who_are_silent_a_split_is_certain() {
        let mut round = round([Vote::Granted, Vote::Granted, Vote::Refused]);
        assert_eq!(round.verdict(), Verdict::Open);
        assert_eq!(round.verdict_without(0), Verdict::Open);
        assert_eq!(round.verdict_without(SILENT), Verdict::Mixed);
        round.fail(SILENT);
        assert_eq!(round.verdict(), Verdict::Mixed);
        assert_eq!(round.vote(3, Vote::Granted), Verdict::Mixed, "too late");
        assert_eq!(round.granted(), 2);
        assert!(round.is_complete());
    }

    #[test]
    fn without_those_who_are_silent_another_ballot_is_certain() {
        let round = round([Vote::Again, Vote::Granted, Vote::Granted]);
        assert_eq!(round.verdict(), Verdict::Open);
        assert_eq!(round.verdict_without(SILENT), Verdict::Again);
    }

    #[test]
    fn one_who_was_silent_and_answers_counts() {
        let mut round = round([Vote::Granted, Vote::Granted, Vote::Refused]);
        assert_eq!(round.vote(3, Vote::Granted), Verdict::Won);
        assert_eq!(round.verdict_without(SILENT), Verdict::Won);
    }
}
