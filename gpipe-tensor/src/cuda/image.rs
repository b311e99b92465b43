//! Images of kernels: the driver takes one without its length and follows the offsets in it.

/// What ELF files of 64 bits and little-endian numbers begin with.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
/// The machine that NVIDIA's images are for.
const CUDA: u64 = 190;
/// The type of a section that takes no bytes of the file.
const EMPTY: u64 = 8;

/// Whether these bytes are PTX with the zero at its end, or an image whose tables, sections and segments all
/// lie within them.
pub(super) fn is_whole(image: &[u8]) -> bool {
    is_text(image) || is_elf(image)
}

/// Whether these bytes are a text of PTX with the one zero that ends it.
fn is_text(image: &[u8]) -> bool {
    let text = image.split_last().filter(|(end, _)| **end == 0);
    text.and_then(|(_, text)| std::str::from_utf8(text).ok())
        .is_some_and(|text| {
            !text.contains('\0') && text.contains(".version ") && text.contains(".target ")
        })
}

fn is_elf(image: &[u8]) -> bool {
    image.starts_with(MAGIC)
        && number(image, 18, 2) == Some(CUDA)
        && table(image, (32, 54, 56), 56, &within_segment)
        && table(image, (40, 58, 60), 64, &within_section)
}

/// Whether each entry of the table is right that the header says the place, entry size and length of, in
/// this order; entries have at least `least` bytes.
fn table(
    image: &[u8],
    (place, size, count): (u64, u64, u64),
    least: u64,
    is_right: &dyn Fn(&[u8], &[u8]) -> bool,
) -> bool {
    let numbers = (
        number(image, place, 8),
        number(image, size, 2),
        number(image, count, 2),
    );
    let (Some(place), Some(size), Some(count)) = numbers else {
        return false;
    };
    if count == 0 {
        return true;
    }
    let entries = size
        .checked_mul(count)
        .and_then(|bytes| part(image, place, bytes));
    let is_right = |all: &[u8]| all.chunks(size as usize).all(|one| is_right(image, one));
    size >= least && entries.is_some_and(is_right)
}

fn within_segment(image: &[u8], entry: &[u8]) -> bool {
    lies_within(image, number(entry, 8, 8), number(entry, 32, 8))
}

fn within_section(image: &[u8], entry: &[u8]) -> bool {
    number(entry, 4, 4) == Some(EMPTY)
        || lies_within(image, number(entry, 24, 8), number(entry, 32, 8))
}

fn lies_within(image: &[u8], place: Option<u64>, bytes: Option<u64>) -> bool {
    place
        .zip(bytes)
        .is_some_and(|(place, bytes)| part(image, place, bytes).is_some())
}

/// This number of bytes from a place on.
fn part(image: &[u8], place: u64, bytes: u64) -> Option<&[u8]> {
    let (start, end) = (place, place.checked_add(bytes)?);
    image.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// A little-endian number of this length in bytes.
pub(super) fn number(bytes: &[u8], place: u64, length: u64) -> Option<u64> {
    let bytes = part(bytes, place, length)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |number, &byte| number << 8 | u64::from(byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, one segment, two sections, and 8 bytes that they hold.
    fn image() -> Vec<u8> {
        let mut image = vec![0; 256];
        let mut put =
            |place: usize, bytes: &[u8]| image[place..][..bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(18, &190_u16.to_le_bytes());
        for (place, table, size, count) in [(32, 64_u64, 56_u16, 1_u16), (40, 120, 64, 2)] {
            put(place, &table.to_le_bytes());
            let rest = if place == 32 { 54 } else { 58 };
            put(rest, &size.to_le_bytes());
            put(rest + 2, &count.to_le_bytes());
        }
        for entry in [64 + 8, 120 + 24, 184 + 24] {
            put(entry, &248_u64.to_le_bytes());
        }
        for bytes in [64 + 32, 120 + 32] {
            put(bytes, &8_u64.to_le_bytes());
        }
        // The second section is one without bytes in the file.
        put(184 + 4, &8_u32.to_le_bytes());
        put(184 + 32, &u64::MAX.to_le_bytes());
        image
    }

    #[test]
    fn an_image_that_ends_early_or_points_beyond_its_end_is_none() {
        let whole = image();
        assert!(is_whole(&whole));
        for length in 0..whole.len() {
            assert!(!is_whole(&whole[..length]), "{length} bytes");
        }
        // Kind, machine, both tables, what they hold, and the type of the second section.
        for (place, value) in [
            (0, 1),
            (4, 1),
            (18, 62),
            (32, 250),
            (54, 8),
            (56, 9),
            (40, 250),
            (46, 255),
            (47, 255),
            (58, 63),
            (60, 3),
            (64 + 8, 249),
            (64 + 39, 255),
            (120 + 24, 249),
            (120 + 32, 9),
            (184 + 4, 1),
        ] {
            let mut image = whole.clone();
            image[place] = value;
            assert!(!is_whole(&image), "byte {place}");
        }
        assert!(!is_whole(b""));
        let text = b"//\n.version 8.1\n.target sm_90\n\0";
        assert!(is_whole(text) && !is_whole(&text[..text.len() - 1]));
        assert!(!is_whole(b".version 8.1\0.target sm_90\0"));
    }
}
