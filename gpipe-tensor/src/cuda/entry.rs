//! Entry points of kernels: tables for the compiler, typed functions for callers.

use std::fmt;

use smallvec::SmallVec;

use crate::DType;
use crate::launch_trace::Arithmetic;

/// Threads a block, of every kernel.
pub(crate) const THREADS: u32 = 256;

/// Lanes a warp.
pub(crate) const WARP: u32 = 32;

/// An address of device memory; 0 where a kernel allows none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(pub u64);

impl Pointer {
    /// No memory.
    pub const NULL: Self = Self(0);
}

/// The type of a kernel's parameter. `T` is what the kernel is a template over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Param {
    /// `const T*`
    In,
    /// `T*`
    Out,
    /// `T*`, of elements that are read before they are written.
    Both,
    /// `const float*`
    InF32,
    /// `float*`
    OutF32,
    /// `float*`, of elements that are read before they are written.
    BothF32,
    /// `double*`
    OutF64,
    /// `const unsigned*`
    InU32,
    /// `unsigned*`
    OutU32,
    /// `const unsigned long long*`
    InU64,
    U64,
    U32,
    F32,
    F64,
}

impl Param {
    fn c(self, stored: &str) -> String {
        match self {
            Self::In => format!("const {stored}*"),
            Self::Out | Self::Both => format!("{stored}*"),
            Self::InF32 => "const float*".into(),
            Self::OutF32 | Self::BothF32 => "float*".into(),
            Self::OutF64 => "double*".into(),
            Self::InU32 => "const u32*".into(),
            Self::OutU32 => "u32*".into(),
            Self::InU64 => "const u64*".into(),
            Self::U64 => "u64".into(),
            Self::U32 => "u32".into(),
            Self::F32 => "float".into(),
            Self::F64 => "double".into(),
        }
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg {
    Pointer(Pointer),
    U64(u64),
    U32(u32),
    F32(f32),
    F64(f64),
}

impl Arg {
    /// Address of the value, which the driver takes for each parameter.
    pub fn address(&self) -> *const std::ffi::c_void {
        match self {
            Self::Pointer(Pointer(value)) | Self::U64(value) => std::ptr::from_ref(value).cast(),
            Self::U32(value) => std::ptr::from_ref(value).cast(),
            Self::F32(value) => std::ptr::from_ref(value).cast(),
            Self::F64(value) => std::ptr::from_ref(value).cast(),
        }
    }
}

/// A kernel's name and parameters.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: &'static str,
    pub params: &'static [(&'static str, Param)],
    /// What it is a template over: `T` for the stored type, nothing, or the one type that it takes.
    pub template: &'static str,
    /// Blocks that a multiprocessor has to hold at a time, to which the compiler fits the registers; 0 to leave it to the compiler.
    pub blocks: u32,
}

impl Entry {
    /// The types that it is a template over, or the one type that it takes.
    fn types(&self) -> &'static [DType] {
        match self.template {
            "T" => &[DType::F32, DType::BF16],
            "bf16" => &[DType::BF16],
            _ => &[DType::F32],
        }
    }

    /// The one type that it takes; the first of those that it is a template over.
    pub fn stored(&self) -> DType {
        self.types()[0]
    }

    /// The entry points made of it: one for each type that it is a template over.
    pub fn forms(&'static self) -> impl Iterator<Item = Form> {
        self.types().iter().map(move |&stored| Form {
            entry: self,
            stored,
        })
    }
}

/// An entry point: a kernel for one stored type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub entry: &'static Entry,
    pub stored: DType,
}

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.entry, other.entry) && self.stored == other.stored
    }
}

impl Form {
    /// The name that a module knows it by.
    pub fn name(self) -> String {
        format!("{}_{}", self.entry.name, self.stored)
    }

    /// Its parameters in C.
    pub fn params(self) -> Vec<String> {
        let stored = self.stored();
        let params = self.entry.params.iter();
        params.map(|(_, param)| param.c(stored)).collect()
    }

