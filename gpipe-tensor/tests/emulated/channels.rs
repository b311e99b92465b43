//! Channels of NCCL between GPUs of two processes: what arrives is what was sent, in every order in which devices may
//! do their work, and a fault ends every wait.

use std::fmt::Write as _;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpipe_tensor::{
    ChannelEnd, DType, Device, DeviceId, Nccl, NcclChannel, Result, Shape, Tensor, UNIQUE_ID_BYTES,
    ops,
};

use crate::{Host, command};

const ROUNDS: usize = 6;
/// Processes that take longer hang.
const LONGEST: Duration = Duration::from_secs(60);

/// One of two processes, with a channel to the other one and one back.
struct Process {
    device: Device,
    /// Counts what is between the two.
    transit: Device,
    sends: NcclChannel,
    receives: NcclChannel,
}

impl Process {
    /// Opens both channels; none if they cannot be connected.
    fn open(ordinal: u32, sends: &[u8], receives: &[u8]) -> Option<Self> {
        let host = gpipe_tensor::Host::new(1).expect("a host");
        let device = |id| host.device(id).expect("a device");
        let nccl = Nccl::find().expect("NCCL");
        let (here, transit) = (device(DeviceId::Cuda(ordinal)), device(DeviceId::Cpu));
        let begin = |id: &[u8], end| {
            let id = id.try_into().expect("as many bytes");
            NcclChannel::begin(&nccl, &host, here.id(), id, end).expect("a channel")
        };
        let process = Self {
            sends: begin(sends, ChannelEnd::Sender),
            receives: begin(receives, ChannelEnd::Receiver),
            device: here,
            transit,
        };
        let since = Instant::now();
        loop {
            let mut ends = [(sends, &process.sends), (receives, &process.receives)];
            // In an order that both processes have.
            ends.sort_by_key(|(id, _)| *id);
            match NcclChannel::advance_all(&ends.map(|(_, channel)| channel)) {
                Ok(true) => return Some(process),
                Ok(false) if since.elapsed() < LONGEST => {
                    thread::sleep(Duration::from_millis(1));
                }
                other => {
                    println!("not connected: {other:?}");
                    return None;
                }
            }
        }
    }

    fn send(&self, tensor: Tensor) -> Result<()> {
        self.sends.send(tensor.send(&self.transit)?)
    }

    fn receive(&self, round: usize) -> Result<Tensor> {
        self.receives
            .receive(dtype(round), shape(round), &self.transit)?
            .receive(&self.device)
    }
}

/// The shape of what is passed in a round: the last one has no elements.
fn shape(round: usize) -> Shape {
    Shape::from([(ROUNDS - 1 - round) * 500, 3].as_slice())
}

/// The type of what is passed in a round.
fn dtype(round: usize) -> DType {
    [DType::F32, DType::BF16][round % 2]
}

/// The process that doubles what it receives and sends it back. The argument: what it does, and the names of the
/// channels from it and to it.
pub fn peer(argument: &str) -> bool {
    let words: Vec<&str> = argument.split(' ').collect();
    let [task, sends, receives] = words[..] else {
        return false;
    };
    let Some(process) = Process::open(1, &bytes_of(sends), &bytes_of(receives)) else {
        return false;
    };
    if task == "gone" {
        return true;
    }
    let double = |round| {
        let arrived = process.receive(round)?;
        process.send(ops::add(&arrived, &arrived)?)
    };
    let doubled = (0..ROUNDS).all(|round| double(round).is_ok());
    // A channel ends with its process: what is on its way must have left.
    let mut over = String::new();
    let _ = std::io::stdin().read_line(&mut over);
    doubled
}

/// The first process, which starts the other one.
pub fn program(task: &str) -> bool {
    let id = || {
        let nccl = Nccl::find().expect("NCCL");
        nccl.unique_id().expect("a name")
    };
    let (there, back) = (id(), id());
    let names = format!("{task} {} {}", hex_of(&back), hex_of(&there));
    let mut other = command("peer", &names);
    let other = other.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut other = other.expect("another process");
    let right = match (Process::open(0, &there, &back), task) {
        (Some(process), "alike") => process.are_doubled() && ends_well(&mut other),
        (Some(process), "gone") => process.ends_waits(&mut other),
        (Some(process), "severed") => process.hears_of_faults(),
        _ => false,
    };
    let _ = other.kill();
    let _ = other.wait();
    right
}

