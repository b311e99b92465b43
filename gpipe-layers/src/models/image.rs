//! Networks for images: which of them, and the sizes that follow the data.

use std::fmt;
use std::str::FromStr;

use super::convnet::convnet;
use crate::{Error, Layer, Result};

/// A network for images. A new one joins here: one variant, one arm in each match, and a file with its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// `convnet:A,B,…`: a small classifier with a convolution of A, B, … channels each.
    Convnet(Vec<usize>),
}

/// The channels of `convnet` without a list.
const CONVNET: [usize; 3] = [32, 64, 128];

/// What can be written for a [`Network`], for messages.
const FORMS: &str = "convnet or convnet:A,B,…";

impl Network {
    /// The height and width of the images that the network is known by.
    pub fn image_size(&self) -> usize {
        match self {
            Self::Convnet(_) => 32,
        }
    }

    /// The largest width of its activations, in channels.
    fn widest(&self) -> usize {
        match self {
            Self::Convnet(channels) => channels.iter().copied().max().unwrap_or(1),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convnet(channels) => {
                let channels: Vec<String> = channels.iter().map(usize::to_string).collect();
                write!(f, "convnet:{}", channels.join(","))
            }
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, sizes) = match text.split_once(':') {
            Some((name, sizes)) => (name, Some(sizes)),
            None => (text, None),
        };
        let sizes: Option<Option<Vec<usize>>> = sizes.map(|sizes| {
            let size = |size: &str| {
                size.trim()
                    .parse()
                    .ok()
                    .filter(|size| (1..=MOST).contains(size))
            };
            sizes.split(',').map(size).collect()
        });
        match (name, sizes) {
            ("convnet", None) => Ok(Self::Convnet(CONVNET.to_vec())),
            ("convnet", Some(Some(channels))) if channels.len() <= MOST_LAYERS => {
                Ok(Self::Convnet(channels))
            }
            _ => Err(format!("`{text}` is no network for images: use {FORMS}")),
        }
    }
}

/// The largest size in the name of a network: products of several fit 64 bits.
const MOST: usize = 1 << 14;

/// The most convolutions of a convnet: a list of layers is made before it can be refused.
const MOST_LAYERS: usize = 1000;

/// The configuration of a network for images.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageConfig {
    /// The network.
    pub network: Network,
    /// Channels of an image: 3 for colours, 1 for shades of grey.
    pub channels: usize,
    /// Number of classes.
    pub classes: usize,
    /// Share of activations that is dropped, where the network has such a layer.
    pub dropout: f32,
}

impl ImageConfig {
    /// The largest width of its activations, in channels.
    pub(super) fn widest(&self) -> usize {
        self.network.widest()
    }
}

/// The layers of a network for images, from (batch, height, width, channels) to (batch, classes).
///
/// # Errors
/// [`Error::Config`] for sizes of zero or a dropout outside of 0..1.
pub fn image(config: &ImageConfig) -> Result<Vec<Box<dyn Layer>>> {
    for (what, size) in [("channels", config.channels), ("classes", config.classes)] {
        if size == 0 || size > u32::MAX as usize {
            return Err(Error::Config(format!(
                "{}: {what} is {size}: use a number from 1 to {}",
                config.network,
                u32::MAX
            )));
        }
    }
    match &config.network {
        Network::Convnet(channels) => {
            convnet(config.channels, channels, config.classes, config.dropout)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_read_as_it_is_written() {
        let network: Network = "convnet".parse().unwrap();
        assert_eq!(network, Network::Convnet(vec![32, 64, 128]));
        assert_eq!(network.to_string(), "convnet:32,64,128");
        assert_eq!(network.to_string().parse(), Ok(network));
        for bad in [
            "",
            "convnet:",
            "convnet:0",
            "convnet:8,",
            "convnet:99999",
            "lenet",
        ] {
            let refused = bad.parse::<Network>().unwrap_err();
            assert!(refused.contains("use convnet"), "{refused}");
        }
    }
}
