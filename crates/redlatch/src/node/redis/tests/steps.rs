//! What may happen to a node, drawn at random.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use redlatch_core::{Ballot, Ballots, GuardOrder, Key, Request, Ticket, Token, Ttl};

use super::{CHANNEL, MAX_TTL};

/// What may happen to a node, in steps.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Ask(Request),
    /// The same again, as after a lost reply.
    AskTwice(Request),
    /// Several at once, each about another lock.
    AskTogether(Vec<Request>),
    /// A stranger writes a string.
    Put(Key, String),
    /// A stranger writes something that is not a string.
    PutList(Key),
    /// A stranger deletes the key.
    Delete(Key),
    /// The key's time is over.
    Expire(Key),
    /// The turn of the first who waits is over.
    PassTurn(Key),
    /// What is parked has been there for too long.
    PassParking(Key),
    /// The quarantine is over.
    Arm,
    /// The clock was stepped back during a quarantine.
    FarAhead,
    /// It was stepped back by so many seconds before the last quarantine, which
    /// is over.
    FloorAhead(u64),
    /// The client now names another deployment, or the first one again.
    Deployment(u8),
    /// One asks now that has the guard off, until the deployment changes.
    Unguarded,
    FlushScripts,
    FlushAll,
    Restart,
    RestartEmpty,
}

/// Any request, about three keys; ballots are around twenty seconds.
pub(in crate::node) fn requests() -> impl Strategy<Value = Request> {
    let key = || (0..3u8).prop_map(|n| Key::new(format!("k{n}")));
    let token = || (0..3u8).prop_map(|n| Token::parse(&format!("t{n} {{\"pid\":1}}")).unwrap());
    // Far enough apart that the time a test takes makes no difference. The
    // longest one is too long.
    let ttl = || (1..8u64).prop_map(|n| Ttl::new(Duration::from_secs(600 * n)).unwrap());
    // Around now, in half seconds that no limit falls on; made absolute later.
    let ballot = || (0..40u64).prop_map(|n| Ballot::at(n * 1000 + 500, 1 + n % 3));
    let plain = || prop::option::weighted(0.8, ballot());
    // Within the second before now, so that no clock cuts it; made absolute later.
    let ticket = || {
        let parks = prop::option::weighted(0.7, 0..100u64);
        (ticket_name(), 0..8u64, parks).prop_map(|(name, n, parks)| {
            let since = Some(Ballot::at(19_000 + 100 * n, n).number());
            Ticket { name, since, parks }
        })
    };
    let ticket_or_none = || prop::option::weighted(0.3, ticket_name());
    prop_oneof![
        12 => (key(), token(), ttl(), plain(), prop::option::weighted(0.7, ticket())).prop_map(
            |(key, token, ttl, ballot, ticket)| Request::Acquire { key, token, ttl, ballot, ticket }),
        3 => (key(), token(), ttl(), ballot(), ballot()).prop_map(
            |(key, token, ttl, born, ballot)| Request::Rejoin { key, token, ttl, born, ballot }),
        4 => (key(), token(), ttl(), any::<bool>())
            .prop_map(|(key, token, ttl, plain)| Request::Extend { key, token, ttl, plain }),
        7 => (key(), token(), plain(), ticket_or_none(), ticket_or_none()).prop_map(
            |(key, token, ballot, leaves, unparks)| {
                let ballots = ballot.map(Ballots::up_to);
                Request::Release { key, token, ballots, leaves, unparks }
            }),
        2 => (key(), ballot()).prop_map(|(key, ballot)| Request::Force { key, ballot }),
        3 => key().prop_map(|key| Request::Inspect { key }),
        1 => Just(Request::Guard(GuardOrder::Read)),
        1 => Just(Request::Guard(GuardOrder::AssumeFresh)),
        1 => prop::bool::weighted(0.2).prop_map(|change| match change {
            true => Request::Guard(GuardOrder::Reconfigure),
            false => Request::Guard(GuardOrder::AssumeFresh),
        }),
    ]
}

/// Requests that can go with others, mostly.
fn simple_requests() -> impl Strategy<Value = Request> {
    let longest = Ttl::new(Duration::from_secs(MAX_TTL)).unwrap();
    requests().prop_filter_map("about a lock", move |mut request| {
        match &mut request {
            Request::Acquire { ttl, ticket, .. } => {
                *ticket = None;
                // Of those that are too long some stay.
                if *ttl > longest && ttl.millis() % 7 > 0 {
                    *ttl = longest;
                }
            }
            Request::Release {
                leaves, unparks, ..
            } => (*leaves, *unparks) = (None, None),
            Request::Extend { .. } => {}
            _ => return None,
        }
        Some(request)
    })
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || (0..3u8).prop_map(|n| Key::new(format!("k{n}")));
    let step = prop_oneof![
        60 => requests().prop_map(Step::Ask),
        8 => requests().prop_map(Step::AskTwice),
        30 => prop::collection::vec(simple_requests(), 2..6).prop_map(Step::AskTogether),
        3 => (key(), "[a-z]{0,3}").prop_map(|(key, value)| Step::Put(key, value)),
        2 => key().prop_map(Step::PutList),
        3 => key().prop_map(Step::Delete),
        6 => key().prop_map(Step::Expire),
        6 => key().prop_map(Step::PassTurn),
        2 => key().prop_map(Step::PassParking),
        8 => Just(Step::Arm),
        1 => Just(Step::FarAhead),
        2 => prop_oneof![Just(3), Just(60)].prop_map(Step::FloorAhead),
        2 => (0..4u8).prop_map(Step::Deployment),
        1 => Just(Step::Unguarded),
        2 => Just(Step::FlushScripts),
        1 => Just(Step::FlushAll),
        // These take a while, so they are rare.
        1 => (0..20u8).prop_map(|n| match n {
            0 => Step::Restart,
            1 => Step::RestartEmpty,
            _ => Step::FlushAll,
        }),
    ];
    prop::collection::vec(step, 1..80)
}

/// Three that can be called, and one that is gone.
fn ticket_name() -> impl Strategy<Value = Arc<str>> {
    (0..8u8).prop_map(|n| format!("{CHANNEL}{}#{}", n / 2, n % 2).into())
}