    /// The type that it is a template over, in C.
    fn stored(self) -> &'static str {
        match self.stored {
            DType::F32 => "float",
            _ => "bf16",
        }
    }

    /// The definition in C, which calls the kernel.
    pub fn definition(self) -> String {
        let names: Vec<&str> = self.entry.params.iter().map(|(name, _)| *name).collect();
        let types = self.params();
        let params: Vec<String> = types
            .iter()
            .zip(&names)
            .map(|(c, name)| format!("{c} {name}"))
            .collect();
        let template = match self.entry.template {
            "T" => format!("<{}>", self.stored()),
            _ => String::new(),
        };
        let bounds = match self.entry.blocks {
            0 => THREADS.to_string(),
            blocks => format!("{THREADS}, {blocks}"),
        };
        format!(
            "extern \"C\" __global__ void __launch_bounds__({bounds}) {}({}) {{ {}{template}({}); }}",
            self.name(),
            params.join(", "),
            self.entry.name,
            names.join(", "),
        )
    }
}

/// A kernel launch: entry point, arguments, grid and shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub form: Form,
    pub args: SmallVec<[Arg; 16]>,
    /// Blocks of [`THREADS`] threads.
    pub blocks: u32,
    /// Bytes of shared memory a block.
    pub shared: u32,
    /// Bytes besides those of each operand once: of operands that a table names, and of what is read again.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "the trace of launches reads it")
    )]
    pub more_bytes: u64,
    /// Bytes in place of those of the operands, of which it looks up only some.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "the trace of launches reads it")
    )]
    pub only_bytes: Option<u64>,
    /// Its arithmetic, where that takes more time than its bytes.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "the trace of launches reads it")
    )]
    pub arithmetic: Arithmetic,
}

impl Launch {
    /// The same with as many bytes of shared memory more.
    #[must_use]
    pub fn with_more_shared(self, bytes: usize) -> Self {
        Self {
            shared: self.shared + bytes as u32,
            ..self
        }
    }

    /// The same with as many bytes besides those of each operand once.
    #[must_use]
    pub fn with_more_bytes(self, bytes: usize) -> Self {
        Self {
            more_bytes: bytes as u64,
            ..self
        }
    }

    /// The same with as many bytes instead of those of its operands.
    #[must_use]
    pub fn with_bytes(self, bytes: usize) -> Self {
        Self {
            only_bytes: Some(bytes as u64),
            ..self
        }
    }

    /// The same with this arithmetic.
    #[must_use]
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> Self {
        Self { arithmetic, ..self }
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} blocks", self.form.name(), self.blocks)
    }
}

/// A kernel and its arguments, still without a grid.
pub(crate) struct Call {
    pub form: Form,
    pub args: SmallVec<[Arg; 16]>,
}

impl Call {
    fn launch(self, blocks: u64, shared: u32) -> Launch {
        Launch {
            form: self.form,
            args: self.args,
            // More blocks than the largest grid would need tensors of 2³¹ rows: they do not fit
            // any device, and the launch is refused there.
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            shared,
            more_bytes: 0,
            only_bytes: None,
            arithmetic: Arithmetic::Little,
        }
    }

    /// One thread for one or more of `n` elements: such kernels step by the size of the grid.
    pub fn over_elements(self, n: usize) -> Launch {
        const MOST: u64 = 1 << 16;
        let blocks = (n as u64).div_ceil(u64::from(THREADS));
        self.launch(blocks.min(MOST), 0)
    }

    /// As [`Self::over_elements`], for kernels of which a thread takes 16 bytes of the stored type at once.
    pub fn over_packs(self, n: usize) -> Launch {
        let elements = 16 / self.form.stored.bytes();
        self.over_elements(n.div_ceil(elements))
    }

    /// `n` threads, of which several share a row.
    pub fn over_lanes(self, n: usize) -> Launch {
        self.launch((n as u64).div_ceil(u64::from(THREADS)), 0)
    }

