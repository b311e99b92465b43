//! Four network namespaces as hosts, each with a name of its own: the bits of one process over TCP, and what happens
//! when a link goes down.
#![cfg(target_os = "linux")]

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::job::{SILENCE, STEPS, Start, Task, WORLDS, saved};
use super::ways;

const HOSTS: usize = 4;
/// The bridge between them, on which the launcher listens.
const BRIDGE: &str = "gpipe-bridge";
const NETWORK: &str = "10.77.0";

/// The hosts, until they are dropped.
struct Hosts {
    agent: PathBuf,
}

fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Hosts {
    /// `None` where they cannot be made: by another user than root, or without `ip`.
    fn up(folder: &Path) -> Option<Self> {
        let agent = folder.join("agent");
        // The launcher gives options of ssh, the host and a command.
        let text = "#!/bin/sh\nwhile :; do case \"$1\" in -*) shift;; *) break;; esac; done\n\
                    name=gpipe-host${1##*.}; shift\n\
                    exec ip netns exec $name unshare --uts sh -c \"hostname $name; $*\"\n";
        fs::write(&agent, text).expect("a file");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&agent, mode).expect("a file");
        Self::remove();
        let mut is_up = ip(&format!("link add {BRIDGE} type bridge"))
            && ip(&format!("addr add {NETWORK}.254/24 dev {BRIDGE}"))
            && ip(&format!("link set {BRIDGE} up"));
        for host in 1..=HOSTS {
            let (name, link) = (format!("gpipe-host{host}"), format!("gpipe-link{host}"));
            is_up = is_up
                && ip(&format!("netns add {name}"))
                && ip(&format!(
                    "link add {link} type veth peer name eth0 netns {name}"
                ))
                && ip(&format!("link set {link} master {BRIDGE} up"))
                && ip(&format!("-n {name} addr add {NETWORK}.{host}/24 dev eth0"))
                && ip(&format!("-n {name} link set eth0 up"))
                && ip(&format!("-n {name} link set lo up"));
        }
        let hosts = Self { agent };
        is_up.then_some(hosts)
    }

    fn remove() {
        for host in 1..=HOSTS {
            ip(&format!("netns del gpipe-host{host}"));
            ip(&format!("link del gpipe-link{host}"));
        }
        ip(&format!("link del {BRIDGE}"));
    }

    fn set_link(host: usize, state: &str) {
        assert!(ip(&format!("link set gpipe-link{host} {state}")));
    }

    /// Ends what is left on the hosts.
    fn clear() {
        for host in 1..=HOSTS {
            let name = format!("gpipe-host{host}");
            let found = Command::new("ip").args(["netns", "pids", &name]).output();
            let found = found.map(|output| output.stdout).unwrap_or_default();
            for process in String::from_utf8_lossy(&found).split_whitespace() {
                let mut kill = Command::new("kill");
                let _ = kill.args(["-KILL", process]).stderr(Stdio::null()).status();
            }
        }
    }

    /// What tells a launcher of them.
    fn options(&self, launcher: &Path, ranks: usize) -> Vec<String> {
        let each = ranks.div_ceil(HOSTS);
        let hosts = (1..=ranks.min(HOSTS)).map(|host| format!("{NETWORK}.{host}:{each}"));
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let (agent, network) = (self.agent.display(), format!("{NETWORK}.0/24"));
        let version = Command::new(launcher).arg("--version").output();
        let version = version.map(|output| output.stdout).unwrap_or_default();
        let options = match String::from_utf8_lossy(&version).contains("HYDRA") {
            true => format!(
                "-localhost {NETWORK}.254 -genv UCX_TLS tcp,self -launcher ssh -launcher-exec {agent} -hosts {hosts}"
            ),
            false => format!(
                "--prtemca plm_ssh_agent {agent} --prtemca prte_if_include {network} \
                 --mca btl_tcp_if_include {network} --mca btl tcp,self --map-by node --host {hosts}"
            ),
        };
        options.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        Self::clear();
        Self::remove();
    }
}

