//! `handoffd key tree-head` as a process: what prints changes nothing, and a change that fails leaves the key as it was.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

/// A data directory with the log of one tenant.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        site.run(&["key", "create", "--role", "admin"], 0);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Both outputs of a command, which must end with this code.
    fn run(&self, arguments: &[&str], code: i32) -> String {
        self.run_with(&[], arguments, code)
    }

    fn run_with(&self, settings: &[(&str, &str)], arguments: &[&str], code: i32) -> String {
        let done = Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .args(arguments)
            .env_clear()
            .env("HANDOFFD_DATA_DIR", self.folder.path())
            .env("HANDOFFD_LISTEN", "127.0.0.1:0")
            .envs(settings.iter().copied())
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {done:?}");
        String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
    }

    /// The files of the keys that sign tree heads.
    fn keys(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.starts_with("tree-head.key")).collect();
        names.sort();
        names
    }
}

#[test]
fn a_change_of_the_key_that_fails_leaves_the_key() {
    let site = Site::new();
    let first = site.run(&["key", "tree-head"], 0);
    let kept = site.file("tree-head.key");
    // A folder is not a database.
    std::fs::create_dir(site.path("away")).unwrap();
    let away = format!("sqlite:{}", site.path("away").display());
    site.run(&["--database-url", &away, "key", "tree-head", "--new"], 3);
    assert_eq!((site.file("tree-head.key"), site.keys().len()), (kept.clone(), 1));

    // As a broker holds it.
    let lock = std::fs::File::create(site.path("handoffd.db.lock")).unwrap();
    lock.try_lock().unwrap();
    let said = site.run(&["key", "tree-head", "--new"], 3);
    assert!(said.contains("another broker serves"), "{said}");
    assert_eq!((site.file("tree-head.key"), site.keys().len()), (kept.clone(), 1));
    drop(lock);

    let second = site.run(&["key", "tree-head", "--new"], 0);
    assert_ne!(first, second);
    assert_eq!(site.run(&["key", "tree-head"], 0), second);
    let keys = site.keys();
    assert!(keys.len() == 2 && !keys.contains(&"tree-head.key.new".to_owned()), "{keys:?}");
    assert_eq!(site.file(&keys[1]), kept, "the old one is beside it");

    // As a crash between the commit and the files leaves it.
    std::fs::rename(site.path("tree-head.key"), site.path("tree-head.key.new")).unwrap();
    std::fs::rename(site.path(&keys[1]), site.path("tree-head.key")).unwrap();
    site.run(&["key", "tree-head"], 3);
    assert_eq!(site.run(&["key", "tree-head", "--new"], 0), second, "the same change, ended");
    assert_eq!(site.run(&["key", "tree-head"], 0), second);
    assert_eq!(site.keys(), keys);
    let said = site.run(&["verify"], 0);
    assert!(said.contains(": 2 records"), "the change is recorded once: {said}");
}

#[test]
fn a_start_without_its_key_makes_none() {
    let site = Site::new();
    let first = site.run(&["key", "tree-head"], 0);
    let kept = site.file("tree-head.key");
    std::fs::remove_file(site.path("tree-head.key")).unwrap();
    for arguments in [&["serve"][..], &["key", "tree-head"]] {
        let said = site.run(arguments, 3);
        assert!(said.contains("signed with another key"), "{said}");
        assert!(site.keys().is_empty(), "{:?}", site.keys());
    }
    std::fs::write(site.path("tree-head.key"), kept).unwrap();
    assert_eq!(site.run(&["key", "tree-head"], 0), first);
}

#[test]
fn a_configured_key_is_changed_by_the_settings() {
    let site = Site::new();
    let [one, other] = [b'1', b'2'].map(|byte| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode([byte; 32])
    });
    let run = |key: &str, arguments: &[&str], code| {
        site.run_with(&[("HANDOFFD_AUDIT__SIGNING_KEY", key)], arguments, code)
    };
    let first = run(&one, &["key", "tree-head"], 0);
    run(&other, &["key", "tree-head"], 3);
    let said = run(&one, &["key", "tree-head", "--new"], 3);
    assert!(said.contains("signs already"), "{said}");
    let second = run(&other, &["key", "tree-head", "--new"], 0);
    assert_ne!(first, second);
    assert_eq!(run(&other, &["key", "tree-head"], 0), second);
    run(&one, &["key", "tree-head"], 3);
    assert!(site.keys().is_empty());
}