impl Process {
    fn are_doubled(&self) -> bool {
        let tensor = |round: usize| -> Result<Tensor> {
            let values = 0..shape(round).elements().expect("a size");
            let values: Vec<f32> = values.map(|i| (i * (round + 2)) as f32).collect();
            Tensor::from_f32(&self.device, shape(round), values)?.to_dtype(dtype(round))
        };
        let round = |round: usize| {
            let tensor = tensor(round)?;
            // By a kernel, which the transfer has to wait for.
            self.send(ops::add(&tensor, &tensor)?)
        };
        // All are under way before the first comes back.
        if !(0..ROUNDS).all(|n| round(n).is_ok()) {
            return false;
        }
        let back = (0..ROUNDS).map(|round| self.receive(round));
        let Ok(back) = back.collect::<Result<Vec<Tensor>>>() else {
            return false;
        };
        let is_right = |(round, back): (usize, &Tensor)| {
            let sent = tensor(round).and_then(|tensor| tensor.to_f32s());
            let sent = sent.expect("floats").into_iter();
            back.dtype() == dtype(round)
                && back.to_f32s().expect("floats")
                    == sent.map(|value| 4.0 * value).collect::<Vec<f32>>()
        };
        let are_right = back.iter().enumerate().all(is_right);
        are_right && self.transit.live_bytes() == 0
    }

    /// The other process ended: a device that waits for it waits until the channel is ended, no longer.
    fn ends_waits(self, other: &mut Child) -> bool {
        let _ = other.wait();
        let receiving = self.receive(0).is_ok();
        let since = Instant::now();
        let done = thread::scope(|scope| {
            let finished = scope.spawn(|| self.device.finish().is_ok());
            thread::sleep(Duration::from_millis(200));
            let waited = !finished.is_finished();
            self.receives.abort();
            waited && finished.join().expect("no panic")
        });
        let refused = self.receive(0).is_err();
        receiving && done && refused && since.elapsed() < LONGEST
    }

    /// NCCL reports a fault of a transfer that is on its way.
    fn hears_of_faults(&self) -> bool {
        let since = Instant::now();
        let received = self.receive(0).is_ok();
        let heard = loop {
            match self.receives.check() {
                Err(error) => break error.to_string(),
                Ok(()) if since.elapsed() > LONGEST => return false,
                Ok(()) => thread::sleep(Duration::from_millis(1)),
            }
        };
        self.receives.abort();
        self.sends.abort();
        received && heard.contains("severed") && self.device.finish().is_ok()
    }
}

fn ends_well(other: &mut Child) -> bool {
    drop(other.stdin.take());
    other.wait().is_ok_and(|status| status.success())
}

fn hex_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn bytes_of(text: &str) -> Vec<u8> {
    let byte = |place: usize| u8::from_str_radix(&text[2 * place..2 * place + 2], 16);
    let bytes = (0..UNIQUE_ID_BYTES).map(|place| byte(place).expect("two digits"));
    bytes.collect()
}

#[test]
fn tensors_pass_between_processes_in_every_order() {
    let Some(host) = Host::get() else { return };
    for seed in 0..10 {
        let outcome = host.run_with_nccl(&mut command("channel", "alike"), &format!("seed={seed}"));
        assert!(outcome.is_right(), "seed {seed}: {outcome:?}");
    }
}

#[test]
fn a_peer_that_is_gone_holds_nobody() {
    let Some(host) = Host::get() else { return };
    for seed in [1, 3, 4] {
        let settings = &format!("seed={seed} deaf=1");
        let outcome = host.run_with_nccl(&mut command("channel", "gone"), settings);
        assert!(outcome.is_right(), "{settings}: {outcome:?}");
    }
}

#[test]
fn faults_that_nccl_reports_are_heard() {
    let Some(host) = Host::get() else { return };
    // Those by which the two channels are tried are the first two.
    let outcome = host.run_with_nccl(&mut command("channel", "severed"), "seed=3 sever=3");
    assert!(outcome.is_right(), "{outcome:?}");
}

#[test]
fn a_host_without_nccl_says_so() {
    let Some(host) = Host::get() else { return };
    let outcome = host.run(&mut command("no-nccl", ""), "seed=1");
    assert!(outcome.is_right(), "{outcome:?}");
    for (version, says) in [("nccl=21304", "older than 2.14"), ("nccl=22703", "2.27.3")] {
        let outcome = host.run_with_nccl(&mut command("found-nccl", says), version);
        assert!(outcome.is_right(), "{version}: {outcome:?}");
    }
}

/// Whether NCCL is missing.
pub fn missing(_: &str) -> bool {
    Nccl::find().is_err_and(|why| why.contains("libnccl.so.2"))
}

/// Whether what is said of NCCL has this in it.
pub fn found(says: &str) -> bool {
    Nccl::find()
        .map_or_else(|why| why, |nccl| nccl.version())
        .contains(says)
}
