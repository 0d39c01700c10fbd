//! Random numbers from a seed.

use std::time::Duration;

/// SplitMix64: small, and good enough to choose faults and spread delays.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Numbers that all follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    /// A time from `least` up to, but not including, `most`.
    pub fn time(&mut self, least: Duration, most: Duration) -> Duration {
        least + Duration::from_nanos(self.below((most - least).as_nanos() as u64))
    }

    /// A time of so many milliseconds, from `least` up to, but not including, `most`.
    pub fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }

    /// Puts the items into another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}
