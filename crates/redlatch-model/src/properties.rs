//! What must hold in every state, and what must be reached in some.

use redlatch_core::Verdict;
use stateright::{Expectation, Property};

use crate::client::is_valid;
use crate::config::Config;
use crate::model::LockModel;
use crate::state::{Broken, Node, Phase, State};

/// Of two leases, validity periods never overlap.
pub const EXCLUSION: &str = "two leases are never valid at once";
/// Fences grow, and none comes twice.
pub const FENCES: &str = "a fence is higher than those of all acquisitions before it";
/// A lock that an administrator took away stays away.
pub const FORCED: &str = "a lease taken by FORCE is not extended";
/// A lock that a stranger deleted everywhere stays away.
pub const WIPED: &str = "a lease deleted everywhere is not extended";
/// Goes beyond the promises.
pub const SUPERSEDED: &str = "a lease with a successor is not extended";
/// What RELEASE is for.
pub const STRAYS: &str = "what was released on a node stays released there";

/// The properties of a run of this size.
pub fn all(config: &Config) -> Vec<Property<LockModel>> {
    let mut all = vec![
        always(EXCLUSION, |_, state| {
            state.history.interfered || holders(state) < 2
        }),
        always(FENCES, |_, state| {
            !matches!(
                state.history.broken,
                Some(Broken::FenceOrder | Broken::FenceTwice)
            )
        }),
    ];
    if config.forces > 0 {
        all.push(always(FORCED, |_, state| {
            state.history.broken != Some(Broken::ExtendedAfterForce)
        }));
    }
    if config.wipes > 0 {
        all.push(always(WIPED, |_, state| {
            state.history.broken != Some(Broken::ExtendedAfterWipe)
        }));
    }
    if config.superseded {
        all.push(always(SUPERSEDED, |_, state| {
            state.history.broken != Some(Broken::ExtendedAfterSuccessor)
        }));
    }
    if config.strays {
        all.push(always(STRAYS, |_, state| {
            state.history.broken != Some(Broken::StrayKey)
        }));
    }
    // Without these a model in which nothing ever happens would hold as well.
    all.push(sometimes("the lock is won", |_, state| holders(state) > 0));
    if config.attempts.iter().sum::<u8>() > 1 {
        all.push(sometimes("the lock is won again", won_again));
    }
    if config.proposals > 0 {
        all.push(sometimes(
            "the lock is won by a re-proposal",
            |model, state| {
                is_winning(model, state, |asking| {
                    asking.proposals < model.config.proposals
                })
            },
        ));
    }
    if config.extends > 0 {
        all.push(sometimes("a lease is extended", extended));
    }
    if config.rejoins > 0 {
        all.push(sometimes("a node is rejoined", rejoined));
    }
    all
}

fn holders(state: &State) -> usize {
    let valid = |phase: &Phase| match phase {
        Phase::Holding(holding) => is_valid(holding.confirmed, state.now),
        _ => false,
    };
    let clients = state.clients.iter();
    clients.filter(|client| valid(&client.phase)).count()
}

fn is_winning(
    model: &LockModel,
    state: &State,
    how: impl Fn(&crate::state::Asking) -> bool,
) -> bool {
    let winning = |client: usize| match &state.clients[client].phase {
        Phase::Asking(asking) => {
            how(asking)
                && is_valid(asking.sent, state.now)
                && model.verdict(state, client) == Verdict::Won
        }
        _ => false,
    };
    (0..state.clients.len()).any(winning)
}

fn won_again(model: &LockModel, state: &State) -> bool {
    is_winning(model, state, |asking| asking.below.number() > 0)
}

fn extended(model: &LockModel, state: &State) -> bool {
    let confirmed = |client: usize| match &state.clients[client].phase {
        Phase::Holding(holding) => {
            holding.round.is_some() && model.verdict(state, client) == Verdict::Won
        }
        _ => false,
    };
    (0..state.clients.len()).any(confirmed)
}

/// Only REJOIN leaves a key with the lease's token under a higher ballot.
fn rejoined(model: &LockModel, state: &State) -> bool {
    let on_a_node = |phase: &Phase| match phase {
        Phase::Holding(holding) => state.nodes.iter().any(|node| {
            let token = model.tokens[usize::from(holding.token)].as_str();
            Node::has(node.state.get(&model.key), token)
                && model.slot_of(&node.state) > holding.born
        }),
        _ => false,
    };
    state.clients.iter().any(|client| on_a_node(&client.phase))
}

fn always(name: &'static str, condition: fn(&LockModel, &State) -> bool) -> Property<LockModel> {
    Property {
        expectation: Expectation::Always,
        name,
        condition,
    }
}

fn sometimes(name: &'static str, condition: fn(&LockModel, &State) -> bool) -> Property<LockModel> {
    Property {
        expectation: Expectation::Sometimes,
        name,
        condition,
    }
}
