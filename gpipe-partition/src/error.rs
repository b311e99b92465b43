//! What can go wrong when a list of layers is cut.

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a list of layers could not be cut as asked. Layers and stages are counted from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing can be cut into no parts.
    #[error("0 stages: use at least 1")]
    NoParts,
    /// There is nothing to cut.
    #[error("no layers to cut: a model needs at least 1")]
    NoLayers,
    /// Some stage would be left without a layer.
    #[error("{parts} stages but {layers} layers: use {layers} or fewer")]
    TooManyParts {
        /// How many stages were asked for.
        parts: usize,
        /// How many layers there are.
        layers: usize,
    },
    /// The cost of a layer cannot be compared with others.
    #[error("layer {layer} costs {cost}: a cost must be a finite number, 0 or more")]
    BadCost {
        /// Which layer.
        layer: usize,
        /// What it is said to cost.
        cost: f64,
    },
    /// The histogram rule divides by the total.
    #[error(
        "the costs add up to 0: the histogram rule needs a layer that costs something, or use balance"
    )]
    ZeroTotal,
    /// The costs do not fit the number type that adds them up.
    #[error(
        "the costs of layers 0 to {layer} add up to more than {limit:.1e}: use a larger unit, or smaller sizes"
    )]
    Overflow {
        /// The layer at which the sum overflowed.
        layer: usize,
        /// The largest sum.
        limit: f64,
    },
    /// The histogram rule left a stage without a layer.
    #[error(
        "the histogram rule gives stage {part} of {parts} no layer: use balance, fewer stages, or explicit sizes"
    )]
    EmptyPart {
        /// The first such stage.
        part: usize,
        /// How many stages were asked for.
        parts: usize,
    },
    /// Explicit sizes leave a stage without a layer.
    #[error("stage {part} has size 0: every stage needs at least 1 layer")]
    ZeroSize {
        /// The first such stage.
        part: usize,
    },
    /// Explicit sizes do not cover the model.
    #[error(
        "the sizes {sizes} add up to {sum} layers but there are {layers}: make them add up to {layers}"
    )]
    SizeSum {
        /// The sizes, as `3,3,4,2`.
        sizes: String,
        /// What they add up to, as far as that can be counted.
        sum: usize,
        /// How many layers there are.
        layers: usize,
    },
    /// The explicit sizes are not one for each stage.
    #[error("{sizes} sizes but {parts} stages: give one size for each, or use {sizes} stages")]
    SizeCount {
        /// How many sizes there are.
        sizes: usize,
        /// How many stages were asked for.
        parts: usize,
    },
    /// The text names no [`CutRule`](crate::CutRule).
    #[error("`{0}` is no partition: use balance, histogram or sizes such as 3,3,4,2")]
    UnknownRule(String),
    /// One layer alone does not fit a stage, so no cut helps.
    #[error("layer {layer} alone does not fit a stage: make it smaller or the limit larger")]
    LayerDoesNotFit {
        /// Which layer.
        layer: usize,
    },
    /// Every way to cut into so few parts has one that does not fit.
    #[error("the layers do not fit {parts} stages: use {needed} or more")]
    DoesNotFit {
        /// How many stages were asked for.
        parts: usize,
        /// The fewest that would do.
        needed: usize,
    },
    /// A cost oracle said that a run costs more than a longer run around it.
    #[error(
        "layers {start}..{end} cost more than a run that contains them: the cost of a run must not fall when it grows"
    )]
    NotMonotone {
        /// The first layer of the shorter run.
        start: usize,
        /// The layer after its last.
        end: usize,
    },
    /// Costs were given for another number of layers than were cut.
    #[error("{costs} costs for the {layers} layers of {partition}: give one a layer")]
    CostCount {
        /// How many costs were given.
        costs: usize,
        /// How many layers the partition has.
        layers: usize,
        /// The sizes of its parts, as `3,3,4,2`.
        partition: String,
    },
}

/// Refuses what no rule can cut.
pub(crate) fn check_counts(layers: usize, parts: usize) -> Result<()> {
    if parts == 0 {
        return Err(Error::NoParts);
    }
    if layers == 0 {
        return Err(Error::NoLayers);
    }
    if parts > layers {
        return Err(Error::TooManyParts { parts, layers });
    }
    Ok(())
}
