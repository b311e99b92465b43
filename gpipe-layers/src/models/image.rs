//! Networks for images: which of them, and the sizes that follow the data.

use std::fmt;
use std::str::FromStr;

use super::amoebanet::{WIDEST, amoebanetd};
use super::convnet::convnet;
use super::resnet::{blocks, features, resnet};
use super::sizes::{self, EXTENT};
use super::unet::unet;
use crate::layers::check_rate;
use crate::{Error, Layer, Result};

/// A network for images. A new one joins here: one variant, one arm in each match, and a file with its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// `convnet:A,B,…`: a small classifier with a convolution of A, B, … channels each.
    Convnet(Vec<usize>),
    /// `resnet18`, `resnet34`, `resnet50`, `resnet101` or `resnet152`: a classifier with this many layers of weights.
    ResNet(usize),
    /// `unet:B,C`: a U-Net that learns masks, with B convolutions on each level and C channels on the first.
    UNet {
        /// Convolutions on each level of each side.
        units: usize,
        /// Channels of the first level, an even number.
        channels: usize,
    },
    /// `amoebanetd:L,D`: an AmoebaNet-D, a classifier with L normal cells and D filters.
    AmoebaNetD {
        /// Normal cells, a multiple of 3.
        cells: usize,
        /// Filters, a multiple of 8.
        filters: usize,
    },
}

/// Normal cells and filters of `amoebanetd` without sizes, the smallest of torchgpipe's benchmarks.
const AMOEBANETD: [usize; 2] = [18, 256];

/// The channels of `convnet` without a list.
const CONVNET: [usize; 3] = [32, 64, 128];

/// Convolutions and channels of `unet` without sizes, the smallest of torchgpipe's benchmarks.
const UNET: [usize; 2] = [5, 64];

/// What can be written for a [`Network`], for messages.
const FORMS: &str = "convnet, convnet:A,B,…, resnet18, 34, 50, 101 or 152, unet, unet:B,C, amoebanetd or amoebanetd:L,D";

impl Network {
    /// The height and width of the images that the network is known by.
    pub fn image_size(&self) -> usize {
        match self {
            Self::Convnet(_) => 32,
            Self::ResNet(_) | Self::AmoebaNetD { .. } => 224,
            Self::UNet { .. } => 192,
        }
    }

    /// Whether the target of an image is a mask of its size, rather than a class.
    pub fn learns_masks(&self) -> bool {
        matches!(self, Self::UNet { .. })
    }

    /// The share of activations that it is known to drop.
    pub fn dropout(&self) -> f32 {
        match self {
            Self::Convnet(_) => 0.3,
            Self::ResNet(_) | Self::AmoebaNetD { .. } => 0.0,
            Self::UNet { .. } => 0.1,
        }
    }

    /// Whether it normalizes by the statistics of micro-batches: results then depend on their number.
    pub fn depends_on_micro_batches(&self) -> bool {
        match self {
            Self::Convnet(_) | Self::UNet { .. } => false,
            Self::ResNet(_) | Self::AmoebaNetD { .. } => true,
        }
    }

