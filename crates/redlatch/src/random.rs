//! The only place that draws random numbers: from the operating system, but
//! for simulations, where the same seed has to give the same run.

/// Fills `bytes`.
///
/// # Panics
///
/// When the operating system has no random source. A lock must not go on
/// without one: two leases with the same token would be one lease.
pub(crate) fn fill(bytes: &mut [u8]) {
    #[cfg(feature = "simulation")]
    if seeded::fill(bytes) {
        return;
    }
    getrandom::fill(bytes).expect("the operating system's random source");
}

/// A random number, to spread retries with.
pub(crate) fn number() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// A random number from 0 up to, but not including, 1.
pub(crate) fn fraction() -> f64 {
    (number() >> 11) as f64 / (1u64 << 53) as f64
}

/// Random numbers from a seed, on threads that ask for it.
#[cfg(feature = "simulation")]
pub(crate) mod seeded {
    use std::cell::Cell;

    thread_local! {
        static SEED: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// From here on, on this thread, all that is random follows from `seed`.
    pub fn seed_random(seed: u64) {
        SEED.set(Some(seed));
    }

    /// From here on, this thread asks the operating system again.
    pub fn unseed_random() {
        SEED.set(None);
    }

    /// Fills `bytes` by SplitMix64; false where nobody has given a seed.
    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        let Some(mut seed) = SEED.get() else {
            return false;
        };
        for chunk in bytes.chunks_mut(8) {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..chunk.len()]);
        }
        SEED.set(Some(seed));
        true
    }
}
