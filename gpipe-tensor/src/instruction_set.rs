//! The instructions that matrix products on the CPU may use.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The most capable instructions that matrix products of a host may use.
///
/// A level is an upper bound: within it, the best instructions that the processor has are chosen at run
/// time. The level belongs to a host ([`Host::with_instruction_set`](crate::Host::with_instruction_set))
/// and never changes while the host lives. For a given level and processor all results have the same
/// bits in every run; between levels matrix products differ by rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstructionSet {
    /// All instructions of the processor, including AMX, the tile unit of Intel's server processors
    /// (on Linux).
    #[default]
    Best,
    /// Vector instructions up to AVX-512: results are those of a processor without AMX.
    Avx512,
    /// Vector instructions up to AVX2 with FMA: results are those of a processor without AVX-512.
    Avx2,
}

impl InstructionSet {
    /// Whether matrix products under this level use AMX: the level allows it, the processor has it, and
    /// the system lets this process use it.
    pub fn uses_amx(self) -> bool {
        match self {
            Self::Best => has_amx(),
            Self::Avx512 | Self::Avx2 => false,
        }
    }

    /// Whether matrix products under this level are faster with factors of bf16: by AMX, or by vectors of AVX-512 that
    /// multiply pairs of them.
    pub(crate) fn is_faster_in_bf16(self) -> bool {
        self.uses_amx() || self != Self::Avx2 && has_fast_bf16_vectors()
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Best => "best",
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
        })
    }
}

impl FromStr for InstructionSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "best" => Ok(Self::Best),
            "avx512" => Ok(Self::Avx512),
            "avx2" => Ok(Self::Avx2),
            _ => Err(Error::UnknownInstructionSet(text.to_owned())),
        }
    }
}

/// Whether the processor has vectors of AVX-512 that multiply pairs of bf16 (AVX512-BF16).
pub(crate) fn has_bf16_vectors() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return false;
}

/// Whether those multiply more numbers of bf16 a second than floats: on AMD's processors, and Intel's of 2020 (Cooper Lake).
/// Those of Intel that have AMX do half as many (1.85 instructions of 32 multiplications a nanosecond, measured beside 7.4 of 16),
/// and a training step takes 1.65 of its time in f32.
fn has_fast_bf16_vectors() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // Intel's of 2020 is a Skylake: what later ones have it lacks.
    return has_bf16_vectors() && !(is_of_intel() && is_x86_feature_detected!("avx512vbmi2"));
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return false;
}

/// Whether Intel made the processor.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_of_intel() -> bool {
    let leaf = cpuid(0);
    let name = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
    name.as_flattened() == b"GenuineIntel"
}

/// What the processor says of itself.
// Newer compilers take the call as safe, the oldest supported one wants the block.
#[allow(unused_unsafe)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn cpuid(leaf: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every processor of this architecture that Rust builds for has the instruction.
    unsafe { std::arch::x86_64::__cpuid_count(leaf, 0) }
}

/// Whether this process may use AMX, the tile unit that multiplies numbers of bf16.
pub(crate) fn has_amx() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    return amx::available();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    return false;
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod amx {
    use std::arch::asm;
    use std::sync::OnceLock;

    use super::cpuid;

    /// Whether the processor has the tile unit and the system lets this process use it.
    pub(super) fn available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            let vectors =
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            vectors && processor_has_tiles() && system_saves_tiles() && ask_for_tiles()
        })
    }

    /// AMX-BF16 and AMX-TILE.
    fn processor_has_tiles() -> bool {
        const BF16: u32 = 1 << 22;
        const TILE: u32 = 1 << 24;
        cpuid(0).eax >= 7 && cpuid(7).edx & (BF16 | TILE) == BF16 | TILE
    }

    /// Whether the system switches the tiles' state along with a thread.
    fn system_saves_tiles() -> bool {
        const XSAVE: u32 = 1 << 27;
        const TILES: u32 = 0b11 << 17;
        if cpuid(1).ecx & XSAVE == 0 {
            return false;
        }
        let low: u32;
        // SAFETY: the instruction exists where the system uses XSAVE; it reads register 0, which every
        // such processor has, into eax and edx.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack));
        }
        low & TILES == TILES
    }

    /// Asks Linux for room in the threads' state (8 KiB each), which it gives to those only who ask.
    fn ask_for_tiles() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const REQUEST_PERMISSION: u64 = 0x1023;
        const TILE_DATA: u64 = 18;
        let outcome: i64;
        // SAFETY: a system call with two plain numbers; it changes what this process may do, and of its
        // registers those that are named here.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => outcome,
                in("rdi") REQUEST_PERMISSION,
                in("rsi") TILE_DATA,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
        outcome == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_parsed_as_it_is_displayed() {
        for level in [
            InstructionSet::Best,
            InstructionSet::Avx512,
            InstructionSet::Avx2,
        ] {
            assert_eq!(level.to_string().parse::<InstructionSet>().unwrap(), level);
        }
        assert_eq!(
            "amx".parse::<InstructionSet>().unwrap_err().to_string(),
            "unknown instruction set `amx`: use `best`, `avx512` or `avx2`"
        );
    }

    #[test]
    fn only_the_best_level_uses_amx() {
        assert_eq!(InstructionSet::Best.uses_amx(), has_amx());
        assert!(!InstructionSet::Avx512.uses_amx() && !InstructionSet::Avx2.uses_amx());
    }
}
