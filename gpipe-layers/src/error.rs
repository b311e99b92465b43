//! What can go wrong in this crate.

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a layer, model or optimizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on tensors failed inside a layer.
    #[error("{layer}: {source}")]
    Tensor {
        /// The layer's name.
        layer: String,
        /// What failed.
        source: gpipe_tensor::Error,
    },
    /// A layer was given a flow that it cannot take.
    #[error("{layer}: expected {expected}, got {got}")]
    Input {
        /// The layer's name.
        layer: String,
        /// What it takes, in words.
        expected: String,
        /// What it was given.
        got: String,
    },
    /// A layer was used before its parameters were made, or with the saved state of another layer.
    #[error("{layer}: {message}")]
    State {
        /// The layer's name.
        layer: String,
        /// What is missing or in the wrong order.
        message: String,
    },
    /// A layer of another crate failed with an error of its own.
    #[error("{layer}: {source}")]
    Foreign {
        /// The layer's name.
        layer: String,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Invalid configuration of a model, loss or optimizer.
    #[error("{0}")]
    Config(String),
}

impl Error {
    /// Says which layer an error of any other type arose in, such as one of the layer's own crate.
    ///
    /// ```
    /// use gpipe_layers::Error;
    ///
    /// let parsed = "x".parse::<u8>().map_err(Error::foreign("table"));
    /// assert_eq!(parsed.unwrap_err().to_string(), "table: invalid digit found in string");
    /// ```
    pub fn foreign<E>(layer: &str) -> impl FnOnce(E) -> Self + '_
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |source| Self::Foreign {
            layer: layer.to_owned(),
            source: source.into(),
        }
    }

    /// Says which layer a tensor error arose in.
    pub fn within(layer: &str) -> impl FnOnce(gpipe_tensor::Error) -> Self + '_ {
        move |source| Self::Tensor {
            layer: layer.to_owned(),
            source,
        }
    }
}
