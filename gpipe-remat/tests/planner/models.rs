//! Twenty models as lists of layer costs, from the shapes in their papers.

use gpipe_remat::planner::Described;

/// A model, its samples per step and its layers.
pub struct Model {
    pub name: &'static str,
    pub batch: usize,
    pub layers: Vec<Described>,
}

/// The models. Language models have 1,024 tokens a sample where nothing else is said.
pub fn all() -> Vec<Model> {
    let model = |name, batch, layers| Model {
        name,
        batch,
        layers,
    };
    let gpt2 = |blocks, width| transformer(blocks, &Block::gpt(width, 1024), 50_257);
    let bert = |blocks, width| transformer(blocks, &Block::gpt(width, 512), 30_522);
    vec![
        model("GPT-2 small", 64, gpt2(12, 768)),
        model("GPT-2 medium", 64, gpt2(24, 1024)),
        model("GPT-2 large", 64, gpt2(36, 1280)),
        model("GPT-2 XL", 64, gpt2(48, 1600)),
        model(
            "GPT-3 175B",
            128,
            transformer(96, &Block::gpt(12_288, 2048), 50_257),
        ),
        model("BERT base", 64, bert(12, 768)),
        model("BERT large", 64, bert(24, 1024)),
        model(
            "Llama 7B",
            64,
            transformer(32, &Block::llama(4096, 4096, 11_008), 32_000),
        ),
        model(
            "Llama 2 70B",
            128,
            transformer(80, &Block::llama(8192, 1024, 28_672), 32_000),
        ),
        model(
            "Llama 3 8B",
            64,
            transformer(32, &Block::llama(4096, 1024, 14_336), 128_256),
        ),
        model(
            "Qwen2 0.5B",
            64,
            transformer(24, &Block::llama(896, 128, 4864), 151_936),
        ),
        model("T5 base", 64, t5(12, 768, 3072, 32_128)),
        model(
            "Transformer-L of GPipe",
            32,
            transformer(48, &Block::gpt(2048, 1024), 32_000),
        ),
        model("ViT-B/16", 128, vision(12, 768)),
        model("ViT-L/16", 128, vision(24, 1024)),
        model("ResNet-50", 128, resnet([3, 4, 6, 3])),
        model("ResNet-152", 128, resnet([3, 8, 36, 3])),
        model("VGG-16", 128, vgg16()),
        model("GNMT, 8 layers a side", 128, gnmt(8, 1024, 32_000)),
        model(
            "the article of Lingvo",
            16,
            bare(&[10.0, 40.0, 30.0, 10.0, 20.0, 50.0, 10.0]),
        ),
    ]
}

/// A layer of `forward` multiply-adds a sample: each of its gradients takes as many.
fn layer(name: String, forward: f64, input_grad: f64, weight_grad: f64) -> Described {
    Described {
        name,
        forward,
        input_grad,
        weight_grad,
        ..Described::default()
    }
}

fn product(name: String, work: f64) -> Described {
    layer(name, work, work, work)
}

/// The extents of a block of a Transformer.
struct Block {
    tokens: f64,
    width: f64,
    /// Columns of keys, and of values.
    keys: f64,
    /// Multiply-adds of the feed-forward layer per token.
    feed_forward: f64,
}

impl Block {
    fn gpt(width: u32, tokens: u32) -> Self {
        let width = f64::from(width);
        Self {
            tokens: f64::from(tokens),
            width,
            keys: width,
            feed_forward: 8.0 * width * width,
        }
    }

    /// Gated feed-forward layers, of three matrices.
    fn llama(width: u32, keys: u32, inner: u32) -> Self {
        let width = f64::from(width);
        Self {
            tokens: 4096.0,
            width,
            keys: f64::from(keys),
            feed_forward: 3.0 * width * f64::from(inner),
        }
    }

    fn attention(&self, name: String) -> Described {
        let weights = self.tokens * self.width * (2.0 * self.width + 2.0 * self.keys);
        let scores = 2.0 * self.tokens * self.tokens * self.width;
        layer(name, weights + scores, weights + 2.0 * scores, weights)
    }

    fn feed_forward(&self, name: String) -> Described {
        product(name, self.tokens * self.feed_forward)
    }

    fn layers(&self, index: usize) -> [Described; 2] {
        [
            self.attention(format!("block {index} attention")),
            self.feed_forward(format!("block {index} feed-forward")),
        ]
    }

    /// Additions alone.
    fn embedding(&self, name: &str) -> Described {
        let sums = self.tokens * self.width;
        layer(name.to_owned(), sums, 0.0, sums)
    }

    fn head(&self, classes: u32) -> Described {
        product(
            "head".to_owned(),
            self.tokens * self.width * f64::from(classes),
        )
    }
}

