//! The settings of stochastic gradient descent.

/// The settings of [`sgd`](super::sgd()), named as PyTorch names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// The learning rate.
    pub lr: f32,
    /// The decay rate of the velocity; 0 for none.
    pub momentum: f32,
    /// Whether a step goes on by the momentum once more (Nesterov).
    pub nesterov: bool,
    /// The factor of the L2 penalty, added to the gradient.
    pub weight_decay: f32,
}
