//! Every kernel through NVIDIA's compiler, for each generation of devices that is supported: what it
//! makes of the parameters is compared with the tables, and what does not fit a thread's registers, or lets a
//! multiprocessor hold fewer blocks than is stated, is an error.
//!
//! The compiler is one library that needs neither a GPU nor a driver. It is looked for where the
//! variable `GPIPE_NVRTC` says, then under its names; where there is none the test says so. `GPIPE_KERNELS` names a file for
//! what each kernel takes, as JSON.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::resume_unwind;
use std::thread;

use libloading::{Library, Symbol};

use super::cubin::{Usage, usage};
use super::entry::{Form, Param, THREADS};
use super::image::is_whole;
use super::occupancy::{GENERATIONS, Generation, dynamic_shared, fewest};

/// Kernels whose threads access 16 bytes by one instruction.
const PACKED: [&str; 21] = [
    "add",
    "accumulate",
    "repeat",
    "scale",
    "fill",
    "narrow",
    "widen",
    "relu",
    "relu_grad",
    "leaky_relu",
    "leaky_relu_grad",
    "gelu_tanh",
    "gelu_tanh_grad",
    "gelu_erf",
    "gelu_erf_grad",
    "gelu_tanh_with_grad",
    "gelu_erf_with_grad",
    "swiglu",
    "swiglu_with_grad",
    "geglu",
    "geglu_with_grad",
];

const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// A program of the compiler's, as its functions know it.
type Program = *mut c_void;

/// `nvrtcCreateProgram`: program, source, name, number of headers, headers, their names.
///
/// # Safety
/// Texts end in zeros.
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
/// `nvrtcCompileProgram`: program, number of options, options.
///
/// # Safety
/// The program was created; texts end in zeros.
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
/// `nvrtcGet…Size`: how many bytes a text about a program takes.
///
/// # Safety
/// The program was created.
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
/// `nvrtcGet…`: a text about a program.
///
/// # Safety
/// There is room for as many bytes as the text takes.
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// What the compiler made of the kernels.
struct Compiled {
    ptx: String,
    /// The image that a driver loads.
    cubin: Vec<u8>,
    /// What it says about registers and memory of each kernel.
    log: String,
}

/// Compiles the source for a device.
fn compile(nvrtc: &Library, source: &str, device: &str) -> Compiled {
    let source = CString::new(source).expect("no zeros in the source");
    let options = [
        format!("--gpu-architecture={device}"),
        "--fmad=false".into(),
        "--ptxas-options=-v".into(),
    ];
    let options = options.map(|option| CString::new(option).expect("no zeros in an option"));
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program: Program = std::ptr::null_mut();
    // SAFETY: the names and signatures are those of nvrtc.h; the texts end in zeros and outlive the
    // calls, and the program is created before it is used.
    let (status, log, made) = unsafe {
        let create: Symbol<'_, Create> = nvrtc.get(b"nvrtcCreateProgram\0").expect("a function");
        let compile: Symbol<'_, Compile> = nvrtc.get(b"nvrtcCompileProgram\0").expect("a function");
        let none = std::ptr::null();
        let name = c"kernels.cu".as_ptr();
        assert_eq!(
            create(&mut program, source.as_ptr(), name, 0, none, none),
            0
        );
        let status = compile(program, options.len() as c_int, options.as_ptr());
        let log = text(nvrtc, program, "ProgramLog");
        let made =
            (status == 0).then(|| (text(nvrtc, program, "PTX"), bytes(nvrtc, program, "CUBIN")));
        (status, log, made)
    };
    let (ptx, cubin) = made.unwrap_or_else(|| panic!("{device}: error {status}\n{log}"));
    Compiled { ptx, cubin, log }
}

