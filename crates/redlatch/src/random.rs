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
    if crate::sim::fill(bytes) {
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
