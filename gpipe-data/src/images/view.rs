//! What a model is shown of a picture: a part of it, in its own size, perhaps mirrored.

use std::borrow::Cow;

use gpipe_tensor::philox::Key;
use image::imageops::{self, FilterType};
use image::{DynamicImage, GrayImage, Luma};

use super::Draw;

/// A part of a picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
    mirrored: bool,
}

/// The share of the shorter side that an evaluation sees: 224 of 256 pixels, as is usual.
const CENTRE: f64 = 0.875;

/// Parts that are drawn before the largest square is taken.
const TRIES: u64 = 10;

/// Mean and standard deviation of the channels of ImageNet's photographs, and of their mean.
const COLOURS: [(f32, f32); 3] = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];
const GREY: (f32, f32) = (0.449, 0.226);

impl View {
    /// The view of a picture of `width` by `height` pixels. In training a part with 8 to 100 % of the area
    /// and sides of 3 : 4 to 4 : 3, mirrored or not (`RandomResizedCrop` and `RandomHorizontalFlip` of
    /// torchvision): a function of the seed, the epoch and the sample. In an evaluation a square in the centre.
    pub fn of(width: u32, height: u32, seed: u64, draw: Draw) -> Self {
        let Some(epoch) = draw.epoch else {
            return Self::evaluated(width, height);
        };
        let random = Key::new(seed, "data.view", epoch).sample(draw.sample);
        let uniform = |index: u64| f64::from(random.uniform(index));
        let mirrored = uniform(0) < 0.5;
        let area = f64::from(width) * f64::from(height);
        for number in 0..TRIES {
            let [share, shape, left, top] = [1, 2, 3, 4].map(|index| uniform(4 * number + index));
            let part = area * (0.08 + 0.92 * share);
            let bound = (4.0_f64 / 3.0).ln();
            let ratio = (bound * (2.0 * shape - 1.0)).exp();
            let [w, h] =
                [(part * ratio).sqrt(), (part / ratio).sqrt()].map(|side| side.round() as u32);
            if (1..=width).contains(&w) && (1..=height).contains(&h) {
                let place = |room: u32, share: f64| (f64::from(room + 1) * share) as u32;
                return Self {
                    left: place(width - w, left).min(width - w),
                    top: place(height - h, top).min(height - h),
                    width: w,
                    height: h,
                    mirrored,
                };
            }
        }
        Self {
            mirrored,
            ..Self::largest(width, height)
        }
    }

    /// The view of an evaluation.
    pub fn evaluated(width: u32, height: u32) -> Self {
        let side = f64::from(width.min(height)) * CENTRE;
        Self::centre(width, height, side.round() as u32)
    }

    /// The largest square, in the centre.
    pub fn largest(width: u32, height: u32) -> Self {
        Self::centre(width, height, width.min(height))
    }

    /// The fewest of the largest squares that cover a picture, evenly apart.
    pub fn covering(width: u32, height: u32) -> Vec<Self> {
        let side = width.min(height).max(1);
        let room = width.max(height).max(1) - side;
        let gaps = room.div_ceil(side);
        let first = Self::largest(width, height);
        let square = |number: u32| {
            // Within the room, which is a `u32`.
            let place = (u64::from(room) * u64::from(number) / u64::from(gaps.max(1))) as u32;
            match width > height {
                true => Self {
                    left: place,
                    ..first
                },
                false => Self {
                    top: place,
                    ..first
                },
            }
        };
        (0..=gaps).map(square).collect()
    }

    /// Left, top, width and height in pixels of the picture.
    pub fn place(&self) -> [u32; 4] {
        [self.left, self.top, self.width, self.height]
    }

    /// A square in the centre.
    fn centre(width: u32, height: u32, side: u32) -> Self {
        let side = side.clamp(1, width.min(height).max(1));
        Self {
            left: (width - side) / 2,
            top: (height - side) / 2,
            width: side,
            height: side,
            mirrored: false,
        }
    }

    /// Writes what is seen of a picture, in rows of pixels of 3 channels or 1, with the mean and the variance
    /// of photographs taken off. The side is that of a square of as many pixels as `values` has room for.
    pub fn picture(&self, picture: &DynamicImage, size: u32, channels: usize, values: &mut [f32]) {
        let bytes = match channels {
            1 => self
                .seen(&grey(picture), size, FilterType::Triangle)
                .into_raw(),
            _ => self
                .seen(&picture.to_rgb8(), size, FilterType::Triangle)
                .into_raw(),
        };
        for (index, (value, byte)) in values.iter_mut().zip(bytes).enumerate() {
            let (mean, deviation) = match channels {
                1 => GREY,
                _ => COLOURS[index % 3],
            };
            *value = (f32::from(byte) / 255.0 - mean) / deviation;
        }
    }

    /// Writes what is seen of a mask, from 0 to 1, without mixing neighbouring pixels.
    pub fn mask(&self, mask: &DynamicImage, size: u32, values: &mut [f32]) {
        self.shades(mask, size, FilterType::Nearest, values);
    }

    /// Writes what is seen of a picture in shades of grey, from 0 to 1.
    pub fn shades(
        &self,
        picture: &DynamicImage,
        size: u32,
        filter: FilterType,
        values: &mut [f32],
    ) {
        let bytes = self.seen(&grey(picture), size, filter).into_raw();
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = f32::from(byte) / 255.0;
        }
    }

    fn seen<P>(
        &self,
        picture: &image::ImageBuffer<P, Vec<u8>>,
        size: u32,
        filter: FilterType,
    ) -> image::ImageBuffer<P, Vec<u8>>
    where
        P: image::Pixel<Subpixel = u8> + 'static,
    {
        let part = imageops::crop_imm(picture, self.left, self.top, self.width, self.height);
        let mut seen = imageops::resize(&*part, size, size, filter);
        if self.mirrored {
            imageops::flip_horizontal_in_place(&mut seen);
        }
        seen
    }
}

