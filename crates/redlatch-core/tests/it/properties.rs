//! What must hold for every input, also the absurd ones.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use redlatch_core::validity::TtlError;
use redlatch_core::{
    Backoff, Ballot, Ballots, Instant, Key, Lease, NodeState, Owner, Reply, Request, Round, Scene,
    Step, Terms, Token, Ttl, Verdict, Vote, keeps,
};

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0..200_000u64).prop_map(Duration::from_millis),
        (any::<u64>(), 0..1_000_000_000u32).prop_map(|(s, n)| Duration::new(s, n)),
    ]
}

fn any_ttl() -> impl Strategy<Value = Ttl> {
    (1..=86_400_000u64).prop_map(|millis| Ttl::new(Duration::from_millis(millis)).unwrap())
}

fn any_instant() -> impl Strategy<Value = Instant> {
    (any_duration(), any_duration()).prop_map(|(boot, real)| Instant::new(boot, real))
}

proptest! {
    #[test]
    fn every_duration_is_a_ttl_or_is_refused(duration in any_duration()) {
        match Ttl::new(duration) {
            Ok(ttl) => {
                prop_assert!(ttl.duration() <= duration);
                prop_assert!(duration - ttl.duration() < Duration::from_millis(1));
            }
            Err(TtlError::Zero) => prop_assert!(duration < Duration::from_millis(1)),
            Err(TtlError::TooLong(_)) => prop_assert!(duration > Ttl::MAX),
        }
    }

    #[test]
    fn validity_and_age_never_exceed_the_ttl(ttl in any_ttl(), age in any_duration()) {
        let validity = ttl.validity(age);
        if !validity.is_zero() {
            prop_assert_eq!(validity + age + ttl.drift(), ttl.duration());
        }
    }

    #[test]
    fn elapsed_time_is_at_least_what_either_clock_says(
        boot in 0..u64::MAX / 2, real in 0..u64::MAX / 2, more in 0..u64::MAX / 2, step in any::<i64>(),
    ) {
        let early = Instant::new(Duration::from_nanos(boot), Duration::from_nanos(real));
        let later_real = Duration::from_nanos(real.saturating_add_signed(step));
        let late = Instant::new(Duration::from_nanos(boot + more), later_real);
        prop_assert!(late.since(early) >= Duration::from_nanos(more));
        prop_assert!(late.since(early) >= later_real.saturating_sub(Duration::from_nanos(real)));
    }

    #[test]
    fn backoff_stays_within_its_bounds(
        first in any_duration(), limit in any_duration(), refusals: u32, random: u64,
    ) {
        let delay = Backoff { first, limit }.delay(refusals, random);
        prop_assert!(delay <= limit);
    }

    #[test]
    fn at_most_one_side_wins_a_split(nodes in 1..=64usize, mask: u64) {
        let mut ours = Round::new(nodes);
        let mut theirs = Round::new(nodes);
        for node in 0..nodes {
            let granted = mask & (1 << node) != 0;
            let vote = |granted| if granted { Vote::Granted } else { Vote::Refused };
            ours.vote(node, vote(granted));
            theirs.vote(node, vote(!granted));
        }
        prop_assert!(!(ours.verdict() == Verdict::Won && theirs.verdict() == Verdict::Won));
        prop_assert!(ours.verdict() != Verdict::Open);
    }

    #[test]
    fn a_verdict_once_given_stands(votes in prop::collection::vec(0..4u8, 1..=64)) {
        let mut round = Round::new(votes.len());
        let mut last = Verdict::Open;
        for (node, vote) in votes.iter().enumerate() {
            let vote = [Vote::Granted, Vote::Refused, Vote::Failed, Vote::Again][usize::from(*vote)];
            let verdict = round.vote(node, vote);
            match last {
                Verdict::Open => {}
                Verdict::Won => prop_assert_eq!(verdict, Verdict::Won),
                // More may become known of why it was not won, never that it was.
                _ => prop_assert!(verdict != Verdict::Won && verdict != Verdict::Open),
            }
            last = verdict;
        }
        prop_assert!(round.is_complete());
        prop_assert!(last != Verdict::Open);
    }

    /// Nodes that were split between contenders: the number of each is its token.
    #[test]
    fn of_those_who_split_the_nodes_exactly_one_keeps_what_it_has(
        holders in prop::collection::vec(0..9u8, 1..9),
    ) {
        let tokens = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|token: u8| [token]);
        let keepers = tokens.iter().filter(|token| {
            let granted = holders.iter().filter(|holder| **holder == token[0]).count();
            let others = holders.iter().filter(|holder| **holder != token[0]);
            keeps(&token[..], granted, others.map(|holder| Some(&tokens[usize::from(*holder)][..])))
        });
        prop_assert_eq!(keepers.count(), 1);
    }

    /// A bare `SET NX` says nothing about who has the key.
    #[test]
    fn nobody_keeps_what_it_has_against_more_or_as_many_unknown(
        granted in 0..9usize, unknown in 0..9usize,
    ) {
        let kept = keeps(b"token", granted, (0..unknown).map(|_| None));
        prop_assert_eq!(kept, granted > unknown);
    }

    /// Whatever the clock and the nodes do, a lease only ever gets more time
    /// from a confirmation, and never more than the confirmed request is worth.
    #[test]
    fn a_lease_never_outlives_what_the_nodes_confirmed(
        ttl in any_ttl(),
        renewal: bool,
        max_hold in prop::option::of(any_duration()),
        events in prop::collection::vec((any_instant(), any_instant(), any_ttl(), 0..4u8), 1..40),
    ) {
        let terms = Terms { ttl, renewal, max_hold };
        let born = events[0].0;
        let length = Lease::first_length(terms);
        let mut lease = Lease::granted(terms, born, length);
        let mut confirmed = vec![(born, length)];
        let mut lost = false;
        for (now, sent, length, event) in events {
            match event {
                0 => {
                    if lease.extended(sent, length, now) {
                        confirmed.push((sent, length));
                    }
                }
                1 => lease.extending(now),
                2 => {
                    if let Step::Renew(asked) = lease.next(now) {
                        let longest = confirmed.iter().map(|(_, length)| *length).max();
                        prop_assert!(Some(asked) <= longest.max(Some(ttl)));
                    }
                }
                _ => {
                    let left = lease.remaining(now);
                    let most = confirmed.iter().map(|(sent, length)| length.validity(now.since(*sent)));
                    prop_assert!(left <= most.max().unwrap_or_default());
                }
            }
            let is_lost = lease.loss(now).is_some();
            prop_assert!(is_lost || !lost, "a lost lease came back");
            lost = is_lost;
        }
    }

    #[test]
    fn no_request_makes_two_holders(steps in prop::collection::vec((0..6u8, 0..3u8, 1..2_000u64), 1..200)) {
        let key = Key::new("k");
        let mut node = NodeState::default();
        let mut now = 0;
        let run: Arc<str> = "run".into();
        // The highest ballot that was granted to a lease of its own.
        let mut fence = Ballot::default();
        // Who has been granted the key, and until when at least.
        let mut holder: Option<(u8, u64)> = None;
        for (step, client, time) in steps {
            let token = Token::with_id(&client.to_string(), "").unwrap();
            let ttl = Ttl::new(Duration::from_millis(time)).unwrap();
            let key = key.clone();
            let live = holder.filter(|(_, until)| now < *until);
            let scene = Scene::new(now, &run, None);
            let ballot = (client > 0).then(|| Ballot::at(now, time));
            match step {
                0 | 1 => {
                    let held = node.get(&key).is_some_and(|stored| {
                        stored.last_millisecond >= Some(now)
                    });
                    let reply = node.apply(&Request::Acquire { key, token, ttl, ballot, ticket: None }, &scene);
                    if reply == Reply::Granted {
                        match live {
                            Some((other, _)) => prop_assert_eq!(other, client),
                            None if held => {}
                            None => {
                                holder = Some((client, now + time));
                                if let Some(ballot) = ballot {
                                    prop_assert!(ballot > fence);
                                }
                            }
                        }
                        fence = fence.max(ballot.unwrap_or_default());
                    }
                }
                2 => {
                    let plain = client == 0;
                    let reply = node.apply(&Request::Extend { key, token, ttl, plain }, &scene);
                    if let (Reply::Extended, Some((other, until))) = (reply, live) {
                        prop_assert_eq!(other, client);
                        holder = Some((client, until.max(now + time)));
                    }
                }
                3 => {
                    let ballots = ballot.map(Ballots::up_to);
                    let release = Request::Release { key, token, ballots, leaves: None, unparks: None };
                    if node.apply(&release, &scene) == Reply::Released {
                        if let Some((other, _)) = live {
                            prop_assert_eq!(other, client);
                        }
                        holder = None;
                    }
                }
                4 => node.sweep(now),
                _ => now += time,
            }
        }
    }

    #[test]
    fn what_an_owner_says_is_read_back(
        host in prop::option::of(".*"), pid in prop::option::of(any::<u32>()), note in prop::option::of(".*"),
    ) {
        let mut owner = Owner::default();
        owner.host = host;
        owner.pid = pid;
        owner.note = note;
        let token = Token::random([1; 20], &owner.suffix());
        prop_assert_eq!(Owner::read(token.as_str().as_bytes()), owner);
        prop_assert_eq!(Token::parse(token.as_str()).unwrap(), token);
    }

    #[test]
    fn no_value_of_a_stranger_panics(value in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Owner::read(&value).to_string();
    }
}
