//! Sources of the emulators: C++ around the unchanged kernels.
//!
//! [`machine`] runs kernels, thread by thread. [`host`] is a whole host of devices: it exports the
//! calls of a driver, of cuBLAS and of NVRTC that the program makes, so that the program can be run
//! where there is no GPU. Both are for tests, which bring the C++: it is no part of the published
//! package.

use std::fmt::Write as _;

use super::entry::Param;

/// A barrier of the kernels' source, or a wait for copies to shared memory or for products of warpgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Barrier {
    /// Counted from 1 in the order of the source.
    pub number: u32,
    /// The file and line of the kernel.
    pub place: String,
}

/// The kernels between the two halves of `machine` (machine.cpp), and their barriers, each with its
/// number.
pub(super) fn machine(machine: &str) -> (String, Vec<Barrier>) {
    let (head, tail) = machine
        .split_once("// KERNELS\n")
        .expect("machine.cpp says where the kernels go");
    let mut source = String::from(head);
    let mut barriers = Vec::new();
    let (mut file, mut line_number) = (String::new(), 0);
    for line in super::source::source().lines() {
        line_number += 1;
        if let Some(name) = line.strip_prefix("#line 1 ") {
            file = name.trim_matches('"').to_owned();
            line_number = 0;
        }
        let mut rest = line;
        while let Some((before, with, after)) = first_wait(rest) {
            barriers.push(Barrier {
                number: barriers.len() as u32 + 1,
                place: format!("{file}:{line_number}"),
            });
            let _ = write!(source, "{before}machine::{with}({})", barriers.len());
            rest = after;
        }
        source.push_str(rest);
        source.push('\n');
    }
    source.push_str("static const Kernel KERNELS[] = {\n");
    for entry in super::source::entries() {
        let kinds: String = entry.params.iter().map(|(_, param)| kind(*param)).collect();
        for form in entry.forms() {
            let name = form.name();
            let _ = writeln!(
                source,
                "{{\"{name}\", \"{kinds}\", [](void* const* args) {{ call(gpipe::{name}, args); }}}},"
            );
        }
    }
    source.push_str("};\n");
    source.push_str(tail);
    (source, barriers)
}

/// The first barrier or wait of a line: what stands before it, the machine's function for it, and
/// what stands behind. The definitions for GPUs are none.
fn first_wait(line: &str) -> Option<(&str, &'static str, &str)> {
    const WAITS: [(&str, &str); 4] = [
        ("__syncthreads()", "barrier"),
        ("wait_for_copies();", "wait_for_copies"),
        ("wait_for_products();", "wait_for_products"),
        ("wait_for_older_products();", "wait_for_older_products"),
    ];
    let found = WAITS.iter().filter_map(|(call, with)| {
        let (before, after) = line.split_once(call)?;
        let after = &line[line.len() - after.len() - usize::from(call.ends_with(';'))..];
        Some((before, *with, after))
    });
    found.min_by_key(|(before, ..)| before.len())
}

/// The letter of a parameter in the machine's list of kernels.
fn kind(param: Param) -> char {
    match param {
        Param::In | Param::InF32 | Param::InU32 | Param::InU64 => 'I',
        Param::Out
        | Param::Both
        | Param::OutF32
        | Param::BothF32
        | Param::OutF64
        | Param::OutU32 => 'O',
        Param::U64 => 'L',
        Param::U32 => 'u',
        Param::F32 => 'f',
        Param::F64 => 'd',
    }
}

/// An emulated host in C++, for one shared library that takes the place of driver, cuBLAS and NVRTC.
///
/// `kernels_machine` is the text of machine.cpp, `parts` are the names and texts of the host's files, each
/// before those that use it.
///
/// # Panics
/// If machine.cpp has no line `// KERNELS`.
#[cfg(feature = "emulated")]
pub fn host(kernels_machine: &str, parts: &[(&str, &str)]) -> String {
    let (mut source, _) = machine(kernels_machine);
    let all = super::source::parts();
    let hashes: Vec<String> = all
        .iter()
        .map(|part| format!("{:#x}ull", hash(&part.source)))
        .collect();
    let of_form = |form| all.iter().position(|part| part.forms.contains(&form));
    // In the order of the machine's list of kernels.
    let forms = super::source::entries().flat_map(|entry| entry.forms());
    let places: Vec<String> = forms
        .map(|form| format!("{}", of_form(form).expect("a part")))
        .collect();
    let _ = writeln!(
        source,
        "static const uint64_t SOURCES[] = {{{}}};\nstatic const size_t SOURCE_OF[] = {{{}}};",
        hashes.join(", "),
        places.join(", ")
    );
    for (path, text) in parts {
        let _ = writeln!(source, "#line 1 \"{path}\"\n{text}");
    }
    source
}

/// What the emulated compiler takes: the parts of the kernels that the host was compiled with.
#[cfg(feature = "emulated")]
pub fn kernels() -> Vec<String> {
    super::source::parts()
        .into_iter()
        .map(|part| part.source)
        .collect()
}

/// FNV-1a: what an image of the emulated compiler says of its source.
#[cfg(feature = "emulated")]
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
