//! Tree heads outside the database: a folder, a webhook, a witness with its own judgement. A database
//! that was cut, and one that grew anew from there, fits none of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signer as _, SigningKey};
use handoffd_evidence::cosignature::{WitnessKey, cosigned_text};
use handoffd_evidence::merkle::{Hash, verify_consistency};
use handoffd_evidence::note::{Note, NoteSignature, PublicKey, TreeHead};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::archive::Server;
use crate::broker::Broker;
use crate::site::{ADMIN_KEY, Site};
use crate::starts::refused;
use crate::world::{client, until};

const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &str = "witness.example/w1";

/// The world outside: a witness after C2SP tlog-witness, and a webhook that keeps its requests.
struct Outside {
    key: SigningKey,
    /// Whose tree heads the witness believes.
    trusts: Mutex<Option<PublicKey>>,
    /// The last head that it cosigned.
    cosigned: Mutex<Option<(u64, Hash)>>,
    answers: Mutex<HashMap<u16, usize>>,
    notes: Mutex<Vec<String>>,
}

impl Outside {
    async fn start() -> (Arc<Self>, String) {
        let outside = Arc::new(Self {
            key: SigningKey::from_bytes(&handoffd::clock::random()),
            trusts: Mutex::default(),
            cosigned: Mutex::default(),
            answers: Mutex::default(),
            notes: Mutex::default(),
        });
        let router = Router::new()
            .route("/w/add-checkpoint", post(add_checkpoint))
            .route("/hook", post(hook))
            .with_state(Arc::clone(&outside));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (outside, base)
    }

    fn id(&self) -> [u8; 4] {
        let key = self.key.verifying_key();
        let digest =
            Sha256::new().chain_update(NAME).chain_update([b'\n', 4]).chain_update(key.as_bytes());
        digest.finalize()[..4].try_into().unwrap()
    }

    fn vkey(&self) -> String {
        let key = [&[4][..], self.key.verifying_key().as_bytes()].concat();
        format!("{NAME}+{}+{}", hex::encode(self.id()), BASE64.encode(key))
    }

    fn answered(&self, status: u16) -> usize {
        self.answers.lock().unwrap().get(&status).copied().unwrap_or(0)
    }

    fn size(&self) -> u64 {
        self.cosigned.lock().unwrap().map_or(0, |(size, _)| size)
    }

    /// As the protocol has it: signature, size, consistency, then the cosignature.
    fn judge(&self, body: &str) -> (StatusCode, String) {
        let (head, note) = body.split_once("\n\n").unwrap();
        let mut lines = head.lines();
        let old: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
        let hash = |line: &str| BASE64.decode(line).unwrap().try_into().unwrap();
        let proof: Vec<Hash> = lines.map(hash).collect();
        let note = Note::parse(note).unwrap();
        let said = TreeHead::parse(&note.text).unwrap();
        let trusts = self.trusts.lock().unwrap();
        let Some(key) = trusts.as_ref().filter(|key| key.name() == said.origin) else {
            return (StatusCode::NOT_FOUND, String::new());
        };
        if note.verify(key).is_err() {
            return (StatusCode::FORBIDDEN, String::new());
        }
        let mut cosigned = self.cosigned.lock().unwrap();
        let (known, root) = cosigned.unwrap_or((0, [0; 32]));
        if old > said.size {
            return (StatusCode::BAD_REQUEST, String::new());
        }
        if old != known || (old == said.size && root != said.root) {
            return (StatusCode::CONFLICT, format!("{known}\n"));
        }
        if known > 0 && verify_consistency(known, said.size, &proof, &root, &said.root).is_err() {
            return (StatusCode::UNPROCESSABLE_ENTITY, String::new());
        }
        *cosigned = Some((said.size, said.root));
        let time = 1_800_000_000_u64;
        let signature = self.key.sign(cosigned_text(time, &note.text).as_bytes()).to_bytes();
        let bytes = [&self.id()[..], &time.to_be_bytes(), &signature].concat();
        let line = NoteSignature { name: NAME.to_owned(), bytes };
        // A second signature, of an unknown key, is to be left out.
        let other = NoteSignature { name: "w.example/2".to_owned(), bytes: vec![1; 76] };
        (StatusCode::OK, format!("{other}\n{line}\n"))
    }
}

async fn add_checkpoint(State(outside): State<Arc<Outside>>, body: String) -> (StatusCode, String) {
    let (status, answer) = outside.judge(&body);
    *outside.answers.lock().unwrap().entry(status.as_u16()).or_default() += 1;
    (status, answer)
}

async fn hook(State(outside): State<Arc<Outside>>, body: String) {
    outside.notes.lock().unwrap().push(body);
}

async fn get(broker: &Broker, path: &str) -> String {
    let url = format!("{}{path}", broker.base);
    let answer = client().get(url).bearer_auth(ADMIN_KEY).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.text().await.unwrap()
}

