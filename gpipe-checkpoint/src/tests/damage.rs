//! Whatever happens to a checkpoint's files, it is noticed, and the right file is named.

use super::disk::MemoryDisk;
use super::{HOME, MEMORY, contents, disk, files, home, newest_step};
use crate::checkpoint::verify;
use crate::fs::Fs;
use crate::manifest::Manifest;
use crate::names;
use crate::search::newest_on;
use crate::write::{commit, prune};

const STEP: u64 = 2;

fn path(name: &str) -> String {
    format!("{HOME}/step-00000002/{name}")
}

/// What is said of the checkpoint.
fn told(disk: &MemoryDisk) -> Option<String> {
    let fault = verify(disk, &home().join(names::of_step(STEP)), Some(STEP), MEMORY).err();
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
        assert_eq!(
            told(&disk).unwrap(),
            format!("{name} is no regular file: put the file itself in its place, or remove it")
        );

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

/// What is in the way is named, and no older checkpoint is taken in its place.
#[test]
fn what_is_no_damage_is_refused_by_name() {
    let refused = |disk: &MemoryDisk, step: u64| -> String {
        let found = newest_on(disk, home(), MEMORY).unwrap();
        assert!(found.checkpoint.is_none() && found.skipped.is_empty());
        let refused = found.refused.expect("it is in the way");
        assert_eq!(refused.step, step);
        refused.fault.to_string()
    };
    let clean = disk(&[1, STEP]);
    let with = |name: &str, content: Option<Vec<u8>>| {
        let disk = clean.copy();
        disk.put(&path(name), content);
        refused(&disk, STEP)
    };
    for (name, mend) in [
        (".DS_Store", "remove it"),
        ("model/.DS_Store", "remove it"),
        (".nfs000000001", "end the process that holds it open"),
    ] {
        let told = with(name, Some(Vec::new()));
        assert_eq!(told, format!("{name} is not in the manifest: {mend}"));
    }
    assert!(with(names::STATE, None).contains("put the file itself in its place"));

    // A later version's format, sealed as this one's.
    let manifest = String::from_utf8(clean.bytes(&path(names::MANIFEST))).unwrap();
    let list = Manifest::unsealed(manifest.as_bytes()).unwrap();
    let list = String::from_utf8(list.to_vec()).unwrap();
    let later = list.replace("checkpoint 1\"", "checkpoint 2\",\n  \"shards\": []");
    let told = with(names::MANIFEST, Some(Manifest::seal(later.as_bytes())));
    assert!(
        told.contains("`gpipe checkpoint 2`") && told.ends_with("version of gpipe that wrote it")
    );

    let mut disk = clean.copy();
    disk.rename(&home().join("step-00000002"), &home().join("step-00000007"))
        .unwrap();
    let told = refused(&disk, 7);
    assert_eq!(
        told,
        "manifest.json is of step 2: name the folder step-00000002"
    );
    // A file and a link of a checkpoint's name.
    for content in [Some(Vec::new()), None] {
        disk.put(&format!("{HOME}/step-00000009"), content);
        assert!(refused(&disk, 9).starts_with("is no folder: remove it"));
    }
    // Elsewhere in the folder of checkpoints they are in nobody's way.
    for name in [".DS_Store", ".nfs000000001", "step-00000009.bak"] {
        clean.put(&format!("{HOME}/{name}"), Some(Vec::new()));
    }
    assert_eq!(newest_step(&clean), Some(STEP));
}

#[test]
fn a_run_that_went_on_saves_over_what_is_damaged_and_nothing_else() {
    let mut disk = disk(&[1, 2, 3]);
    let of = |step: u64, name: &str| format!("{HOME}/{}/{name}", names::of_step(step));
    for step in [2, 3] {
        disk.put(&of(step, names::OPTIMIZER), Some(vec![0; 900]));
    }
    assert_eq!(newest_step(&disk), Some(1));
    // They are left alone and do not count.
    prune(&mut disk, home(), 1, 1, None).unwrap();
    assert_eq!(newest_step(&disk), Some(1));
    assert_eq!(disk.bytes(&of(3, names::OPTIMIZER)), [0; 900]);
    commit(&mut disk, home(), 2, &contents(2), None).unwrap();
    assert_eq!(newest_step(&disk), Some(2));
    assert_eq!(disk.list(home()).unwrap().len(), 4);
    // One that is whole, or that cannot be read, is not replaced.
    commit(&mut disk, home(), 2, &contents(2), None).unwrap_err();
    disk.put(&of(3, names::OPTIMIZER), None);
    commit(&mut disk, home(), 3, &contents(3), None).unwrap_err();
    assert_eq!(disk.list(home()).unwrap().len(), 4);
}

/// A folder in the place of the pointer stands in nobody's way, and is kept.
#[test]
fn a_folder_called_like_the_pointer_is_set_aside() {
    let mut disk = disk(&[1]);
    let pointer = home().join(names::LATEST);
    disk.remove_file(&pointer).unwrap();
    disk.create_dir(&pointer).unwrap();
    commit(&mut disk, home(), 2, &contents(2), None).unwrap();
    assert_eq!(newest_step(&disk), Some(2));
    let there = ["damaged-latest", "latest", "step-00000001", "step-00000002"];
    assert_eq!(disk.list(home()).unwrap(), there);
}

#[test]
fn what_claims_more_than_it_holds_is_refused_before_it_is_read() {
    let disk = disk(&[STEP]);
    let mut manifest = Manifest::parse(&disk.bytes(&path(names::MANIFEST))).unwrap();
    manifest.files[0].bytes = u64::MAX - 10;
    manifest.files[1].bytes = u64::MAX - 10;
    disk.put(&path(names::MANIFEST), Some(manifest.to_bytes().unwrap()));
    assert!(told(&disk).unwrap().contains("more than the"));
    disk.put(&path(names::MANIFEST), Some(vec![b' '; (1 << 24) + 1]));
    assert!(
        told(&disk)
            .unwrap()
            .starts_with("manifest.json has 16777217 bytes")
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
