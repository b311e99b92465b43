//! AmoebaNet-D (Real et al., arXiv:1802.01548), as GPipe and torchgpipe train it.

use gpipe_tensor::ops::Window;

use crate::Layer;
use crate::Value;
use crate::layers::{
    Activation, Add, BatchNorm, Concat, Conv2d, Function, Graph, Layout, Linear, Pad2d, Pool2d,
    Sequential,
};

/// Cells of a kind: the operations on earlier states, which are added in pairs, and the states that are its result.
///
/// torchgpipe's tables, which have the number of parameters that the paper of GPipe gives.
struct Genotype {
    operations: [(usize, Operation); 10],
    result: &'static [usize],
}

#[derive(Clone, Copy)]
enum Operation {
    Identity,
    /// The mean of 3 × 3.
    Average,
    /// The maximum of 2 × 2.
    Max,
    /// A convolution of 1 × 1.
    Conv1,
    /// One of 3 × 3 on a quarter of the channels.
    Conv3,
    /// One of 1 × 7 and one of 7 × 1 on a quarter of the channels.
    Conv7,
}

use Operation::{Average, Conv1, Conv3, Conv7, Identity, Max};

const NORMAL: Genotype = Genotype {
    operations: [
        (1, Conv1),
        (1, Average),
        (1, Identity),
        (0, Conv7),
        (0, Conv1),
        (0, Conv7),
        (2, Average),
        (2, Identity),
        (1, Average),
        (5, Conv1),
    ],
    result: &[0, 3, 4, 6],
};

const REDUCTION: Genotype = Genotype {
    operations: [
        (0, Max),
        (0, Average),
        (2, Identity),
        (1, Conv3),
        (2, Conv7),
        (2, Average),
        (3, Identity),
        (1, Max),
        (2, Average),
        (3, Conv1),
    ],
    result: &[4, 5, 6],
};

/// The channels of the last cells' results for one filter.
pub(super) const WIDEST: usize = 16;

/// The layers of an AmoebaNet-D with `normal` normal cells and `filters` filters, from (batch, height, width,
/// `colours`) to (batch, `classes`): the stem, `normal` + 4 cells and the classifier. A cell takes the result of the
/// one before it and what that one took, and hands its own first input on.
///
/// Names of the parameters are those of torchgpipe's model. Height and width are multiples of 32.
pub(super) fn amoebanetd(
    normal: usize,
    filters: usize,
    colours: usize,
    classes: usize,
) -> Vec<Box<dyn Layer>> {
    let channels = filters / 4;
    let mut stem = Graph::new("stem1", 1);
    let x = stem.input(0);
    let window = Window::square(3, 2, 1);
    let x = stem.chain(
        Sequential::new()
            .then(Activation::new("stem1.relu", Function::Relu))
            .then(Conv2d::new("stem1.conv", colours, channels, window).without_bias())
            .then(BatchNorm::new("stem1.bn", channels)),
        x,
        &[],
    );
    let mut cells = Cells {
        list: Sequential::new().then(stem.returning([x])),
        channels,
        before: [channels; 2],
        made: 0,
        reduced: false,
        all: normal + 4,
    };
    cells.add("stem2", true);
    cells.add("stem3", true);
    for (number, reduction) in [
        (1, Some("cell2_reduction")),
        (3, Some("cell4_reduction")),
        (5, None),
    ] {
        for i in 1..=normal / 3 {
            cells.add(&format!("cell{number}_normal{i}"), false);
        }
        if let Some(name) = reduction {
            cells.add(name, true);
        }
    }
    let features = cells.before[1];
    let mut classifier = Graph::new("classify", 1);
    let x = classifier.input(0);
    let x = classifier.add(Pool2d::whole_average("classify.pool"), [x]);
    let fc = Linear::new("classify.fc", features, classes, Layout::OutIn);
    let x = classifier.add(fc, [x]);
    cells.list.then(classifier.returning([x])).into_layers()
}

/// The cells so far.
struct Cells {
    list: Sequential,
    /// The channels of a cell's states.
    channels: usize,
    /// The channels of the last two results, the older first.
    before: [usize; 2],
    made: usize,
    /// Whether the last cell was a reduction.
    reduced: bool,
    /// How many there will be.
    all: usize,
}