async fn head(broker: &Broker) -> Value {
    serde_json::from_str(&get(broker, "/audit/tree-head").await).unwrap()
}

async fn size(broker: &Broker) -> u64 {
    head(broker).await["treeSize"].as_u64().unwrap()
}

async fn log_id(broker: &Broker) -> String {
    head(broker).await["logId"].as_str().unwrap().to_owned()
}

/// Each agent is a record.
async fn agents(broker: &Broker, names: impl IntoIterator<Item = String>) {
    for id in names {
        let url = format!("{}/agents", broker.base);
        let answer = client().post(url).bearer_auth(ADMIN_KEY).json(&json!({ "agentId": id }));
        assert_eq!(answer.send().await.unwrap().status(), 201);
    }
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

/// The newest kept head.
fn latest(site: &Site) -> PathBuf {
    let folder = std::fs::read_dir(site.data_dir().join("tree-heads")).unwrap();
    let mut found = folder.map(|entry| entry.unwrap().path());
    found.find(|path| path.extension().is_some_and(|kind| kind == "latest")).unwrap()
}

fn kept_size(site: &Site) -> u64 {
    let note = Note::parse(&std::fs::read_to_string(latest(site)).unwrap()).unwrap();
    TreeHead::parse(&note.text).unwrap().size
}

pub async fn a_log_that_was_cut_and_grew_anew_fits_no_head_that_was_kept(site: Arc<Site>) {
    let (outside, base) = Outside::start().await;
    let witness = format!("{base}/w {}", outside.vkey());
    let publish = format!("file:tree-heads, {base}/hook");
    let settings = [
        ("HANDOFFD_AUDIT__WITNESSES", witness.as_str()),
        ("HANDOFFD_AUDIT__PUBLISH", publish.as_str()),
        ("HANDOFFD_AUDIT__PUBLISH_INTERVAL_S", "1"),
    ];

    // The witness learns of the log, and cosigns what it becomes.
    let broker = Broker::start(&site, &settings).await;
    let keys: Value = serde_json::from_str(&get(&broker, "/audit/keys").await).unwrap();
    let key = PublicKey::parse(keys["keys"][0]["key"].as_str().unwrap()).unwrap();
    until(PATIENCE, "it does not know the log yet", async || {
        1_usize.saturating_sub(outside.answered(404))
    })
    .await;
    let lacks = async || broker.counter("handoff_audit_unpublished_records", "witness").await;
    until(PATIENCE, "the witness lacks records", async || usize::from(lacks().await == 0.0)).await;
    *outside.trusts.lock().unwrap() = Some(key.clone());
    agents(&broker, numbered("a", 5)).await;
    let now = size(&broker).await;
    let known = WitnessKey::parse(&outside.vkey()).unwrap();
    until(PATIENCE, "the checkpoint is cosigned", async || {
        let note = Note::parse(&get(&broker, "/audit/checkpoint").await).unwrap();
        note.verify(&key).unwrap();
        let cosigned = TreeHead::parse(&note.text).unwrap().size == now;
        if cosigned && let Ok((_, time)) = known.verify(&note) {
            assert_eq!((time, note.signatures.len()), (1_800_000_000, 2));
            return 0;
        }
        1
    })
    .await;
    until(PATIENCE, "each place has all of the log", async || {
        let heads: Value = serde_json::from_str(&get(&broker, "/audit/heads").await).unwrap();
        let places = heads["places"].as_array().unwrap();
        let whole = |place: &&Value| place["treeSize"] == now && place["late"] == false;
        let witnessed = json!({ "treeSize": now, "witnesses": [NAME] });
        let done = places.iter().filter(whole).count() == 3 && heads["witnessed"] == witnessed;
        usize::from(!done)
    })
    .await;
    until(PATIENCE, "the witness lacks no record", async || lacks().await as usize).await;
    broker.stop().await;
    site.back_up().await;

    // More is committed; a stop publishes the last of it everywhere.
    let broker = Broker::start(&site, &settings).await;
    agents(&broker, numbered("b", 20)).await;
    let full = size(&broker).await;
    broker.stop().await;
    assert_eq!((outside.size(), kept_size(&site)), (full, full));
    let last = outside.notes.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last, std::fs::read_to_string(latest(&site)).unwrap());
    let all = std::fs::read_to_string(latest(&site).with_extension("heads")).unwrap();
    assert!(all.ends_with(&last) && all.matches("\n\n").count() > 1, "{all}");
    let heads = latest(&site).with_extension("heads");
    let against = ["verify", "--tree-head", heads.to_str().unwrap()];
    let verified = site.command(&[]).args(against).output().await.unwrap();
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    site.verify().await;

    // Cut back to what it was, it does not start, and the verifier says the same.
    site.restore().await;
    let verified = site.command(&[]).args(against).output().await.unwrap();
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    let (code, said) = refused(&site, &settings).await;
    assert_eq!(code, Some(1), "{said}");
    for named in [
        format!("has {now} records"),
        format!("over {full} records"),
        "verify --tree-head".to_owned(),
    ] {
        assert!(said.contains(&named), "{named}: {said}");
    }

    // A person moves the head aside: the broker starts, but the witness knows better, now and once the log has grown.
    let kept = latest(&site);
    let aside = kept.with_extension("aside");
    std::fs::rename(&kept, &aside).unwrap();
    let broker = Broker::start(&site, &settings).await;
    until(PATIENCE, "a shorter log is refused", async || {
        1_usize.saturating_sub(
            broker.counter("handoff_audit_published_total", "refused").await as usize,
        )
    })
    .await;
    agents(&broker, numbered("c", 25)).await;
    until(PATIENCE, "a longer one of another history too", async || {
        1_usize.saturating_sub(outside.answered(422))
    })
    .await;
    let note = Note::parse(&get(&broker, "/audit/checkpoint").await).unwrap();
    assert!(known.verify(&note).is_err(), "no cosignature for another history");
    assert_eq!(outside.size(), full);
    broker.stop().await;
    assert!(kept_size(&site) > full);

    // With the head back in its place, the new history is found at the start.
    std::fs::rename(&aside, &kept).unwrap();
    let (code, said) = refused(&site, &settings).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("another history of the first {full}")), "{said}");
    std::fs::write(&kept, last.replacen(&full.to_string(), "1", 1)).unwrap();
    let (code, said) = refused(&site, &settings).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is not valid"), "{said}");
    std::fs::remove_file(&kept).unwrap();
    site.verify().await;
}

