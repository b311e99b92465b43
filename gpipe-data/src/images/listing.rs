//! What a folder of pictures holds, by the names of its files: classes, pictures and masks.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, SourceFault, is_elsewhere};
use crate::folder_walk::{FolderWalk, PassedOver, below, is_of_runs};
use crate::options::ImageOptions;
use crate::source::is_picture;

/// The folders of a data set with masks.
const IMAGES: &str = "images";
const MASKS: &str = "masks";

/// Names of the parts of a data set, each of which has the folders of all classes.
const PARTS: [&str; 9] = [
    "train",
    "training",
    "val",
    "valid",
    "validation",
    "dev",
    "test",
    "testing",
    "eval",
];

/// A picture, and what it shows.
pub(super) struct Entry {
    /// The name below the folder.
    pub name: String,
    pub path: PathBuf,
    pub target: Target,
}

/// What a picture shows.
pub(super) enum Target {
    Class(u32),
    /// The file of the mask.
    Mask(PathBuf),
}

/// Number of classes in a folder of pictures.
///
/// # Errors
/// [`Error::Source`] for a folder without classes, [`Error::Unreadable`].
pub fn count_classes(source: &str) -> Result<usize> {
    Ok(class_folders(Path::new(source))?.0.len())
}

/// Names of the classes in a folder of pictures, in their order.
///
/// # Errors
/// As [`count_classes`].
pub fn class_names(source: &str) -> Result<Vec<String>> {
    let (folders, _) = class_folders(Path::new(source))?;
    let folders = folders.into_iter();
    Ok(folders.map(|(name, _)| name).collect())
}

/// A fault of a folder of pictures.
pub(super) fn fault(root: &Path, fault: SourceFault) -> Error {
    let name = root.display().to_string();
    Error::Source { name, fault }
}

/// Names and paths in a folder, in the order of names; those that begin with a dot are left out.
pub(super) fn list(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let unreadable = |source| Error::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = entries.map_err(unreadable)?.into_iter();
    let named = entries.map(|entry| {
        (
            entry.file_name().to_string_lossy().into_owned(),
            entry.path(),
        )
    });
    let mut named: Vec<_> = named.filter(|(name, _)| !name.starts_with('.')).collect();
    named.sort();
    Ok(named)
}

/// The folders of classes, in the order of their names, and those of gpipe's runs beside them.
fn class_folders(root: &Path) -> Result<(Vec<(String, PathBuf)>, PassedOver)> {
    if !root.is_dir() {
        return Err(match fs::metadata(root) {
            Err(source) if is_elsewhere(root, &source) => Error::Unreadable {
                path: root.to_owned(),
                source,
            },
            _ => fault(root, SourceFault::NoFolder),
        });
    }
    let mut folders = list(root)?;
    folders.retain(|(_, path)| path.is_dir());
    let (runs, folders): (Vec<_>, Vec<_>) =
        folders.into_iter().partition(|(_, path)| is_of_runs(path));
    let passed = PassedOver {
        runs: runs.into_iter().map(|(_, path)| path).collect(),
        ..PassedOver::default()
    };
    if folders.is_empty() {
        return Err(fault(root, SourceFault::NoClasses));
    }
    match not_classes(&folders)? {
        Some(doubt) => Err(fault(root, doubt)),
        None => Ok((folders, passed)),
    }
}

/// Why these folders are not those of classes: they are parts of a data set, or pictures and their masks.
fn not_classes(folders: &[(String, PathBuf)]) -> Result<Option<SourceFault>> {
    if folders.iter().map(|(name, _)| &**name).eq([IMAGES, MASKS]) {
        return Ok(Some(SourceFault::MasksAsClasses));
    }
    for (name, path) in folders {
        if !PARTS.contains(&&*name.to_lowercase()) {
            return Ok(None);
        }
        if !list(path)?.iter().any(|(_, path)| path.is_dir()) {
            return Ok(None);
        }
    }
    let training = folders
        .iter()
        .find(|(name, _)| name.to_lowercase().starts_with("train"));
    let named = training.or(folders.first());
    Ok(named.map(|(_, path)| SourceFault::PartsAsClasses(path.clone())))
}

/// The pictures in a folder and in the folders in it, by the ends of their names, each with its name below it.
fn pictures(folder: &Path, passed: &mut PassedOver) -> Result<Vec<(String, PathBuf)>> {
    let walk = FolderWalk::of(folder)?;
    passed.extend(walk.passed);
    let found = walk.files.into_iter().filter(|path| is_picture(path));
    Ok(found.map(|path| (below(folder, &path), path)).collect())
}

/// The pictures in the folders of the classes, at any depth.
pub(super) fn classified(root: &Path, image: &ImageOptions) -> Result<(Vec<Entry>, PassedOver)> {
    let (folders, mut passed) = class_folders(root)?;
    let (most, names) = (image.classes, &image.names);
    if folders.len() > most {
        let classes = folders.len();
        return Err(fault(root, SourceFault::TooManyClasses { classes, most }));
    }
    let mut entries = Vec::new();
    for (number, (folder, path)) in folders.into_iter().enumerate() {
        let class = match names.is_empty() {
            true => number,
            false => names
                .iter()
                .position(|name| *name == folder)
                .ok_or_else(|| {
                    let known = names.join(", ");
                    fault(root, SourceFault::UnknownClass(folder.clone(), known))
                })?,
        };
        let found = pictures(&path, &mut passed)?;
        if found.is_empty() {
            return Err(fault(root, SourceFault::EmptyClass(folder)));
        }
        entries.extend(found.into_iter().map(|(name, path)| Entry {
            name: format!("{folder}/{name}"),
            path,
            target: Target::Class(class as u32),
        }));
    }
    Ok((entries, passed))
}

/// The pictures of `images`, at any depth, each with the mask of its name in `masks`.
pub(super) fn masked(root: &Path) -> Result<(Vec<Entry>, PassedOver)> {
    let [images, masks] = [IMAGES, MASKS].map(|name| root.join(name));
    if !images.is_dir() || !masks.is_dir() {
        return Err(fault(root, SourceFault::NoMasks));
    }
    let mut passed = PassedOver::default();
    let stem = |name: &str| Path::new(name).with_extension("");
    let mut of_stem = HashMap::new();
    for (name, path) in pictures(&masks, &mut passed)? {
        if let Some((other, _)) = of_stem.insert(stem(&name), (name.clone(), path)) {
            return Err(fault(root, SourceFault::TwoMasks(other, name)));
        }
    }
    let found = pictures(&images, &mut passed)?;
    if found.is_empty() {
        return Err(fault(root, SourceFault::EmptyClass(IMAGES.to_owned())));
    }
    let entry = |(name, path): (String, PathBuf)| match of_stem.get(&stem(&name)) {
        Some((_, mask)) => Ok(Entry {
            target: Target::Mask(mask.clone()),
            name,
            path,
        }),
        None => Err(fault(root, SourceFault::NoMask(name))),
    };
    let entries = found.into_iter().map(entry).collect::<Result<_>>()?;
    Ok((entries, passed))
}