impl Cells {
    fn add(&mut self, name: &str, reduction: bool) {
        let genotype = if reduction { &REDUCTION } else { &NORMAL };
        self.channels *= if reduction { 2 } else { 1 };
        let channels = self.channels;
        // The first cell takes its input twice.
        let inputs = if self.made == 0 { 1 } else { 2 };
        let mut cell = Cell {
            graph: Graph::new(name, inputs),
            name: name.to_owned(),
            channels,
        };
        let [s, skip] = [0, inputs - 1].map(|place| cell.graph.input(place));
        let [older, newer] = self.before;
        let mut states = vec![cell.projected("reduce1", s, newer)];
        states.push(match (self.reduced, older == channels) {
            (true, _) => cell.reduced(skip, older),
            (false, false) => cell.projected("reduce2", skip, older),
            (false, true) => skip,
        });
        for (pair, operations) in genotype.operations.chunks(2).enumerate() {
            let both = [0, 1].map(|i| {
                let (state, operation) = operations[i];
                let stride = if reduction && state < 2 { 2 } else { 1 };
                cell.operation(2 * pair + i, operation, states[state], stride)
            });
            let sum = Add::new(format!("{name}.sum{pair}"));
            states.push(cell.graph.add(sum, both));
        }
        let parts = genotype.result.iter().map(|&state| states[state]);
        let concat = Concat::new(format!("{name}.concat"), genotype.result.len());
        let result = cell.graph.add(concat, parts);
        self.made += 1;
        // Nothing takes what the last cell would hand on.
        let outputs = match self.made == self.all {
            true => vec![result],
            false => vec![result, s],
        };
        let list = std::mem::take(&mut self.list);
        self.list = list.then(cell.graph.returning(outputs));
        self.before = [newer, channels * genotype.result.len()];
        self.reduced = reduction;
    }
}

/// A cell while it is made.
struct Cell {
    graph: Graph,
    name: String,
    channels: usize,
}

impl Cell {
    /// A ReLU, a convolution of 1 × 1 to the channels of the cell, and a normalization.
    fn projected(&mut self, part: &str, x: Value, inputs: usize) -> Value {
        let name = format!("{}.{part}", self.name);
        let to = [inputs, self.channels];
        let list = convolution(Sequential::new(), &name, 0, to, Window::square(1, 1, 0));
        self.graph.chain(list, x, &[])
    }

    /// Half the channels from every second pixel, half from those a pixel below and to the right.
    fn reduced(&mut self, x: Value, inputs: usize) -> Value {
        let name = format!("{}.reduce2", self.name);
        let of = |part: &str| format!("{name}.{part}");
        let half = |part: &str| {
            let window = Window::square(1, 2, 0);
            Conv2d::new(of(part), inputs, self.channels / 2, window).without_bias()
        };
        let (first, second) = (half("conv1"), half("conv2"));
        let graph = &mut self.graph;
        let x = graph.add(Activation::new(of("relu"), Function::Relu), [x]);
        let shifted = graph.add(Pad2d::shift(of("shift"), [1, 1]), [x]);
        let (first, second) = (graph.add(first, [x]), graph.add(second, [shifted]));
        let both = graph.add(Concat::new(of("concat"), 2), [first, second]);
        graph.add(BatchNorm::new(of("bn"), self.channels), [both])
    }

    fn operation(&mut self, i: usize, operation: Operation, x: Value, stride: usize) -> Value {
        let name = format!("{}.operations.{i}.module", self.name);
        let (c, quarter) = (self.channels, self.channels / 4);
        let window = |kernel, stride, padding| Window {
            kernel,
            stride,
            padding,
        };
        let convolutions: &[([usize; 2], Window)] = match operation {
            Identity => return x,
            Average => {
                let pool = Pool2d::average(name, Window::square(3, stride, 1));
                return self.graph.add(pool, [x]);
            }
            Max => {
                let pool = Pool2d::max(name, Window::square(2, stride, 0));
                return self.graph.add(pool, [x]);
            }
            Conv1 => &[([c, c], Window::square(1, stride, 0))],
            Conv3 => &[
                ([c, quarter], Window::square(1, 1, 0)),
                ([quarter; 2], Window::square(3, stride, 1)),
                ([quarter, c], Window::square(1, 1, 0)),
            ],
            Conv7 => &[
                ([c, quarter], Window::square(1, 1, 0)),
                ([quarter; 2], window([1, 7], [1, stride], [0, 3])),
                ([quarter; 2], window([7, 1], [stride, 1], [3, 0])),
                ([quarter, c], Window::square(1, 1, 0)),
            ],
        };
        let list = convolutions.iter().enumerate();
        let list = list.fold(Sequential::new(), |list, (number, &(to, window))| {
            convolution(list, &name, 3 * number, to, window)
        });
        self.graph.chain(list, x, &[])
    }
}

/// A ReLU, a convolution and a normalization, the members from number `first` on of a sequence of modules.
fn convolution(
    list: Sequential,
    name: &str,
    first: usize,
    [inputs, outputs]: [usize; 2],
    window: Window,
) -> Sequential {
    let of = |i: usize| format!("{name}.{}", first + i);
    list.then(Activation::new(of(0), Function::Relu))
        .then(Conv2d::new(of(1), inputs, outputs, window).without_bias())
        .then(BatchNorm::new(of(2), outputs))
}
