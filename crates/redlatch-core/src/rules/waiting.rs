//! Those who wait: whose turn it is, and what they have parked.

use super::{NodeState, Scene};
use crate::fence::Ballot;
use crate::queue::{News, Parked, Queue, Ticket};
use crate::request::Key;
use crate::token::Token;
use crate::validity::Ttl;

impl NodeState {
    /// Keeps the request of one who has taken its place among those who wait.
    pub(super) fn park(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Ttl,
        ballot: Option<Ballot>,
        ticket: Option<&Ticket>,
        scene: &Scene<'_>,
    ) {
        if let Some((ticket, number)) = ticket.and_then(|ticket| Some((ticket, ticket.parks?)))
            && let Some(queue) = self.queues.get_mut(key)
        {
            queue.park(Parked {
                ticket: ticket.name.clone(),
                number,
                token: token.clone(),
                ttl,
                ballot,
                last: scene.line(key).parking_ends(),
            });
        }
    }

    /// A client that asks anew does not want any more what it had parked.
    pub(super) fn withdraw(&mut self, key: &Key, ticket: Option<&Ticket>) {
        if let Some(ticket) = ticket {
            self.with_queue(key, |queue| queue.withdraw(&ticket.name));
        }
    }

    /// Grants the lock, which is given back, to the request that the first has
    /// parked, by the rules for one that has just come. False when nobody has it
    /// now, whatever is stored.
    pub(super) fn hand_on(&mut self, key: &Key, by_plain: bool, scene: &Scene<'_>) -> bool {
        let line = scene.line(key);
        let Some(parked) = self.queues.get(key).and_then(|queue| queue.at_hand(&line)) else {
            return false;
        };
        let parked = parked.clone();
        if let Some(ballot) = parked.ballot {
            let seen = self.weigh(key, ballot, scene);
            let is_admitted = seen.is_ok_and(|seen| ballot > seen) && self.is_on_guard(scene);
            // Who gives back a plain lock knows nothing of ballots.
            if by_plain || !is_admitted {
                return false;
            }
        }
        // All is written before anything is said: a server that can't write must
        // not have told anybody that it did.
        if let Some(ballot) = parked.ballot {
            self.raise(key, ballot);
        }
        self.store(key, &parked.token, parked.ttl, scene.now);
        // Before the one that is granted is called: a server writes first to the
        // client that it has called last.
        let ballot = parked.ballot.unwrap_or_default();
        self.with_queue(key, |queue| {
            queue.granted(Some(&parked.ticket), ballot, &line);
        });
        line.call(&parked.ticket, News::Granted(parked.number))
    }

    /// Whether the lock, which is free, is kept for somebody else.
    pub(super) fn yields(&mut self, key: &Key, ticket: Option<&Ticket>, scene: &Scene<'_>) -> bool {
        let line = scene.line(key);
        self.with_queue(key, |queue| queue.is_turn_of_another(ticket, &line))
            .unwrap_or(false)
    }

    pub(super) fn leave(&mut self, key: &Key, ticket: &str, scene: &Scene<'_>) {
        let is_free = !self.keys.contains_key(key);
        let line = scene.line(key);
        self.with_queue(key, |queue| queue.leave(ticket, is_free, &line));
    }

    /// Does something with the queue for this lock, if there is one; one that
    /// nobody stands in leaves nothing behind.
    pub(super) fn with_queue<T>(
        &mut self,
        key: &Key,
        act: impl FnOnce(&mut Queue) -> T,
    ) -> Option<T> {
        let queue = self.queues.get_mut(key)?;
        let done = act(queue);
        if queue.is_empty() {
            self.queues.remove(key);
        }
        Some(done)
    }
}