fn transformer(blocks: usize, block: &Block, vocabulary: u32) -> Vec<Described> {
    let norm = 5.0 * block.tokens * block.width;
    std::iter::once(block.embedding("embedding"))
        .chain((0..blocks).flat_map(|index| block.layers(index)))
        .chain([product("norm".to_owned(), norm), block.head(vocabulary)])
        .collect()
}

/// Encoder, then decoder with attention to the encoder's output, 512 tokens each.
fn t5(blocks: usize, width: u32, inner: u32, vocabulary: u32) -> Vec<Described> {
    let mut block = Block::gpt(width, 512);
    block.feed_forward = 2.0 * f64::from(width) * f64::from(inner);
    let encoder = (0..blocks).flat_map(|index| block.layers(index));
    let decoder = (blocks..2 * blocks).flat_map(|index| {
        let [own, feed_forward] = block.layers(index);
        let other = block.attention(format!("block {index} cross-attention"));
        [own, other, feed_forward]
    });
    let ends = (block.embedding("embedding"), block.head(vocabulary));
    std::iter::once(ends.0)
        .chain(encoder)
        .chain(decoder)
        .chain([ends.1])
        .collect()
}

/// Images of 224 × 224 in patches of 16 × 16, and a head that sees one token.
fn vision(blocks: usize, width: u32) -> Vec<Described> {
    let block = Block::gpt(width, 197);
    let patches = product("patches".to_owned(), 196.0 * 768.0 * f64::from(width));
    let head = product("head".to_owned(), f64::from(width) * 1000.0);
    std::iter::once(patches)
        .chain((0..blocks).flat_map(|index| block.layers(index)))
        .chain([head])
        .collect()
}

/// A convolution of a square image: `size` rows of output.
fn convolution(size: f64, kernel: f64, from: f64, to: f64) -> f64 {
    size * size * kernel * kernel * from * to
}

/// Bottleneck blocks of 1 × 1, 3 × 3 and 1 × 1, one layer each; the head's average pool in its layer.
fn resnet(blocks: [usize; 4]) -> Vec<Described> {
    let mut layers = vec![product(
        "stem".to_owned(),
        convolution(112.0, 7.0, 3.0, 64.0),
    )];
    let mut from = 64.0;
    for (stage, blocks) in blocks.into_iter().enumerate() {
        let size = 56.0 / f64::from(1_u32 << stage);
        let narrow = 64.0 * f64::from(1_u32 << stage);
        let wide = 4.0 * narrow;
        for index in 0..blocks {
            // The stride is in the second convolution.
            let before = if index == 0 && stage > 0 {
                2.0 * size
            } else {
                size
            };
            let mut work = convolution(before, 1.0, from, narrow)
                + convolution(size, 3.0, narrow, narrow)
                + convolution(size, 1.0, narrow, wide);
            if index == 0 {
                work += convolution(size, 1.0, from, wide);
            }
            layers.push(product(format!("stage {stage} block {index}"), work));
            from = wide;
        }
    }
    layers.push(product("head".to_owned(), 2048.0 * 1000.0));
    layers
}

fn vgg16() -> Vec<Described> {
    let shapes = [
        (224.0, 3.0, 64.0),
        (224.0, 64.0, 64.0),
        (112.0, 64.0, 128.0),
        (112.0, 128.0, 128.0),
        (56.0, 128.0, 256.0),
        (56.0, 256.0, 256.0),
        (56.0, 256.0, 256.0),
        (28.0, 256.0, 512.0),
        (28.0, 512.0, 512.0),
        (28.0, 512.0, 512.0),
        (14.0, 512.0, 512.0),
        (14.0, 512.0, 512.0),
        (14.0, 512.0, 512.0),
    ];
    let convolutions = shapes.map(|(size, from, to)| convolution(size, 3.0, from, to));
    let linear = [25_088.0 * 4096.0, 4096.0 * 4096.0, 4096.0 * 1000.0];
    bare(&[&convolutions[..], &linear].concat())
}

/// LSTM layers, the first of the encoder in both directions, attention, and a softmax; 50 tokens.
fn gnmt(layers: usize, width: u32, vocabulary: u32) -> Vec<Described> {
    let width = f64::from(width);
    let cell = |inputs: f64| 50.0 * 4.0 * width * (inputs + width);
    let mut work = vec![50.0 * width, 2.0 * cell(width), cell(2.0 * width)];
    work.extend((2..layers).map(|_| cell(width)));
    work.push(50.0 * width);
    work.push(cell(width) + 2.0 * 50.0 * 50.0 * width);
    work.extend((1..layers).map(|_| cell(2.0 * width)));
    work.push(50.0 * width * f64::from(vocabulary));
    bare(&work)
}

fn bare(work: &[f64]) -> Vec<Described> {
    let layers = work.iter().enumerate();
    layers
        .map(|(index, &work)| product(format!("layer {index}"), work))
        .collect()
}