/// Finding O10 of 0.3.0: the master key is changed, and a run that was ended anywhere is continued by the next one.
#[test]
fn the_master_key_is_changed_and_a_change_that_was_ended_goes_on() {
    let site = Site::new();
    let known = |name: &str| site.path(name).exists();
    // Nothing is sealed before a broker made the key.
    let said = site.run(&["key", "master", "--new"], 3);
    assert!(said.contains("master.key"), "{said}");
    site.run(&["key", "master"], 2);
    serve_once(&site);
    let first = site.file("master.key");

    let before = records(&site);

    // As a crash before the transaction leaves it: the next run takes the key that it finds.
    std::fs::write(site.path("master.key.new"), new_key()).unwrap();
    serve_once(&site);
    let said = site.run(&["key", "master", "--new"], 0);
    assert!(said.contains("values are sealed under it"), "{said}");
    let second = site.file("master.key");
    assert!(second.trim() == new_key() && first != second && !known("master.key.new"));
    serve_once(&site);

    // As a crash between the transaction and the files leaves it.
    let old = std::fs::read_dir(site.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let old = old
        .into_iter()
        .find(|path| std::fs::read_to_string(path).is_ok_and(|text| text == first))
        .unwrap();
    std::fs::rename(site.path("master.key"), site.path("master.key.new")).unwrap();
    std::fs::copy(&old, site.path("master.key")).unwrap();
    let said = site.run(&["serve"], 3);
    assert!(said.contains("run handoffd key master --new again"), "{said}");
    let said = site.run(&["key", "master", "--new"], 0);
    assert!(said.contains("is ended"), "{said}");
    assert!(site.file("master.key") == second && !known("master.key.new"));
    serve_once(&site);
    assert_eq!(records(&site), before + 1, "the change is recorded once");

    // The old key opens nothing any more.
    std::fs::write(site.path("master.key"), first).unwrap();
    let said = site.run(&["serve"], 3);
    assert!(said.contains("set up with another master key"), "{said}");
    std::fs::write(site.path("master.key"), second).unwrap();

    // As a broker holds it.
    let lock = std::fs::File::create(site.path("handoffd.db.lock")).unwrap();
    lock.try_lock().unwrap();
    assert!(site.run(&["key", "master", "--new"], 3).contains("another broker serves"));
}

/// How many records the log has.
fn records(site: &Site) -> u64 {
    let said = site.run(&["verify"], 0);
    let before = said.split(" records").next().unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{said}"))
}

/// A master key.
fn new_key() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode([b'7'; 32])
}

/// A start that gets as far as its keys: it cannot listen there.
fn serve_once(site: &Site) {
    let said = site.run_with(&[("HANDOFFD_LISTEN", "203.0.113.1:1")], &["serve"], 3);
    assert!(said.contains("203.0.113.1:1"), "{said}");
}

/// If the key is in the settings, the new one goes into a file that the operator names.
#[test]
fn a_configured_master_key_is_changed_by_the_settings() {
    let site = Site::new();
    let one = new_key();
    let with = |key: &str, arguments: &[&str], code| {
        site.run_with(
            &[("HANDOFFD_MASTER_KEY", key), ("HANDOFFD_LISTEN", "203.0.113.1:1")],
            arguments,
            code,
        )
    };
    with(&one, &["serve"], 3);
    assert!(with(&one, &["key", "master", "--new"], 3).contains("--to"));
    let next = site.path("next.key").display().to_string();
    with(&one, &["key", "master", "--new", "--to", &next], 0);
    let second = site.file("next.key").trim().to_owned();
    assert!(with(&one, &["serve"], 3).contains("another master key"));
    assert!(with(&second, &["serve"], 3).contains("203.0.113.1:1"));
    // Once more with the old settings: it is done already.
    assert!(with(&one, &["key", "master", "--new", "--to", &next], 0).contains("is ended"));
}