    /// The largest width of its activations, in channels.
    fn widest(&self) -> usize {
        match self {
            Self::Convnet(channels) => channels.iter().copied().max().unwrap_or(1),
            Self::ResNet(depth) => blocks(*depth).map_or(1, |(_, bottleneck)| features(bottleneck)),
            Self::UNet { channels, .. } => channels.saturating_mul(32),
            Self::AmoebaNetD { filters, .. } => filters.saturating_mul(WIDEST),
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
            Self::ResNet(depth) => write!(f, "resnet{depth}"),
            Self::UNet { units, channels } => write!(f, "unet:{units},{channels}"),
            Self::AmoebaNetD { cells, filters } => write!(f, "amoebanetd:{cells},{filters}"),
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Some(depth) = text
            .strip_prefix("resnet")
            .and_then(|depth| depth.parse().ok())
            && blocks(depth).is_some()
        {
            return Ok(Self::ResNet(depth));
        }
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
            ("amoebanetd", None) => {
                let [cells, filters] = AMOEBANETD;
                Ok(Self::AmoebaNetD { cells, filters })
            }
            ("amoebanetd", Some(Some(sizes))) => match sizes[..] {
                [cells, filters] if cells % 3 == 0 && filters % 8 == 0 && cells <= MOST_LAYERS => {
                    Ok(Self::AmoebaNetD { cells, filters })
                }
                _ => Err(format!(
                    "`{text}`: L of amoebanetd:L,D is a multiple of 3 below {MOST_LAYERS}, and D of 8: use `amoebanetd:18,256`"
                )),
            },
            ("unet", None) => {
                let [units, channels] = UNET;
                Ok(Self::UNet { units, channels })
            }
            ("unet", Some(Some(sizes))) => match sizes[..] {
                [units, channels] if channels % 2 == 0 && units <= MOST_LAYERS => {
                    Ok(Self::UNet { units, channels })
                }
                _ => Err(format!(
                    "`{text}`: B of unet:B,C is at most {MOST_LAYERS}, and C even: use `unet:5,64`"
                )),
            },
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
    /// Number of classes; for a network that learns masks, which is 1 of them, 1.
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

/// The layers of a network for images, from (batch, height, width, channels) to the scores of the classes (batch,
/// classes), or to the logits of a mask (batch, height, width, 1).
///
/// # Errors
/// [`Error::Config`] for sizes of zero, or that no name of a [`Network`] may have, or a dropout outside of 0..1.
pub fn image(config: &ImageConfig) -> Result<Vec<Box<dyn Layer>>> {
    // A network has the sizes that its name may have.
    let name = config.network.to_string();
    let named: std::result::Result<Network, String> = name.parse();
    named.map_err(Error::Config)?;
    let sizes = [
        ("channels", config.channels, EXTENT),
        ("classes", config.classes, EXTENT),
    ];
    sizes::check(&name, &sizes)?;
    check_rate(&name, config.dropout)?;
    if config.network.learns_masks() && config.classes != 1 {
        return Err(Error::Config(format!(
            "{}: classes is {}, but a mask tells one from the rest: use 1",
            config.network, config.classes
        )));
    }
    match &config.network {
        Network::Convnet(channels) => {
            convnet(config.channels, channels, config.classes, config.dropout)
        }
        Network::ResNet(depth) => match blocks(*depth) {
            Some((groups, bottleneck)) => {
                Ok(resnet(groups, bottleneck, config.channels, config.classes))
            }
            None => Err(Error::Config(format!(
                "resnet{depth} is no network: use {FORMS}"
            ))),
        },
        &Network::AmoebaNetD { cells, filters } => {
            Ok(amoebanetd(cells, filters, config.channels, config.classes))
        }
        &Network::UNet { units, channels } => unet(
            units,
            channels,
            config.channels,
            config.classes,
            config.dropout,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flow, Kind};

    /// Trainable values and statistics of a network, layers, and multiply-adds of an image of its size.
    fn sizes(network: &str) -> (u64, u64, usize, u64) {
        let network: Network = network.parse().unwrap();
        let (size, masks) = (network.image_size(), network.learns_masks());
        let config = ImageConfig {
            channels: 3,
            classes: if masks { 1 } else { 1000 },
            dropout: network.dropout(),
            network,
        };
        let mut layers = image(&config).unwrap();
        let (mut trained, mut statistics) = (0, 0);
        for layer in &mut layers {
            layer.params(&mut |param| match param.kind {
                Kind::Statistic => statistics += param.elements(),
                _ => trained += param.elements(),
            });
        }
        let mut flow = vec![Flow::f32([2, size, size, 3])];
        let mut products = 0;
        for layer in &layers {
            let took = layer.arity();
            let cost = layer.cost(&flow[..took]).unwrap();
            // Only products have gradients of weights that cost FLOPs, two for a multiply-add of the two images.
            products += cost.weight_grad / 4;
            flow.splice(..took, cost.outputs);
        }
        let scores = match masks {
            true => Flow::f32([2, size, size, 1]),
            false => Flow::f32([2, 1000]),
        };
        assert_eq!(flow, [scores]);
        (trained, statistics, layers.len(), products)
    }

    #[test]
    fn resnets_have_the_sizes_that_they_are_known_by() {
        let (trained, statistics, layers, products) = sizes("resnet50");
        assert_eq!((trained, statistics), (25_557_032, 53_120));
        assert_eq!(layers, 16 * 11 + 4 * 2 + 4 + 2);
        // 4.089 billion multiply-adds.
        assert_eq!(products / 1_000_000, 4089);
        let (trained, statistics, layers, products) = sizes("resnet101");
        assert_eq!((trained, statistics), (44_549_160, 105_344));
        assert_eq!(
            (layers, products / 1_000_000),
            (33 * 11 + 4 * 2 + 4 + 2, 7801)
        );
        assert_eq!(sizes("resnet18").0, 11_689_512);
        assert_eq!(sizes("resnet34").0, 21_797_672);
        assert_eq!(sizes("resnet152").0, 60_192_808);
    }

    #[test]
    fn unets_have_the_sizes_of_torchgpipe() {
        let (trained, statistics, layers, products) = sizes("unet");
        assert_eq!((trained, statistics, layers), (232_687_328, 0, 241));
        // 48.99 billion multiply-adds.
        assert_eq!((products + 5_000_000) / 10_000_000, 4899);
        for (network, trained) in [
            ("unet:6,72", 362_157_516),
            ("unet:11,128", 2_213_834_176),
            ("unet:24,128", 4_993_859_008),
            ("unet:24,160", 7_802_903_600),
            ("unet:48,160", 15_822_206_000),
        ] {
            assert_eq!(sizes(network).0, trained, "{network}");
        }
        let classes = ImageConfig {
            network: "unet:1,2".parse().unwrap(),
            channels: 3,
            classes: 2,
            dropout: 0.1,
        };
        assert!(image(&classes).err().unwrap().to_string().contains("use 1"));
    }

    #[test]
    fn amoebanets_have_the_sizes_of_torchgpipe() {
        for (network, trained) in [
            ("amoebanetd:18,128", 31_694_440),
            ("amoebanetd:18,208", 81_505_540),
            ("amoebanetd", 122_470_120),
            ("amoebanetd:18,416", 319_024_120),
            ("amoebanetd:18,512", 481_268_200),
            ("amoebanetd:18,544", 542_734_840),
            ("amoebanetd:36,544", 1_055_832_376),
            ("amoebanetd:72,512", 1_844_858_344),
        ] {
            assert_eq!(sizes(network).0, trained, "{network}");
        }
        let (.., layers, products) = sizes("amoebanetd");
        // 15.170 billion multiply-adds.
        assert_eq!((layers, (products + 500_000) / 1_000_000), (24, 15_170));
    }

    #[test]
    fn a_network_is_read_as_it_is_written() {
        let network: Network = "convnet".parse().unwrap();
        assert_eq!(network, Network::Convnet(vec![32, 64, 128]));
        assert_eq!(network.to_string(), "convnet:32,64,128");
        assert_eq!(network.to_string().parse(), Ok(network));
        let unet: Network = "unet:2,8".parse().unwrap();
        assert_eq!(unet.to_string(), "unet:2,8");
        for bad in ["unet:", "unet:5", "unet:5,7", "unet:0,8", "unet:5,8,9"] {
            assert!(bad.parse::<Network>().unwrap_err().contains("unet:"));
        }
        for bad in ["amoebanetd:4,8", "amoebanetd:3,12", "amoebanetd:3"] {
            assert!(bad.parse::<Network>().unwrap_err().contains("amoebanetd:"));
        }
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

    #[test]
    fn sizes_that_no_name_has_are_refused() {
        for network in [
            Network::Convnet(vec![]),
            Network::Convnet(vec![8, 0]),
            Network::ResNet(7),
            Network::UNet {
                units: 0,
                channels: 8,
            },
            Network::UNet {
                units: 1,
                channels: usize::MAX - 1,
            },
            Network::AmoebaNetD {
                cells: 3,
                filters: 0,
            },
        ] {
            let config = ImageConfig {
                channels: 3,
                classes: 1,
                dropout: 0.0,
                network,
            };
            // No panic either.
            config.widest();
            let error = image(&config).err().map(|error| error.to_string());
            let name = config.network.to_string();
            assert!(error.is_some_and(|error| error.contains(&name)), "{name}");
        }
    }
}
