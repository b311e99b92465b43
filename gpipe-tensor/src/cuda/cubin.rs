//! What NVIDIA's compiler says of each kernel in an image for a device: registers, stack, shared memory and threads.
//!
//! An image is an ELF file. Its section `.nv.info` holds attributes of all kernels, and `.nv.info.NAME` those of one, each a
//! format, a number and a value or the length of what follows (as `cuobjdump --dump-elf` lists them).

use std::collections::BTreeMap;

use super::image::number;

/// An attribute whose value has the length that is said.
const SIZED: u64 = 4;
/// Bytes of a thread's stack, by the symbol of a kernel.
const FRAME: u64 = 0x11;
/// Registers of a thread, by the symbol of a kernel.
const REGISTERS: u64 = 0x2f;
/// The most threads of a block, in three numbers.
const MOST_THREADS: u64 = 0x05;

/// Bytes of a machine instruction, on every device since Volta.
const INSTRUCTION: u64 = 16;

/// A table of symbols.
const SYMBOLS: u64 = 2;

/// What a kernel takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Registers of a thread.
    pub registers: u64,
    /// Bytes of a thread's stack, where registers are spilled to.
    pub stack: u64,
    /// Bytes of a block's shared memory besides what a launch asks for.
    pub shared: u64,
    /// The most threads of a block.
    pub threads: u64,
    /// Machine instructions, with those that fill up the end.
    pub instructions: u64,
}

/// A section of the file.
struct Section<'a> {
    name: &'a str,
    kind: u64,
    link: usize,
    size: u64,
    bytes: &'a [u8],
}

/// The kernels of a whole image by their names; none if something in it is not as it should be.
pub(super) fn usage(image: &[u8]) -> Option<BTreeMap<String, Usage>> {
    let sections = sections(image)?;
    let mut found = BTreeMap::<String, Usage>::new();
    for section in &sections {
        if let Some(name) = section.name.strip_prefix(".text.") {
            let usage = found.entry(name.to_owned()).or_default();
            usage.instructions = section.size / INSTRUCTION;
        }
    }
    let symbols = sections.iter().find(|section| section.kind == SYMBOLS)?;
    let names = sections.get(symbols.link)?.bytes;
    let name_of = |symbol: u64| {
        let symbol = symbols.bytes.get(24 * symbol as usize..)?;
        text(names, number(symbol, 0, 4)? as usize)
    };
    for section in &sections {
        if let Some(name) = section.name.strip_prefix(".nv.shared.")
            && let Some(usage) = found.get_mut(name)
        {
            usage.shared = section.size;
        }
        let Some(kernel) = section.name.strip_prefix(".nv.info") else {
            continue;
        };
        for (attribute, value) in attributes(section.bytes)? {
            let first = number(value, 0, 4);
            match (attribute, kernel.strip_prefix('.')) {
                (MOST_THREADS, Some(kernel)) => {
                    let threads = (0..3).map(|i| number(value, 4 * i, 4));
                    let threads = threads.product::<Option<u64>>()?;
                    found.get_mut(kernel)?.threads = threads;
                }
                // Functions of the device's library, which all kernels call, are listed too.
                (FRAME, None) => {
                    if let Some(usage) = found.get_mut(name_of(first?)?) {
                        usage.stack = number(value, 4, 4)?;
                    }
                }
                (REGISTERS, None) => {
                    if let Some(usage) = found.get_mut(name_of(first?)?) {
                        usage.registers = number(value, 4, 4)?;
                    }
                }
                _ => {}
            }
        }
    }
    Some(found)
}

/// The attributes of a section of them that have a length.
fn attributes(mut bytes: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let [format, attribute] = [0, 1].map(|place| number(bytes, place, 1));
        let length = match format? {
            SIZED => number(bytes, 2, 2)? as usize,
            _ => 0,
        };
        let value = bytes.get(4..4 + length)?;
        if format? == SIZED {
            found.push((attribute?, value));
        }
        bytes = &bytes[4 + length..];
    }
    Some(found)
}

fn sections(image: &[u8]) -> Option<Vec<Section<'_>>> {
    let (place, size) = (number(image, 40, 8)?, number(image, 58, 2)?);
    let (count, of_names) = (number(image, 60, 2)?, number(image, 62, 2)?);
    let entry = |index: u64| image.get((place + index * size) as usize..);
    let bytes = |index: u64| {
        let entry = entry(index)?;
        // One of type 8 takes no bytes of the file.
        if number(entry, 4, 4)? == 8 {
            return Some(&[][..]);
        }
        let (from, size) = (
            number(entry, 24, 8)? as usize,
            number(entry, 32, 8)? as usize,
        );
        image.get(from..from.checked_add(size)?)
    };
    let names = bytes(of_names)?;
    let section = |index: u64| {
        let head = entry(index)?;
        Some(Section {
            name: text(names, number(head, 0, 4)? as usize)?,
            kind: number(head, 4, 4)?,
            link: number(head, 40, 4)? as usize,
            size: number(head, 32, 8)?,
            bytes: bytes(index)?,
        })
    };
    (0..count).map(section).collect()
}

/// The text that begins there and ends before a zero.
fn text(names: &[u8], from: usize) -> Option<&str> {
    let rest = names.get(from..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}
