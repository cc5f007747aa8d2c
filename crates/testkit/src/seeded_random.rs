//! Random choices from a seed. Thread timing is not repeatable, so a seed repeats the plan of a run, not every step.

/// The splitmix64 generator.
#[derive(Debug, Clone)]
pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A separate generator for each client and round.
    #[must_use]
    pub fn branch(&self, client: usize, round: u64) -> Self {
        let mut mixed = Self(self.0 ^ (round << 16) ^ client as u64);
        Self(mixed.draw())
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    /// An index below `length`.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a length")
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// 32 hexadecimal digits, the format of a claim token.
    pub fn token(&mut self) -> String {
        format!("{:016x}{:016x}", self.draw(), self.draw())
    }
}