/// Compiles the source for every generation, each on a thread: one takes most of a minute.
fn compile_all(nvrtc: &Library, source: &str) -> Vec<Compiled> {
    thread::scope(|scope| {
        let start = |generation: &'static Generation| {
            scope.spawn(|| compile(nvrtc, source, generation.name))
        };
        let threads: Vec<_> = GENERATIONS.iter().map(start).collect();
        let compiled = threads.into_iter().map(|thread| thread.join());
        compiled
            .map(|compiled| compiled.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// A text about the program, without the zero at its end.
///
/// # Safety
/// As [`bytes`].
unsafe fn text(nvrtc: &Library, program: Program, what: &str) -> String {
    // SAFETY: the caller vouches for the program.
    let mut text = unsafe { bytes(nvrtc, program, what) };
    let end = text.iter().position(|&byte| byte == 0);
    text.truncate(end.unwrap_or(text.len()));
    String::from_utf8_lossy(&text).into_owned()
}

/// What the compiler made of the program, or says about it.
///
/// # Safety
/// The program was compiled by this library, and has such a text or image.
unsafe fn bytes(nvrtc: &Library, program: Program, what: &str) -> Vec<u8> {
    let mut size = 0;
    // SAFETY: both functions have these signatures for all of them, and the caller vouches for the
    // program; the second one writes as many bytes as the first one says.
    unsafe {
        let name = format!("nvrtcGet{what}Size\0");
        let size_of: Symbol<'_, Size> = nvrtc.get(name.as_bytes()).expect("a function");
        assert_eq!(size_of(program, &mut size), 0);
        let mut bytes = vec![0u8; size];
        let get: Symbol<'_, Get> = nvrtc
            .get(format!("nvrtcGet{what}\0").as_bytes())
            .expect("a function");
        assert_eq!(get(program, bytes.as_mut_ptr().cast()), 0);
        bytes
    }
}

/// The types of the parameters of every entry point in a text of PTX.
fn parameters(ptx: &str) -> BTreeMap<String, Vec<String>> {
    let entries = ptx.split(".visible .entry ").skip(1);
    let entries = entries.filter_map(|entry| {
        let (name, rest) = entry.split_once('(')?;
        let (params, _) = rest.split_once(')')?;
        let types = params.split(".param ").skip(1);
        let types = types.filter_map(|param| param.split_whitespace().next());
        Some((name.to_owned(), types.map(str::to_owned).collect()))
    });
    entries.collect()
}

/// Whether an entry point in a text of PTX stores 16 bytes by one instruction.
fn stores_packs(ptx: &str, name: &str) -> bool {
    let mut entries = ptx.split(".visible .entry ");
    let entry = entries.find(|entry| entry.starts_with(&format!("{name}(")));
    entry.is_some_and(|entry| entry.contains("st.global.v4"))
}

/// The name that PTX has for the type of a parameter.
fn ptx_type(param: Param) -> &'static str {
    match param {
        Param::U32 => ".u32",
        Param::F32 => ".f32",
        Param::F64 => ".f64",
        _ => ".u64",
    }
}

#[test]
fn every_kernel_compiles_for_every_device_with_the_tables_parameters() {
    let given = env::var("GPIPE_NVRTC").ok();
    let names = given.iter().map(String::as_str).chain(NAMES);
    // SAFETY: the compiler's library; loading it runs its own start-up code only.
    let nvrtc = names.map(|name| unsafe { Library::new(name) });
    let Some(nvrtc) = nvrtc.into_iter().find_map(Result::ok) else {
        assert!(
            given.is_none(),
            "GPIPE_NVRTC names no library that can be loaded"
        );
        eprintln!("skipped: no NVRTC: install nvidia-cuda-nvrtc-cu12 and set GPIPE_NVRTC");
        return;
    };
    let forms = super::source::entries().flat_map(|entry| entry.forms());
    let wanted = forms.map(|form| {
        let params = form.entry.params.iter();
        let types: Vec<String> = params.map(|(_, p)| ptx_type(*p).to_owned()).collect();
        (form.name(), types)
    });
    let wanted: BTreeMap<String, Vec<String>> = wanted.collect();
    let source = super::source::source();
    let mut lines = String::new();
    let compiled = compile_all(&nvrtc, &source);
    for (place, (generation, compiled)) in GENERATIONS.iter().zip(compiled).enumerate() {
        let device = generation.name;
        assert_eq!(parameters(&compiled.ptx), wanted, "{device}");
        for name in PACKED
            .iter()
            .flat_map(|name| [format!("{name}_f32"), format!("{name}_bf16")])
        {
            assert!(stores_packs(&compiled.ptx, &name), "{device}: {name}");
        }
        assert!(is_whole(&compiled.cubin), "{device}: the image");
        let half = compiled.cubin.len() / 2;
        assert!(
            !is_whole(&compiled.cubin[..half]),
            "{device}: half an image"
        );
        let threads = format!(".maxntid {THREADS}");
        assert_eq!(compiled.ptx.matches(&threads).count(), wanted.len());
        let frames = compiled
            .log
            .lines()
            .filter(|line| line.contains("bytes spill stores"));
        let frames: Vec<&str> = frames.collect();
        assert!(
            frames.len() >= wanted.len(),
            "{device}: the compiler says nothing of spills"
        );
        let in_registers = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        let all_in_registers = frames.iter().all(|frame| frame.ends_with(in_registers));
        assert!(all_in_registers, "{device}:\n{}", compiled.log);
        assert!(
            !compiled
                .log
                .contains("wgmma.mma_async instructions are serialized"),
            "{device}:\n{}",
            compiled.log
        );
        let used = usage(&compiled.cubin).expect("an image whose attributes can be read");
        let said = registers(&compiled.log);
        for form in super::source::entries().flat_map(|entry| entry.forms()) {
            let name = form.name();
            let usage = used[&name];
            assert_eq!(
                usage.registers, said[&name],
                "{device}: registers of {name}"
            );
            let threads = u64::from(THREADS);
            assert_eq!(usage.threads, threads, "{device}: {name}");
            assert_eq!(usage.stack, 0, "{device}: {name}: {usage:?}");
            assert!(usage.instructions > 0, "{device}: {name}: no instructions");
            let blocks = generation.blocks(&usage, dynamic_shared(form));
            let fewest = fewest(form, place);
            assert!(
                blocks >= fewest,
                "{device}: {name}: {blocks} blocks a multiprocessor by {usage:?}, not {fewest}"
            );
            lines += &line(device, form, &usage, blocks);
        }
        println!("{device}: {} kernels, none of which spills", wanted.len());
    }
    if let Ok(path) = env::var("GPIPE_KERNELS") {
        std::fs::write(&path, lines).expect("a file that can be written");
    }
}

/// Registers of each kernel, by the compiler's log.
fn registers(log: &str) -> BTreeMap<String, u64> {
    let kernels = log.split("Compiling entry function '").skip(1);
    let of_kernel = |text: &str| {
        let (name, rest) = text.split_once('\'')?;
        let (_, rest) = rest.split_once("Used ")?;
        let (number, _) = rest.split_once(" registers")?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    kernels.filter_map(of_kernel).collect()
}

/// What a kernel takes on a device, as a JSON object.
fn line(device: &str, form: Form, usage: &Usage, blocks: u32) -> String {
    let object = serde_json::json!({
        "device": device,
        "kernel": form.entry.name,
        "type": form.stored.to_string(),
        "registers": usage.registers,
        "stack_bytes": usage.stack,
        "shared_bytes": dynamic_shared(form),
        "blocks": blocks,
        "instructions": usage.instructions,
    });
    format!("{object}\n")
}