/// Seconds from the end of a link to that of all ranks.
fn link_goes_down(
    launcher: &Path,
    hosts: &Hosts,
    folder: &Path,
    attempt: usize,
    task: &Task,
) -> f64 {
    let run = folder.join("run");
    let host = 1 + attempt % HOSTS;
    let at = 1 + (7 * attempt as u64) % (STEPS / 2);
    let start = Start {
        launcher,
        options: &hosts.options(launcher, HOSTS),
        folder,
        said: &folder.join("said"),
        world: WORLDS[0],
        new: Some(task),
        before: &[],
        silence: SILENCE,
    };
    let mut job = start.job();
    while saved(&run) < at && job.is_running() {
        thread::sleep(Duration::from_millis(2));
    }
    Hosts::set_link(host, "down");
    // A launcher may wait for its daemon behind the link.
    let (seconds, text) = job.end_of_ranks(folder, &format!("link {host}"));
    Hosts::clear();
    Hosts::set_link(host, "up");
    // The bridge passes nothing on for a moment.
    thread::sleep(Duration::from_secs(1));
    // What rank 0 says is lost with its link.
    let silent = format!("rank {} (gpipe-host{host}): silent for", host - 1);
    let is_told = text.contains(&silent) || host == 1;
    let step = saved(&run);
    assert!(
        is_told,
        "link {host}, over after {seconds:.1} s, step {step} of {at}: {text}"
    );
    assert!(step >= at, "link {host}: a checkpoint is lost");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpipe"));
    command
        .current_dir(folder)
        .args(["train", "--resume", "run", "--stages", "2", "-q"])
        .args(["--replicas", "1", "--devices", "cpu*2"]);
    let output = command.output().expect("a run");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "link {host}, resumed: {text}");
    assert!(task.is_equal(&run), "link {host}: other bits");
    fs::remove_dir_all(&run).expect("a run");
    seconds
}

#[test]
fn hosts_have_the_bits_of_one_process_and_a_link_that_is_lost_ends_the_job() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        println!("no launcher: GPIPE_MPIRUN names none");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a folder");
    let Some(hosts) = Hosts::up(&folder) else {
        println!("no hosts: network namespaces need root and `ip`");
        return;
    };
    let is_exam = env::var_os("GPIPE_EXAM").is_some();
    let (stride, times) = if is_exam { (5, 20) } else { (101, 1) };
    let task = Task::text(&folder);
    let mut tried = 0;
    for launcher in env::split_paths(&launchers) {
        // Of at least two ranks.
        let several = ways().into_iter().filter(|way| way.ranks() > 1);
        for way in several.step_by(stride) {
            let options = hosts.options(&launcher, way.ranks());
            let is_equal = way.is_equal_under(&launcher, &options);
            assert!(is_equal, "{launcher:?} over hosts: {way:?}");
            tried += 1;
        }
        let seconds =
            (0..times).map(|attempt| link_goes_down(&launcher, &hosts, &folder, attempt, &task));
        let seconds: Vec<f64> = seconds.collect();
        tried += seconds.len();
        let longest = seconds.iter().copied().fold(0.0, f64::max);
        println!(
            "{}: link down: {} times, over after at most {longest:.1} s",
            launcher.display(),
            seconds.len()
        );
    }
    println!("exam R3 {tried}/{tried}");
}

/// Ranks share the stderr of their launcher: where each line is one write, lines of several stay apart.
#[test]
fn an_error_is_written_in_one_piece() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    // Each write is a message.
    let (read, written) = UnixDatagram::pair().expect("a pair");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpipe"));
    command.args(["train", "--none"]);
    command.stderr(Stdio::from(OwnedFd::from(written)));
    assert_eq!(command.status().expect("a run").code(), Some(2));
    let mut text = [0; 4096];
    let length = read.recv(&mut text).expect("a message");
    let first = String::from_utf8_lossy(&text[..length]);
    assert!(
        first.starts_with("error: ") && first.ends_with('\n'),
        "{first}"
    );
}
