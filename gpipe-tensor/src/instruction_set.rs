//! Which instructions matrix products use, and which of them this processor has.

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
    use std::arch::x86_64::__cpuid_count;
    use std::sync::OnceLock;

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
        __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & (BF16 | TILE) == BF16 | TILE
    }

    /// Whether the system switches the tiles' state along with a thread.
    fn system_saves_tiles() -> bool {
        const XSAVE: u32 = 1 << 27;
        const TILES: u32 = 0b11 << 17;
        if __cpuid_count(1, 0).ecx & XSAVE == 0 {
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
