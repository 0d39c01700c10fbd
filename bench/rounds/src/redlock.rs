//! Plain Redlock, as published: on failure give everything back, and try again
//! after a random delay.

use std::time::Duration;

use redlatch::core::{Key, Request, Round, Token, Ttl, Verdict, Vote};
use redlatch::node::Node;
use tokio::sync::mpsc;

use crate::node::Line;
use redlatch_testkit::Dice;

/// From, to: redsync's documented default. node-redlock's is 100 to 300 ms.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

const TIMEOUT: Duration = Duration::from_millis(50);

/// One who contends by the rules of Redlock.
pub(crate) struct Redlock {
    pub(crate) lines: Vec<Line>,
    pub(crate) key: Key,
    pub(crate) dice: Dice,
}

impl Redlock {
    /// Tries until it has the lock.
    pub(crate) async fn lock(&mut self) -> Token {
        loop {
            let token = crate::token(&mut self.dice);
            let token = Token::with_id(&token, "").expect("an id as they should be");
            let acquire = Request::Acquire {
                key: self.key.clone(),
                token: token.clone(),
                ttl: Ttl::new(Duration::from_secs(10)).expect("a ttl as usual"),
                ballot: None,
                ticket: None,
            };
            if self.ask_all(acquire).await == Verdict::Won {
                return token;
            }
            self.release(token).await;
            tokio::time::sleep(self.dice.time(RETRY.0, RETRY.1)).await;
        }
    }

    pub(crate) async fn release(&self, token: Token) {
        self.ask_all(Request::Release {
            key: self.key.clone(),
            token,
            ballots: None,
            leaves: None,
            unparks: None,
        })
        .await;
    }

    /// Asks all nodes at the same time, and goes on when it is decided: some
    /// do worse, and wait for all of them.
    async fn ask_all(&self, request: Request) -> Verdict {
        let (sender, mut votes) = mpsc::unbounded_channel();
        for (node, line) in self.lines.iter().enumerate() {
            let (call, sender) = (line.call(request.clone(), TIMEOUT), sender.clone());
            tokio::spawn(async move {
                let vote = call.await.as_ref().map_or(Vote::Failed, Vote::from);
                let _ = sender.send((node, vote));
            });
        }
        drop(sender);
        let mut round = Round::new(self.lines.len());
        while round.verdict() == Verdict::Open
            && let Some((node, vote)) = votes.recv().await
        {
            round.vote(node, vote);
        }
        round.verdict()
    }
}
