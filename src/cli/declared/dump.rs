//! A broker's objects as files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::held::{Held, is_written};
use super::object::{Key, Kind, Object};
use super::read::read;
use super::yaml;
use handoffd_gate::contract::document::Document;

/// The folder of the JSON Schemas, beside the objects' folders. Its name begins with a dot, so that `apply` does not read it.
const SCHEMAS: &str = ".schemas";
/// Longest name of a file without its ending, in bytes.
const MAX_NAME: usize = 200;

/// The files of a dump: paths below its folder, with their texts.
///
/// # Errors
/// An object that has no name of its own, or that YAML cannot say.
pub(super) fn files(held: &Held) -> Result<Vec<(PathBuf, String)>, String> {
    if let Some(key) = held.ambiguous.first() {
        return Err(format!(
            "several subscriptions go by the name `{}`: give each a description of its own (`handoffd subscriptions change ID --description …`), by which files tell them apart",
            key.name
        ));
    }
    let mut files: Vec<_> = Kind::ALL
        .into_iter()
        .map(|kind| (Path::new(SCHEMAS).join(kind.schema_file()), kind.schema().to_owned()))
        .collect();
    for object in held.objects.values().filter(|object| is_written(object)) {
        files.push((path(&object.key), text(object)?));
    }
    Ok(files)
}

/// The files of these objects, with the schemas.
///
/// # Errors
/// A sentence: the value of one is not an object of any kind.
pub(in crate::cli) fn declared(values: &[Value]) -> Result<Vec<(PathBuf, String)>, String> {
    let mut held = Held::default();
    for value in values {
        let object = read(value).map_err(|faults| format!("{faults:?}"))?;
        held.put(object);
    }
    files(&held)
}

/// The variables that the files of a dump ask for.
pub(super) fn variables(held: &Held) -> BTreeSet<String> {
    let names = |object: &Object| {
        let credentials = credentials(object);
        credentials.into_iter().map(|name| variable(&object.key.name, &name)).collect::<Vec<_>>()
    };
    held.objects.values().flat_map(names).collect()
}

/// The file of an object.
pub(super) fn path(key: &Key) -> PathBuf {
    let mut name = match (key.kind, key.name.rsplit_once('/')) {
        (Kind::Cap, Some((agent, window))) => format!("{}-{window}", encoded(agent)),
        (Kind::Cap, None) => format!("tenant-{}", encoded(&key.name)),
        _ => encoded(&key.name),
    };
    if let Some(version) = &key.version {
        name = format!("{name}@{version}");
    }
    Path::new(key.kind.folder()).join(format!("{name}.yaml"))
}

/// A name as part of a file's name on every system: letters, digits, `_`, `-`, and dots that do not begin it.
fn encoded(name: &str) -> String {
    let mut out = String::new();
    for (place, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if plain || (byte == b'.' && place > 0) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    if out.len() > MAX_NAME {
        let hash = hex::encode(Sha256::digest(name.as_bytes()));
        out.truncate(MAX_NAME - 17);
        out.push('-');
        out.push_str(&hash[..16]);
    }
    out
}

/// The names of an agent's or a subscription's credentials.
fn credentials(object: &Object) -> Vec<String> {
    let owner = match object.key.kind {
        Kind::Subscription => Some(&object.body),
        _ => object.body.get("delivery").and_then(Value::as_object),
    };
    let names = owner.and_then(|owner| owner.get("credentialsSet"));
    let names = names.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The variable from which a dumped credential is read: the id of its agent, or the name of its subscription, and its own
/// name, in capitals. Variables that begin with
/// `HANDOFFD_` are settings.
fn variable(owner: &str, name: &str) -> String {
    let mut out = "SECRET_".to_owned();
    for byte in owner.bytes().chain(*b"-").chain(name.bytes()) {
        match byte {
            b'-' => out.push('_'),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte.to_ascii_uppercase())),
            byte => _ = write!(out, "_{byte:02X}"),
        }
    }
    out
}

/// An object's file.
pub(super) fn text(object: &Object) -> Result<String, String> {
    let key = &object.key;
    let mut body: Map<String, Value> = object.body.clone();
    body.insert("kind".to_owned(), json!(key.kind.name()));
    if body.get("state").is_some_and(|state| *state == "RUNNABLE") {
        body.remove("state");
    }
    let secrets = credentials(object).into_iter().map(|name| {
        let from = json!({ "secretRef": format!("env:{}", variable(&key.name, &name)) });
        (name, from)
    });
    if body.remove("credentialsSet").is_some() {
        body.extend(secrets);
    } else if let Some(Value::Object(delivery)) = body.get_mut("delivery")
        && delivery.remove("credentialsSet").is_some()
    {
        delivery.insert("credentials".to_owned(), Value::Object(secrets.collect()));
    }
    let schema = format!("../{SCHEMAS}/{}", key.kind.schema_file());
    let text = format!("# yaml-language-server: $schema={schema}\n{}", yaml::document(&body));
    match Document::parse_large(&text) {
        Ok(document) if *document.value() == Value::Object(body) => Ok(text),
        _ => Err(format!("{key} cannot be written as YAML")),
    }
}

/// Writes files below a folder, which must be empty or missing.
///
/// # Errors
/// A sentence.
pub(super) fn write(folder: &Path, files: &[(PathBuf, String)]) -> Result<(), String> {
    let failed = |path: &Path, err: std::io::Error| format!("{}: {err}", path.display());
    std::fs::create_dir_all(folder).map_err(|err| failed(folder, err))?;
    let mut there = std::fs::read_dir(folder).map_err(|err| failed(folder, err))?;
    if there.next().is_some() {
        return Err(format!("{}: is not empty: a dump writes over nothing", folder.display()));
    }
    for (path, text) in files {
        create(&folder.join(path), text)?;
    }
    Ok(())
}

/// Writes a file that does not exist, with the folders above it.
///
/// # Errors
/// A sentence.
pub(in crate::cli) fn create(path: &Path, text: &str) -> Result<(), String> {
    let failed = |err: std::io::Error| format!("{}: {err}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
