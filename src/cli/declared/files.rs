//! A folder of declared objects.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::object::{Key, Object, Objects};
use super::read::read;
use crate::cli::lint::with_schema;
use crate::cli::plain::plain;
use handoffd_gate::contract::document::{Document, DocumentPosition};

/// The most files of one folder, and the greatest depth of folders.
const MAX_FILES: usize = 100_000;
const MAX_DEPTH: usize = 32;

/// A defect of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileDefect {
    pub(super) file: PathBuf,
    /// Its place in the text; `None` for an unreadable file.
    pub(super) place: Option<DocumentPosition>,
    pub(super) pointer: String,
    pub(super) reason: String,
}

impl fmt::Display for FileDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", plain(&self.file.display().to_string()))?;
        if let Some(place) = self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        if !self.pointer.is_empty() {
            write!(f, ": {}", plain(&self.pointer))?;
        }
        write!(f, ": {}", plain(&self.reason))
    }
}

/// The declared objects and their files.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) objects: Objects,
    files: BTreeMap<Key, (PathBuf, Document)>,
}

impl Declared {
    /// Reads every `.yaml` and `.yml` file below a folder, and each `.json` file with a `kind`. Skips hidden files and folders.
    ///
    /// # Errors
    /// All defects of all files.
    pub(super) fn read(folder: &Path) -> Result<Self, Vec<FileDefect>> {
        let mut files = Vec::new();
        walk(folder, &mut files, MAX_DEPTH).map_err(|defect| vec![defect])?;
        files.sort();
        let mut declared = Self::default();
        let mut defects = Vec::new();
        for file in files {
            match one(&file) {
                Ok(Some((object, document))) => declared.put(file, object, document, &mut defects),
                Ok(None) => {}
                Err(more) => defects.extend(more),
            }
        }
        if declared.objects.is_empty() && defects.is_empty() {
            let reason = "the folder has no declared object".to_owned();
            defects.push(defect(folder, None, "", reason));
        }
        if defects.is_empty() { Ok(declared) } else { Err(defects) }
    }

    fn put(
        &mut self,
        file: PathBuf,
        object: Object,
        document: Document,
        defects: &mut Vec<FileDefect>,
    ) {
        let key = object.key.clone();
        if let Some((other, _)) = self.files.get(&key) {
            let reason = format!("{key} is declared in {} already", other.display());
            defects.push(defect(&file, Some(DocumentPosition::START), "", reason));
            return;
        }
        self.objects.insert(key.clone(), object);
        self.files.insert(key, (file, document));
    }

    /// The file of an object.
    pub(super) fn file(&self, key: &Key) -> Option<&Path> {
        self.files.get(key).map(|(file, _)| file.as_path())
    }

    /// A defect at a place of a declared object.
    pub(super) fn defect(&self, key: &Key, pointer: &str, reason: String) -> FileDefect {
        match self.files.get(key) {
            Some((file, document)) => defect(file, Some(document.place(pointer)), pointer, reason),
            None => defect(Path::new(&key.to_string()), None, pointer, reason),
        }
    }
}

fn defect(
    file: &Path,
    place: Option<DocumentPosition>,
    pointer: &str,
    reason: String,
) -> FileDefect {
    FileDefect { file: file.to_owned(), place, pointer: pointer.to_owned(), reason }
}

/// The object of a file; `None` for JSON without a `kind`, such as the payload schema that a contract names.
fn one(file: &Path) -> Result<Option<(Object, Document)>, Vec<FileDefect>> {
    let text = std::fs::read(file)
        .map_err(|err| vec![defect(file, None, "", err.to_string())])
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())?;
    let is_json = file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    let document = match Document::parse_large(&text) {
        Ok(document) => document,
        Err(_) if is_json => return Ok(None),
        Err(err) => return Err(vec![defect(file, Some(err.place), "", err.message)]),
    };
    if is_json && !document.value().get("kind").is_some_and(serde_json::Value::is_string) {
        return Ok(None);
    }
    // The broker reads no files, so the contract takes its payload schema along.
    let whole = with_schema(document.clone(), file);
    match read(whole.value()) {
        Ok(object) => Ok(Some((object, document))),
        Err(faults) => Err(faults
            .into_iter()
            .map(|(pointer, why)| defect(file, Some(document.place(&pointer)), &pointer, why))
            .collect()),
    }
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>, depth: usize) -> Result<(), FileDefect> {
    let failed = |path: &Path, err: std::io::Error| defect(path, None, "", err.to_string());
    for entry in std::fs::read_dir(folder).map_err(|err| failed(folder, err))? {
        let entry = entry.map_err(|err| failed(folder, err))?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        // Follows symbolic links, because Kubernetes mounts each file of a ConfigMap as one.
        let kind = std::fs::metadata(&path).map_err(|err| failed(&path, err))?;
        if kind.is_dir() {
            if depth == 0 {
                let reason = format!("folders nest deeper than {MAX_DEPTH}");
                return Err(defect(&path, None, "", reason));
            }
            walk(&path, files, depth - 1)?;
        } else if is_document(&path) {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(defect(folder, None, "", format!("more than {MAX_FILES} files")));
        }
    }
    Ok(())
}

fn is_document(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| {
        ["yaml", "yml", "json"].iter().any(|one| ending.eq_ignore_ascii_case(one))
    })
}
