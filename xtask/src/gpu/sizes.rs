//! The model that is run, and how often.

/// The sizes of a model and of its batch.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub blocks: usize,
    pub width: usize,
    pub heads: usize,
    pub vocabulary: usize,
    pub sequence: usize,
    pub batch: usize,
    /// Measured steps of a run.
    pub steps: usize,
    /// Rows and columns of the product that is the ceiling.
    pub extent: usize,
}

const GPT2: Sizes = Sizes {
    blocks: 12,
    width: 768,
    heads: 12,
    vocabulary: 50257,
    sequence: 1024,
    batch: 32,
    steps: 10,
    extent: 8192,
};

const SMALL: Sizes = Sizes {
    blocks: 2,
    width: 32,
    heads: 2,
    vocabulary: 256,
    sequence: 16,
    batch: 8,
    steps: 2,
    extent: 32,
};

/// Micro-batches of the runs that have more than one.
pub const MICRO_BATCHES: usize = 8;

/// Steps that are run and not counted: the first compiles, makes handles and fills the pool.
pub const WARM_UP: usize = 3;

impl Sizes {
    /// GPT-2 with 124 million parameters, or one of no use that tries the measurement itself.
    pub fn new(small: bool) -> Self {
        if small { SMALL } else { GPT2 }
    }

    /// The same with batches of another size.
    pub fn with_batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// As flags of gpipe.
    pub fn flags(&self) -> Vec<String> {
        let keys = [
            ("blocks", self.blocks),
            ("width", self.width),
            ("heads", self.heads),
            ("vocab", self.vocabulary),
        ];
        let mut flags: Vec<String> = ["--model", "gpt2"].map(str::to_owned).to_vec();
        for (key, value) in keys {
            flags.extend(["--set".to_owned(), format!("model.{key}={value}")]);
        }
        for (flag, value) in [("--seq-len", self.sequence), ("--batch-size", self.batch)] {
            flags.extend([flag.to_owned(), value.to_string()]);
        }
        flags
    }

    pub fn tokens(&self) -> usize {
        self.batch * self.sequence
    }

    /// FLOPs of a step: three times the forward pass's products, attention in full.
    pub fn flops(&self) -> f64 {
        let block = 24 * self.width * self.width + 4 * self.sequence * self.width;
        let head = 2 * self.width * self.vocabulary;
        3.0 * self.tokens() as f64 * (self.blocks * block + head) as f64
    }
}
