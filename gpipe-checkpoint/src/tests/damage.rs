//! Whatever happens to a checkpoint's files, it is noticed, and the right file is named.

use super::disk::MemoryDisk;
use super::{HOME, MEMORY, disk, files, home, newest_step};
use crate::checkpoint::verify;
use crate::fs::Fs;
use crate::manifest::Manifest;
use crate::names;
use crate::search::{newest_on, pointed};

const STEP: u64 = 2;

fn path(name: &str) -> String {
    format!("{HOME}/step-00000002/{name}")
}

/// What is said of the checkpoint.
fn told(disk: &MemoryDisk) -> Option<String> {
    let fault = verify(disk, &home().join(names::of_step(STEP)), STEP, MEMORY).err();
    fault.map(|fault| fault.to_string())
}

/// Replaces a file for the time of a look. Fails unless the damage is noticed and the file named.
fn spoiled(disk: &MemoryDisk, name: &str, bytes: Vec<u8>, what: &dyn Fn() -> String) {
    let before = disk.bytes(&path(name));
    disk.put(&path(name), Some(bytes));
    match told(disk) {
        Some(fault) => assert!(fault.starts_with(name), "{}: {fault}", what()),
        None => panic!("{} goes unnoticed", what()),
    }
    disk.put(&path(name), Some(before));
}

#[test]
fn every_flipped_bit_is_named() {
    let disk = disk(&[STEP]);
    let manifest = disk.bytes(&path(names::MANIFEST));
    for bit in 0..8 * manifest.len() {
        let mut flipped = manifest.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        spoiled(&disk, names::MANIFEST, flipped, &|| {
            format!("bit {bit} of the manifest")
        });
    }
    // Elsewhere every bit of this small checkpoint would be 16,400; as many again, at random places.
    let files = files(STEP);
    let all: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut random = 1_u64;
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mut bit = (random >> 33) as usize % (8 * all);
        let (name, bytes) = files
            .iter()
            .find(|(_, bytes)| match bit.checked_sub(8 * bytes.len()) {
                Some(rest) => {
                    bit = rest;
                    false
                }
                None => true,
            })
            .expect("a bit of a file");
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        spoiled(&disk, name, flipped, &|| format!("bit {bit} of {name}"));
    }
    assert_eq!(told(&disk), None);
    println!("exam C5 {0}/{0}", 8 * manifest.len() + 20_000);
}

#[test]
fn every_truncation_and_growth_is_named() {
    let disk = disk(&[STEP]);
    let mut lengths = 0;
    let mut names: Vec<String> = files(STEP).into_iter().map(|(name, _)| name).collect();
    names.push(names::MANIFEST.to_owned());
    for name in &names {
        let bytes = disk.bytes(&path(name));
        for length in 0..bytes.len() {
            let what = || format!("{name} cut to {length} bytes");
            spoiled(&disk, name, bytes[..length].to_vec(), &what);
        }
        lengths += bytes.len();
        let grown = [&bytes[..], b"\n"].concat();
        spoiled(&disk, name, grown, &|| format!("{name} grown"));
    }
    assert_eq!(told(&disk), None);
    println!("exam C5 {lengths}/{lengths}");
}

#[test]
fn missing_extra_swapped_and_stale_files_are_named() {
    let clean = disk(&[1, STEP]);
    let names: Vec<String> = files(STEP).into_iter().map(|(name, _)| name).collect();
    for name in names.iter().map(String::as_str).chain([names::MANIFEST]) {
        let mut disk = clean.copy();
        disk.remove_file(path(name).as_ref()).unwrap();
        assert_eq!(told(&disk).unwrap(), format!("{name} is missing"));

        // A link, a pipe or a device in its place.
        disk.put(&path(name), None);
        assert_eq!(told(&disk).unwrap(), format!("{name} is no regular file"));

        // The same file of the checkpoint before.
        let stale = clean.bytes(&path(name).replace("step-00000002", "step-00000001"));
        disk.put(&path(name), Some(stale));
        assert!(told(&disk).unwrap().starts_with(match name {
            names::MANIFEST => "manifest.json is of step 1",
            name => name,
        }));
    }
    for (a, b) in names.iter().zip(names.iter().skip(1)) {
        let disk = clean.copy();
        disk.put(&path(a), Some(clean.bytes(&path(b))));
        disk.put(&path(b), Some(clean.bytes(&path(a))));
        let fault = told(&disk).unwrap();
        assert!(fault.starts_with(a) || fault.starts_with(b), "{fault}");
    }
    for name in ["notes.txt", "model/model.safetensors.index.json", ".hidden"] {
        let disk = clean.copy();
        disk.put(&path(name), Some(Vec::new()));
        assert_eq!(
            told(&disk).unwrap(),
            format!("{name} is not in the manifest: remove it")
        );
    }
    let mut disk = clean.copy();
    disk.create_dir(path("deep").as_ref()).unwrap();
    disk.put(&path("deep/file"), Some(Vec::new()));
    assert!(
        told(&disk)
            .unwrap()
            .starts_with("deep/file is not in the manifest")
    );
}

#[test]
fn a_folder_that_is_none_and_one_under_another_name_are_refused() {
    let mut disk = disk(&[1, 2]);
    disk.rename(&home().join("step-00000002"), &home().join("step-00000007"))
        .unwrap();
    assert_eq!(newest_step(&disk), Some(1));
    disk.put(&format!("{HOME}/step-00000009"), Some(Vec::new()));
    disk.put(&format!("{HOME}/step-00000010"), None);
    let search = newest_on(&disk, home(), MEMORY).unwrap();
    assert_eq!(search.missing, Some(2));
    assert_eq!(search.checkpoint.unwrap().step(), 1);
    let told: Vec<String> = search
        .skipped
        .iter()
        .map(|skipped| skipped.fault.to_string())
        .collect();
    assert_eq!(
        told,
        ["is no folder", "is no folder", "manifest.json is of step 2"]
    );
    assert_eq!(pointed(&disk, home(), names::LATEST), Some(2));
}

#[test]
fn what_claims_more_than_it_holds_is_refused_before_it_is_read() {
    let disk = disk(&[STEP]);
    let mut manifest = Manifest::parse(&disk.bytes(&path(names::MANIFEST))).unwrap();
    manifest.files[0].bytes = u64::MAX - 10;
    manifest.files[1].bytes = u64::MAX - 10;
    disk.put(&path(names::MANIFEST), Some(manifest.to_bytes().unwrap()));
    assert!(told(&disk).unwrap().contains("more than the"));
    disk.put(&path(names::MANIFEST), Some(vec![b' '; (1 << 20) + 1]));
    assert!(
        told(&disk)
            .unwrap()
            .starts_with("manifest.json has 1048577 bytes")
    );
}

#[test]
fn the_newest_that_is_whole_is_found_in_any_layout() {
    let steps = [1, 2, 3, 4];
    for damaged in 0..1_u32 << steps.len() {
        let disk = disk(&steps);
        for step in steps
            .into_iter()
            .filter(|step| damaged >> (step - 1) & 1 == 1)
        {
            let name = format!("{HOME}/{}/{}", names::of_step(step), names::OPTIMIZER);
            disk.put(&name, Some(vec![0; 900]));
        }
        let expected = steps
            .into_iter()
            .rev()
            .find(|step| damaged >> (step - 1) & 1 == 0);
        assert_eq!(newest_step(&disk), expected, "{damaged:04b}");
    }
}
