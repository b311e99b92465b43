//! A picture in a file of PNG or JPEG: what it claims is checked before it costs memory.

use std::io::Cursor;
use std::path::Path;

use gpipe_files::{Links, read_capped};
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::error::{Error, Result};

/// The largest file that is read.
const MOST_BYTES: u64 = 1 << 28;

/// The most pixels of a picture.
const MOST_PIXELS: u64 = 1 << 26;

const MEND: &str = "make it readable, or remove it";

/// Reads a picture.
///
/// # Errors
/// [`Error::File`] or [`Error::Picture`], which name the file.
pub fn read(path: &Path) -> Result<DynamicImage> {
    let bytes = read_capped(path, MOST_BYTES, Links::Followed, MEND)?;
    decode(&bytes).map_err(|fault| Error::Picture {
        path: path.to_owned(),
        fault,
    })
}

/// The picture in the bytes of a file, or what is wrong with them.
fn decode(bytes: &[u8]) -> std::result::Result<DynamicImage, String> {
    let damaged = |error: image::ImageError| {
        let words: String = error.to_string().chars().take(LONGEST).collect();
        format!("cannot be decoded: {words}")
    };
    let mut reader = ImageReader::new(Cursor::new(bytes));
    // Names lie more often than the first bytes.
    reader = reader
        .with_guessed_format()
        .map_err(|error| error.to_string())?;
    let format = reader.format();
    if !matches!(format, Some(ImageFormat::Png | ImageFormat::Jpeg)) {
        return Err("is neither a PNG nor a JPEG".to_owned());
    }
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(16 * MOST_PIXELS);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MOST_PIXELS {
        return Err(format!(
            "has {width} by {height} pixels, more than the {MOST_PIXELS} that are read"
        ));
    }
    match decoder.color_type() {
        ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => {}
        _ => return Err("has more than 8 bits a channel".to_owned()),
    }
    if format == Some(ImageFormat::Jpeg) && !ends(bytes) {
        return Err("is cut off: a JPEG ends with the marker FFD9".to_owned());
    }
    DynamicImage::from_decoder(decoder).map_err(damaged)
}

/// Whether a JPEG has its last marker, EOI (ITU-T T.81, B.1.1). The decoder fills in what is missing.
fn ends(bytes: &[u8]) -> bool {
    let two = |at: usize| Some([*bytes.get(at)?, *bytes.get(at + 1)?]);
    // After SOI.
    let mut at = 2;
    while let Some(found) = two(at) {
        at += match found {
            [0xff, 0xd9] => return true,
            // A segment with its length; the markers TEM, RST and SOI have none.
            [0xff, 0x02..=0xcf | 0xda..=0xfe] => {
                2 + two(at + 2).map_or(0, |length| usize::from(u16::from_be_bytes(length)))
            }
            // Data of a scan, with FF00 for FF.
            _ => 1,
        };
    }
    false
}

/// The most characters of a decoder's message: a file decides some of them.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use gpipe_tensor::philox::Key;
    use image::{GrayAlphaImage, ImageBuffer, Luma, RgbImage};

    use super::*;

    fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn noise() -> DynamicImage {
        let bits = Key::new(0, "noise", 0).sample(0);
        let picture = RgbImage::from_fn(19, 13, |x, y| {
            image::Rgb([0, 1, 2].map(|c| bits.bits(u64::from((y * 19 + x) * 3 + c)) as u8))
        });
        DynamicImage::ImageRgb8(picture)
    }

    #[test]
    fn alpha_is_read_and_16_bits_are_refused() {
        let png = |picture: DynamicImage| decode(&encoded(&picture, ImageFormat::Png));
        let grey = GrayAlphaImage::from_pixel(2, 3, image::LumaA([7, 0]));
        assert_eq!(png(grey.into()).unwrap().to_luma8().as_raw(), &[7; 6]);
        let deep: ImageBuffer<Luma<u16>, Vec<u16>> = ImageBuffer::new(2, 3);
        let refused = png(DynamicImage::ImageLuma16(deep)).unwrap_err();
        assert!(refused.contains("8 bits a channel"), "{refused}");
        assert!(decode(b"GIF89a").unwrap_err().contains("neither"));
        assert!(decode(b"").is_err());
    }

    /// A header that claims 40000 × 40000 pixels is refused before anything is allocated for them.
    #[test]
    fn pixels_are_counted_before_they_are_decoded() {
        let mut bytes = encoded(&noise(), ImageFormat::Png);
        bytes[16..20].copy_from_slice(&40_000_u32.to_be_bytes());
        bytes[20..24].copy_from_slice(&40_000_u32.to_be_bytes());
        let crc = crc32(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&crc.to_be_bytes());
        let refused = decode(&bytes).unwrap_err();
        assert!(refused.contains("40000 by 40000 pixels"), "{refused}");
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
            })
        })
    }

    /// Neither picture is taken for whole, wherever it is cut: not after the end of a thumbnail in its header either.
    #[test]
    fn pictures_that_are_cut_off_are_refused() {
        let jpeg = encoded(&noise(), ImageFormat::Jpeg);
        let thumbnail = [&[0xff, 0xe1, 0, 6][..], &[0xff, 0xd8, 0xff, 0xd9]].concat();
        let nested = [&jpeg[..2], &thumbnail, &jpeg[2..]].concat();
        let padded = [&jpeg[..], &[0; 7]].concat();
        assert!(decode(&padded).is_ok());
        for whole in [jpeg, nested, encoded(&noise(), ImageFormat::Png)] {
            assert!(decode(&whole).is_ok());
            // Of a PNG, the chunk that ends it is 12 bytes without a pixel.
            for length in [whole.len() - 13, whole.len() * 3 / 4, whole.len() / 2] {
                assert!(decode(&whole[..length]).is_err(), "{length}");
            }
        }
    }

    /// Mutated and truncated files are pictures or errors.
    #[test]
    fn hostile_bytes_end_in_a_picture_or_an_error() {
        let bits = Key::new(0, "hostile", 0);
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            let whole = encoded(&noise(), format);
            assert!(decode(&whole).is_ok());
            let mut refused = 0;
            for case in 0..1500 {
                let random = bits.sample(case);
                let mut bytes = whole.clone();
                for change in 0..=u64::from(random.bits(0) % 4) {
                    let place = random.bits(2 * change + 1) as usize % bytes.len();
                    bytes[place] = random.bits(2 * change + 2) as u8;
                }
                if case % 3 == 0 {
                    bytes.truncate(random.bits(9) as usize % whole.len());
                }
                refused += usize::from(decode(&bytes).is_err());
            }
            assert!(refused > 300, "{refused} of 1500");
        }
    }
}