    /// A warp for each of `rows`.
    pub fn a_warp_each(self, rows: usize) -> Launch {
        let rows_a_block = u64::from(THREADS / WARP);
        self.launch((rows as u64).div_ceil(rows_a_block), 0)
    }

    /// A block for each of `items`, which joins one value of 8 bytes a warp.
    pub fn a_block_each(self, items: usize) -> Launch {
        self.launch(items as u64, 8 * THREADS / WARP)
    }

    /// `blocks` blocks with `floats` floats of shared memory each.
    pub fn blocks_with(self, blocks: usize, floats: usize) -> Launch {
        self.launch(blocks as u64, 4 * floats as u32)
    }

    /// A thread for each of `width` columns of each of `runs` runs of rows.
    pub fn over_columns(self, width: usize, runs: usize) -> Launch {
        let blocks = (width as u64).div_ceil(u64::from(THREADS)) * runs as u64;
        self.launch(blocks, 0)
    }
}

/// A parameter's type as a Rust type, against which the functions of [`entries!`] are checked.
pub(crate) trait Kind {
    /// The type of the value.
    type Value;
    /// The parameter in the kernel's signature.
    const PARAM: Param;
    /// The argument that the driver takes.
    fn arg(value: Self::Value) -> Arg;
}

/// The parameters' types that a table of [`entries!`] may name.
pub(crate) mod kind {
    use super::{Arg, Kind, Param, Pointer};

    macro_rules! kinds {
        ($($name:ident: $value:ty => $arg:ident;)*) => {$(
            pub(crate) struct $name;

            impl Kind for $name {
                type Value = $value;
                const PARAM: Param = Param::$name;

                fn arg(value: $value) -> Arg {
                    Arg::$arg(value)
                }
            }
        )*};
    }

    kinds! {
        In: Pointer => Pointer;
        Out: Pointer => Pointer;
        Both: Pointer => Pointer;
        InF32: Pointer => Pointer;
        OutF32: Pointer => Pointer;
        BothF32: Pointer => Pointer;
        OutF64: Pointer => Pointer;
        InU32: Pointer => Pointer;
        OutU32: Pointer => Pointer;
        InU64: Pointer => Pointer;
        U64: u64 => U64;
        U32: u32 => U32;
        F32: f32 => F32;
        F64: f64 => F64;
    }
}

/// The table of an operation's kernels: `name<T>(parameter: Kind, …);` for a template over the stored
/// type, `name<bf16>(…);` or `name<f32>(…);` for one kernel of that type, `name(…);` for one without a stored type. Each name becomes a module with its `ENTRY` and a function `call`
/// that takes the parameters, and `KERNELS` lists the entries. `name<bf16> 2(…);` is a kernel of which a multiprocessor holds two
/// blocks.
macro_rules! entries {
    ($($name:ident $(<$stored:ident>)? $($blocks:literal)? ($($param:ident: $kind:ident),* $(,)?);)*) => {
        pub(in crate::ops) const KERNELS: &[&$crate::cuda::entry::Entry] = &[$(&$name::ENTRY),*];

        $(mod $name {
            use $crate::DType;
            use $crate::cuda::entry::{Call, Entry, Form, Kind, kind};

            pub(super) static ENTRY: Entry = Entry {
                name: stringify!($name),
                params: &[$((stringify!($param), <kind::$kind as Kind>::PARAM)),*],
                template: stringify!($($stored)?),
                blocks: 0 $(+ $blocks)?,
            };

            #[cfg_attr(not(test), allow(dead_code, reason = "a kernel that only tests launch"))]
            #[allow(clippy::too_many_arguments, reason = "as many as the kernel has parameters")]
            pub(super) fn call(stored: DType, $($param: <kind::$kind as Kind>::Value),*) -> Call {
                Call {
                    form: Form { entry: &ENTRY, stored },
                    args: [$(<kind::$kind as Kind>::arg($param)),*].into_iter().collect(),
                }
            }
        })*
    };
}
pub(crate) use entries;
