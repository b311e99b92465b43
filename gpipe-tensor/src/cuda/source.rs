//! The kernels and their entry points as text for a compiler, in one translation unit or in parts.

use std::fmt::Write as _;

use super::entry::{Entry, Form};
use crate::ops::kernels::KERNELS;

/// The kernels' texts by the paths of their files, each before those that use it.
const TEXTS: &[(&str, &str)] = &[
    ("cuda/prelude.cu", include_str!("prelude.cu")),
    ("math.cu", include_str!("../math.cu")),
    ("philox.cu", include_str!("../philox.cu")),
    ("cuda/tensor_cores.cu", include_str!("tensor_cores.cu")),
    ("ops/add/kernel.cu", include_str!("../ops/add/kernel.cu")),
    (
        "ops/scale/kernel.cu",
        include_str!("../ops/scale/kernel.cu"),
    ),
    ("ops/relu/kernel.cu", include_str!("../ops/relu/kernel.cu")),
    (
        "ops/concat/kernel.cu",
        include_str!("../ops/concat/kernel.cu"),
    ),
    (
        "ops/conv2d/kernel.cu",
        include_str!("../ops/conv2d/kernel.cu"),
    ),
    (
        "ops/pad2d/kernel.cu",
        include_str!("../ops/pad2d/kernel.cu"),
    ),
    (
        "ops/pool2d/kernel.cu",
        include_str!("../ops/pool2d/kernel.cu"),
    ),
    ("ops/gelu/kernel.cu", include_str!("../ops/gelu/kernel.cu")),
    ("ops/glu/kernel.cu", include_str!("../ops/glu/kernel.cu")),
    ("ops/sum/kernel.cu", include_str!("../ops/sum/kernel.cu")),
    (
        "ops/channel_norm/kernel.cu",
        include_str!("../ops/channel_norm/kernel.cu"),
    ),
    (
        "ops/binary_cross_entropy/kernel.cu",
        include_str!("../ops/binary_cross_entropy/kernel.cu"),
    ),
    (
        "ops/squared_error/kernel.cu",
        include_str!("../ops/squared_error/kernel.cu"),
    ),
    (
        "ops/softmax/kernel.cu",
        include_str!("../ops/softmax/kernel.cu"),
    ),
    (
        "ops/cross_entropy/kernel.cu",
        include_str!("../ops/cross_entropy/kernel.cu"),
    ),
    (
        "ops/layer_norm/kernel.cu",
        include_str!("../ops/layer_norm/kernel.cu"),
    ),
    (
        "ops/rms_norm/kernel.cu",
        include_str!("../ops/rms_norm/kernel.cu"),
    ),
    ("ops/rope/kernel.cu", include_str!("../ops/rope/kernel.cu")),
    (
        "ops/sinusoid/kernel.cu",
        include_str!("../ops/sinusoid/kernel.cu"),
    ),
    (
        "ops/embedding/kernel.cu",
        include_str!("../ops/embedding/kernel.cu"),
    ),
    (
        "ops/dropout/kernel.cu",
        include_str!("../ops/dropout/kernel.cu"),
    ),
    (
        "ops/attention/kernel.cu",
        include_str!("../ops/attention/kernel.cu"),
    ),
    (
        "ops/attention/tensor_cores.cu",
        include_str!("../ops/attention/tensor_cores.cu"),
    ),
    (
        "ops/segment_attention/kernel.cu",
        include_str!("../ops/segment_attention/kernel.cu"),
    ),
    (
        "ops/key_value_cache/kernel.cu",
        include_str!("../ops/key_value_cache/kernel.cu"),
    ),
    (
        "ops/adamw/kernel.cu",
        include_str!("../ops/adamw/kernel.cu"),
    ),
    (
        "ops/rmsprop/kernel.cu",
        include_str!("../ops/rmsprop/kernel.cu"),
    ),
    ("ops/sgd/kernel.cu", include_str!("../ops/sgd/kernel.cu")),
];

/// Every entry point's line in the operations' tables.
pub(crate) fn entries() -> impl Iterator<Item = &'static Entry> {
    KERNELS.iter().copied().flatten().copied()
}

/// A translation unit: all kernels, and some of their entry points.
pub(crate) struct Part {
    pub source: String,
    pub forms: Vec<Form>,
}

/// Parts whose entry points are all that there are: a compiler spends most of its time on these, and compiles parts at
/// the same time.
pub(crate) fn parts() -> Vec<Part> {
    /// No more than the processors of most hosts with GPUs.
    const PARTS: usize = 8;
    let of_part = |part| entries().skip(part).step_by(PARTS);
    let forms = |part| of_part(part).flat_map(Entry::forms).collect();
    let part = |forms: Vec<Form>| Part {
        source: with_entry_points(&forms),
        forms,
    };
    (0..PARTS).map(forms).map(part).collect()
}

/// The one translation unit that holds all kernels and their entry points, for emulators and the tests' compiler.
#[cfg(any(test, feature = "emulated"))]
pub(crate) fn source() -> String {
    with_entry_points(&entries().flat_map(Entry::forms).collect::<Vec<_>>())
}

/// All kernels, and these entry points.
fn with_entry_points(forms: &[Form]) -> String {
    let mut source = String::from("namespace gpipe {\n");
    for (path, text) in TEXTS {
        // What the compiler says then names the file and its line.
        let _ = writeln!(source, "#line 1 \"{path}\"\n{text}");
    }
    source.push_str("#line 1 \"entry points\"\n");
    for form in forms {
        let _ = writeln!(source, "{}", form.definition());
    }
    source.push_str("}\n");
    source
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn entry_points_have_names_of_their_own() {
        let names: Vec<String> = entries()
            .flat_map(|entry| entry.forms().map(|form| form.name()))
            .collect();
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn every_entry_point_is_one_parts() {
        let names = |forms: &[Form]| forms.iter().map(|form| form.name()).collect::<Vec<_>>();
        let parts = parts();
        for part in &parts {
            let defined = part.source.matches("__launch_bounds__(").count();
            let others = with_entry_points(&[]).matches("__launch_bounds__(").count();
            assert_eq!(defined - others, part.forms.len());
            let mut forms = part.forms.iter();
            assert!(forms.all(|form| part.source.contains(&form.definition())));
        }
        let mut parts: Vec<String> = parts.iter().flat_map(|part| names(&part.forms)).collect();
        let mut all = names(&entries().flat_map(Entry::forms).collect::<Vec<_>>());
        parts.sort();
        all.sort();
        assert_eq!(parts, all);
    }

    #[test]
    fn every_kernel_file_is_part_of_the_source() {
        let ops = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
        for folder in std::fs::read_dir(ops).unwrap() {
            let file = folder.unwrap().path().join("kernel.cu");
            if file.is_file() {
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(source().contains(&text), "{} is left out", file.display());
            }
        }
    }
}