pub async fn a_bucket_keeps_every_tree_head_and_replaces_none(site: Arc<Site>) {
    let server = Server::start().await;
    let settings = [
        ("HANDOFFD_AUDIT__PUBLISH", "s3://cold/kept"),
        ("HANDOFFD_AUDIT__PUBLISH_INTERVAL_S", "1"),
        ("HANDOFFD_RETENTION__S3_ENDPOINT", server.url.as_str()),
        ("HANDOFFD_RETENTION__S3_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    let broker = Broker::start(&site, &settings).await;
    let (log, first) = (log_id(&broker).await, size(&broker).await);
    broker.stop().await;
    site.back_up().await;
    let broker = Broker::start(&site, &settings).await;
    agents(&broker, numbered("a", 3)).await;
    let (note, full) = (get(&broker, "/audit/checkpoint").await, size(&broker).await);
    broker.stop().await;
    let kept = async |size: u64| {
        let url = format!("{}/cold/kept/tree-heads/{log}/{size:020}.note", server.url);
        // The server accepts any credentials.
        let answer = client().get(url).header("authorization", "AWS test").send().await.unwrap();
        answer.error_for_status().unwrap().text().await.unwrap()
    };
    assert_eq!(kept(full).await, note);
    assert_eq!(
        TreeHead::parse(&Note::parse(&kept(first).await).unwrap().text).unwrap().size,
        first
    );

    // Another history of the same length: what is there stays.
    site.restore().await;
    let broker = Broker::start(&site, &settings).await;
    agents(&broker, numbered("b", 3)).await;
    until(PATIENCE, "another history is refused", async || {
        1_usize.saturating_sub(
            broker.counter("handoff_audit_published_total", "refused").await as usize,
        )
    })
    .await;
    broker.stop().await;
    assert_eq!(kept(full).await, note);
    site.verify().await;
}

pub async fn a_place_or_witness_that_cannot_be_is_named(site: Arc<Site>) {
    for (name, value, named) in [
        ("HANDOFFD_AUDIT__PUBLISH", "ftp://here", "audit.publish"),
        ("HANDOFFD_AUDIT__PUBLISH", "file:", "audit.publish"),
        ("HANDOFFD_AUDIT__PUBLISH", "http://10.0.0.1/hook", "audit.publish"),
        ("HANDOFFD_AUDIT__PUBLISH", "s3:///x", "audit.publish"),
        ("HANDOFFD_AUDIT__PUBLISH_INTERVAL_S", "0", "audit.publish_interval_s"),
        ("HANDOFFD_AUDIT__WITNESSES", "https://witness.example", "audit.witnesses"),
        ("HANDOFFD_AUDIT__WITNESSES", "https://witness.example w+1+AQ==", "audit.witnesses"),
    ] {
        let (code, said) = refused(&site, &[(name, value)]).await;
        assert_eq!(code, Some(2), "{name}={value}: {said}");
        assert!(said.contains(named), "{name}={value}: {said}");
    }
}
