//! Limits on the memory of this process: those of its control groups, of all groups above them, and its
//! resource limits. Linux alone has them in files.

use std::fs;
use std::path::{Component, Path};

/// A limit in bytes, and what counts towards it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub most: u64,
    pub used: u64,
}

impl MemoryLimit {
    /// What may be used in addition.
    pub fn free(self) -> u64 {
        self.most.saturating_sub(self.used)
    }
}

/// All limits of this process, in a system whose root is `root`.
pub(crate) fn limits(root: &Path) -> Vec<MemoryLimit> {
    let process = root.join("proc/self");
    let mut limits = resource_limits(&process);
    // A line for each hierarchy: `number:controllers:path`; version 2 has the number 0.
    let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let tops: &[(&str, &Names)] = match controllers {
            "" if number == "0" => &[
                ("sys/fs/cgroup", &VERSION_2),
                ("sys/fs/cgroup/unified", &VERSION_2),
            ],
            list if list.split(',').any(|name| name == "memory") => {
                &[("sys/fs/cgroup/memory", &VERSION_1)]
            }
            _ => &[],
        };
        for (top, names) in tops {
            limits.extend(groups_above(&root.join(top), Path::new(path), names));
        }
    }
    limits
}

/// Files of a control group.
struct Names {
    most: &'static str,
    used: &'static str,
    /// In `memory.stat`: pages of files that are given up when memory is short.
    cache: &'static str,
}

const VERSION_1: Names = Names {
    most: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file ",
};
const VERSION_2: Names = Names {
    most: "memory.max",
    used: "memory.current",
    cache: "inactive_file ",
};

/// The limits of a group and of all above it. In a container the path is often the one outside: of
/// what is not there, there is no limit to be read, and the container's own is at the top.
fn groups_above(top: &Path, path: &Path, names: &Names) -> Vec<MemoryLimit> {
    let inside: Vec<&Path> = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .map(|part| Path::new(part.as_os_str()))
        .collect();
    let group = |depth: usize| {
        let folder = inside[..depth]
            .iter()
            .fold(top.to_owned(), |folder, part| folder.join(part));
        let number = |name: &str| {
            fs::read_to_string(folder.join(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        // Where there is no limit, version 2 says `max`, which is no number.
        let most = number(names.most)?;
        let used: u64 = number(names.used).unwrap_or(0);
        let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cache = statistics
            .lines()
            .find_map(|line| line.strip_prefix(names.cache));
        let cache = cache.and_then(|bytes| bytes.trim().parse().ok());
        Some(MemoryLimit {
            most,
            used: used.saturating_sub(cache.unwrap_or(0)),
        })
    };
    (0..=inside.len()).filter_map(group).collect()
}

/// `RLIMIT_AS` and `RLIMIT_DATA`.
fn resource_limits(process: &Path) -> Vec<MemoryLimit> {
    let limits = fs::read_to_string(process.join("limits")).unwrap_or_default();
    let limit = |(name, used): (&str, &str)| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        // Without a limit, the word is `unlimited`.
        let most = line.split_whitespace().next()?.parse().ok()?;
        let used = kib_in(&process.join("status"), used).unwrap_or(0);
        Some(MemoryLimit { most, used })
    };
    [
        ("Max address space", "VmSize:"),
        ("Max data size", "VmData:"),
    ]
    .into_iter()
    .filter_map(limit)
    .collect()
}

/// The value of a line in kB of a file of the kernel, converted to bytes.
pub(crate) fn kib_in(file: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = kib.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn limits_of(files: &[(&str, &str)]) -> Vec<(u64, u64)> {
        let root = system(files);
        let found = limits(root.path());
        found
            .iter()
            .map(|limit| (limit.most, limit.free()))
            .collect()
    }

    #[test]
    fn every_group_above_counts() {
        let files = [
            ("proc/self/cgroup", "0::/user.slice/job/step\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/job/memory.max", "600\n"),
            ("sys/fs/cgroup/user.slice/job/memory.current", "500\n"),
            // The cache of files is given up when memory is short.
            (
                "sys/fs/cgroup/user.slice/job/memory.stat",
                "anon 1\ninactive_file 300\n",
            ),
            ("sys/fs/cgroup/user.slice/job/step/memory.max", "900\n"),
        ];
        assert_eq!(limits_of(&files), [(600, 400), (900, 900)]);
    }

    #[test]
    fn a_container_has_its_limit_at_the_top() {
        let files = [
            ("proc/self/cgroup", "0::/../../docker/abc\n"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "2000\n"),
        ];
        assert_eq!(limits_of(&files), [(1000, 0)]);
    }

    #[test]
    fn the_first_version_has_a_hierarchy_for_memory() {
        let files = [
            (
                "proc/self/cgroup",
                "9:name=systemd:/x\n5:cpu,memory:/job\n0::/\n",
            ),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "700\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "200\n"),
        ];
        let unlimited = 9_223_372_036_854_771_712;
        assert_eq!(limits_of(&files), [(unlimited, unlimited), (700, 500)]);
    }

    #[test]
    fn resource_limits_count() {
        let files = [
            (
                "proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max data size             unlimited            unlimited            bytes\n\
                 Max address space         614400               unlimited            bytes\n",
            ),
            (
                "proc/self/status",
                "Name:\tgpipe\nVmSize:\t     100 kB\nVmData:\t 7 kB\n",
            ),
        ];
        assert_eq!(limits_of(&files), [(614_400, 512_000)]);
        assert_eq!(limits_of(&[]), []);
    }
}