/// A picture in shades of grey, its colours with the weights of ITU-R 601 in 16 bits, as Pillow and torchvision have them
/// (`convert("L")`); the library's are those of ITU-R 709.
pub(super) fn grey(picture: &DynamicImage) -> Cow<'_, GrayImage> {
    if let DynamicImage::ImageLuma8(grey) = picture {
        return Cow::Borrowed(grey);
    }
    if !picture.color().has_color() {
        return Cow::Owned(picture.to_luma8());
    }
    let colours = picture.to_rgb8();
    let grey = |x, y| {
        let [red, green, blue] = colours.get_pixel(x, y).0.map(u32::from);
        Luma([((19_595 * red + 38_470 * green + 7_471 * blue + 32_768) >> 16) as u8])
    };
    Cow::Owned(GrayImage::from_fn(colours.width(), colours.height(), grey))
}

#[cfg(test)]
mod tests {
    use image::RgbImage;

    use super::*;

    fn draw(sample: u64, epoch: Option<u64>) -> Draw {
        Draw { sample, epoch }
    }

    #[test]
    fn views_lie_within_the_picture_and_depend_on_epoch_and_sample() {
        for (width, height) in [(1, 1), (2, 1), (640, 480), (10, 4000), (333, 7)] {
            for sample in 0..200 {
                let view = View::of(width, height, 5, draw(sample, Some(sample % 7)));
                assert!(
                    view.width >= 1 && view.left + view.width <= width,
                    "{view:?}"
                );
                assert!(
                    view.height >= 1 && view.top + view.height <= height,
                    "{view:?}"
                );
            }
        }
        let view = |seed, sample, epoch| View::of(640, 480, seed, draw(sample, Some(epoch)));
        assert_eq!(view(1, 2, 3), view(1, 2, 3));
        for other in [view(2, 2, 3), view(1, 3, 3), view(1, 2, 4)] {
            assert_ne!(other, view(1, 2, 3));
        }
        let mirrored = (0..400)
            .filter(|&sample| view(0, sample, 0).mirrored)
            .count();
        assert!((150..250).contains(&mirrored), "{mirrored}");
        let centre = View::of(640, 480, 9, draw(0, None));
        assert_eq!(
            (centre.left, centre.top, centre.width, centre.mirrored),
            (110, 30, 420, false)
        );
    }

    #[test]
    fn squares_cover_every_pixel() {
        for (width, height) in [
            (1, 1),
            (1, 16),
            (640, 480),
            (480, 640),
            (100, 100),
            (300, 100),
            (301, 100),
            (7, 111),
        ] {
            let squares = View::covering(width, height);
            let side = width.min(height);
            assert_eq!(squares.len() as u32, width.max(height).div_ceil(side));
            let mut end = 0;
            for square in &squares {
                let [left, top, w, h] = square.place();
                assert_eq!([w, h], [side, side]);
                assert_eq!(left.min(top), 0);
                assert!(left.max(top) <= end, "{squares:?}");
                end = left.max(top) + side;
            }
            assert_eq!(end, width.max(height), "{squares:?}");
        }
    }

    #[test]
    fn values_are_normalised_and_masks_stay_as_they_are() {
        let view = View::centre(4, 4, 4);
        let picture = RgbImage::from_pixel(4, 4, image::Rgb([255, 0, 128]));
        let mut values = vec![0.0; 2 * 2 * 3];
        view.picture(&picture.into(), 2, 3, &mut values);
        let wanted = [
            (1.0 - 0.485) / 0.229,
            -0.456 / 0.224,
            (128.0 / 255.0 - 0.406) / 0.225,
        ];
        for (value, wanted) in values.iter().zip(wanted.iter().cycle()) {
            assert!((value - wanted).abs() < 1e-5, "{values:?}");
        }
        let mask = GrayImage::from_fn(4, 4, |x, _| Luma([if x < 2 { 255 } else { 0 }]));
        let mut values = vec![0.5; 4];
        let mirrored = View {
            mirrored: true,
            ..view
        };
        mirrored.mask(&mask.into(), 2, &mut values);
        assert_eq!(values, [0.0, 1.0, 0.0, 1.0]);
    }

    /// By Pillow 13's `Image.convert("L")`.
    #[test]
    fn colours_become_grey_as_in_pillow() {
        for (colour, wanted) in [
            ([255, 0, 0], 76),
            ([0, 255, 0], 150),
            ([0, 0, 255], 29),
            ([200, 30, 90], 88),
            ([255, 255, 255], 255),
            ([1, 1, 1], 1),
        ] {
            let picture = RgbImage::from_pixel(2, 2, image::Rgb(colour));
            let mut values = [0.0; 4];
            View::centre(2, 2, 2).mask(&picture.clone().into(), 2, &mut values);
            assert_eq!(values, [wanted as f32 / 255.0; 4], "{colour:?}");
            View::centre(2, 2, 2).picture(&picture.into(), 2, 1, &mut values);
            let (mean, deviation) = GREY;
            let normal = (wanted as f32 / 255.0 - mean) / deviation;
            assert_eq!(values, [normal; 4], "{colour:?}");
        }
        // Shades of grey stay.
        let mask = GrayImage::from_fn(16, 16, |x, y| Luma([(16 * y + x) as u8]));
        assert_eq!(*grey(&mask.clone().into()), mask);
    }
}
