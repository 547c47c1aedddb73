//! `/audit/*`: what the broker serves can be checked by anyone, in our code and in other people's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::StreamExt;
use futures_util::stream::iter;
use handoffd_evidence::merkle::{Frontier, Hash, verify_consistency, verify_inclusion};
use handoffd_evidence::note::{Note, PublicKey, Signer, TreeHead};
use handoffd_evidence::record::record_hash;
use reqwest::Method;
use serde_json::{Value, json};

use crate::archive::{fault, past_the_broker};
use crate::harness::{Agent, Broker, Caller};
use crate::message::Message;

/// A log of some records more than `count`; checkpoints are records that cost no delivery.
pub async fn grow(a: &Agent, count: u64) -> Message {
    let message = Message::review("a", "b");
    a.submit(&message).await.expect(202);
    let run = message["fromAgent"]["executionId"].as_str().unwrap();
    let path = format!("{}/checkpoints/{run}", message.task_path());
    iter(0..count)
        .for_each_concurrent(64, |step| {
            let path = &path;
            async move {
                a.api.put(path, &json!({ "step": step })).await.expect(200);
            }
        })
        .await;
    message
}

fn hash(value: &Value) -> Hash {
    BASE64.decode(value.as_str().unwrap()).unwrap().try_into().unwrap()
}

fn path(value: &Value) -> Vec<Hash> {
    value.as_array().unwrap().iter().map(hash).collect()
}

/// The bytes of a path; panics where there are none.
pub async fn fetch(caller: &Caller, path: &str) -> Vec<u8> {
    let answer = caller.request(Method::GET, path).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.bytes().await.unwrap().to_vec()
}

/// Every record of the log, recomputed from what is served, and the tree that they make.
async fn recomputed(caller: &Caller) -> (Vec<Hash>, Frontier) {
    let (mut hashes, mut tree, mut from) = (Vec::new(), Frontier::default(), Some(0));
    while let Some(first) = from {
        let page = caller.get(&format!("/audit/records?limit=100&from={first}")).await.expect(200);
        for item in page.body["records"].as_array().unwrap() {
            assert_eq!(item["leafIndex"], hashes.len());
            let bytes = handoffd_domain::canonical::to_vec(&item["record"]);
            assert!(page.text.contains(std::str::from_utf8(&bytes).unwrap()), "served as hashed");
            let leaf = record_hash(&bytes);
            assert_eq!(item["recordHash"], format!("sha256:{}", hex::encode(leaf)));
            tree.push(leaf, |_, _, _| {});
            hashes.push(leaf);
        }
        from = page.body["nextFrom"].as_i64();
    }
    (hashes, tree)
}

both! {
    async fn records_proofs_and_tree_head_add_up(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = grow(&a, 300).await;
        let auditor = broker.person("auditor").await;
        let head = auditor.get("/audit/tree-head").await.expect(200).body;
        let size = head["treeSize"].as_u64().unwrap();
        let (hashes, tree) = recomputed(&auditor).await;
        assert_eq!((hashes.len() as u64, hash(&head["rootHash"])), (size, tree.root()));

        let key = auditor.get("/audit/keys").await.expect(200).body["keys"][0].clone();
        assert_eq!((&key["current"], key.get("retiredAt")), (&json!(true), None));
        let key = PublicKey::parse(key["key"].as_str().unwrap()).unwrap();
        assert_eq!(Some(key.name()), head["origin"].as_str());
        let plain = auditor.request(Method::GET, "/audit/tree-head").header("accept", "text/plain");
        let plain = plain.send().await.unwrap().text().await.unwrap();
        assert_eq!(head["treeHead"], plain);
        assert_eq!(fetch(&auditor, "/audit/checkpoint").await, plain.as_bytes());
        let note = Note::parse(&plain).unwrap();
        note.verify(&key).unwrap();
        let said = TreeHead::parse(&note.text).unwrap();
        assert_eq!((said.size, said.root), (size, tree.root()));

        for (index, of) in [(0, 1), (0, size), (255, 256), (256, 300), (size - 1, size)] {
            let query = format!("/audit/proofs/inclusion?leafIndex={index}&treeSize={of}");
            let answer = auditor.get(&query).await.expect(200).body;
            let leaf = hashes[usize::try_from(index).unwrap()];
            assert_eq!(hash(&answer["leafHash"]), leaf);
            let root = hash(&answer["rootHash"]);
            verify_inclusion(&leaf, index, of, &path(&answer["proof"]), &root).unwrap();
            assert_eq!(answer["treeHead"].is_string(), of == size);
        }
        let one = format!("sha256:{}", hex::encode(hashes[7]));
        let found = auditor.get(&format!("/audit/proofs/inclusion?recordHash={one}")).await.expect(200);
        assert_eq!(found.body["leafIndex"], 7);
        let found = auditor.get(&format!("/audit/proofs/inclusion?handoffId={}", message.id())).await;
        let handoff = broker.trace(&message).await["handoffs"][0]["leafIndex"].clone();
        assert_eq!(found.expect(200).body["leafIndex"], handoff);

        for (from, to) in [(1, size), (255, 256), (100, size), (size, size)] {
            let query = format!("/audit/proofs/consistency?from={from}&to={to}");
            let answer = auditor.get(&query).await.expect(200).body;
            let roots = (hash(&answer["fromRootHash"]), hash(&answer["toRootHash"]));
            verify_consistency(from, to, &path(&answer["proof"]), &roots.0, &roots.1).unwrap();
        }
    }

    async fn a_key_or_tree_head_of_another_log_is_a_fault(broker: Broker) {
        let key = broker.admin.get("/audit/keys").await.expect(200).body["keys"][0]["key"].clone();
        let key = key.as_str().unwrap();
        let (forger, root) = (Signer::new(&[9; 32]), [1; 32]);
        let origin = PublicKey::parse(key).unwrap().name().to_owned();
        let [made_up, foreign] =
            [origin.as_str(), "elsewhere/log"].map(|origin| forger.public(origin).unwrap().to_string());
        let elsewhere = TreeHead { origin: "elsewhere/log".to_owned(), size: 1, root };
        let kept = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(kept.path(), forger.sign(&elsewhere).unwrap()).unwrap();
        for (option, value, fault) in [
            ("--key", key, None),
            ("--key", made_up.as_str(), Some("keys")),
            ("--key", foreign.as_str(), Some("foreign")),
            ("--tree-head", kept.path().to_str().unwrap(), Some("foreign")),
        ] {
            let done = broker.command(&["--output", "json", "verify", option, value]).await;
            let said: Value = serde_json::from_slice(&done.stdout).unwrap();
            assert_eq!(done.status.code(), Some(i32::from(fault.is_some())), "{value}: {said}");
            assert_eq!(said["ok"], fault.is_none());
            assert_eq!(said["firstFault"]["fault"].as_str(), fault, "{said}");
        }
    }

    async fn sizes_and_places_out_of_range_are_refused(broker: Broker) {
        let size = broker.admin.get("/audit/tree-head").await.expect(200).body["treeSize"].as_u64().unwrap();
        let over = size + 1;
        for query in [
            "proofs/inclusion".to_owned(),
            "proofs/inclusion?leafIndex=0&treeSize=0".to_owned(),
            format!("proofs/inclusion?leafIndex=0&treeSize={over}"),
            format!("proofs/inclusion?leafIndex={size}"),
            "proofs/inclusion?leafIndex=-1".to_owned(),
            "proofs/inclusion?leafIndex=x".to_owned(),
            "proofs/inclusion?recordHash=abc".to_owned(),
            "proofs/inclusion?handoffId=abc".to_owned(),
            format!("proofs/inclusion?leafIndex=0&recordHash=sha256:{}", "0".repeat(64)),
            "proofs/consistency".to_owned(),
            "proofs/consistency?from=0".to_owned(),
            format!("proofs/consistency?from={over}"),
            format!("proofs/consistency?from=1&to={over}"),
            "proofs/consistency?from=1&to=0".to_owned(),
            "records?from=-1".to_owned(),
            format!("records?from={over}"),
            "records?limit=0".to_owned(),
            "records?limit=501".to_owned(),
            "records?since=1".to_owned(),
        ] {
            let answer = broker.admin.get(&format!("/audit/{query}")).await;
            assert_eq!(answer.status, 400, "{query}: {}", answer.text);
            answer.refused(400, "INVALID_REQUEST");
        }
        let end = broker.admin.get(&format!("/audit/records?from={size}")).await.expect(200).body;
        assert_eq!(end, json!({ "records": [] }), "the end is where the next one will be");
        for query in [format!("recordHash=sha256:{}", "0".repeat(64)), format!("handoffId={}", handoffd::clock::random_id())] {
            broker.admin.get(&format!("/audit/proofs/inclusion?{query}")).await.refused(404, "NOT_FOUND");
        }
        if size > 1 {
            broker.admin.get("/audit/proofs/consistency?from=2&to=1").await.refused(400, "INVALID_REQUEST");
        }
    }

    async fn only_people_read_the_log_and_only_their_own(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let mine = broker.admin.get("/audit/tree-head").await.expect(200).body;
        let log = mine["logId"].as_str().unwrap();
        let callers = [
            (broker.caller(None), 401),
            (a.api.clone(), 403),
            (broker.person("auditor").await, 200),
            (broker.person("operator").await, 200),
            (broker.admin.clone(), 200),
        ];
        let paths = [
            "/audit/tree-head", "/audit/records", "/audit/keys", "/audit/checkpoint",
            "/audit/proofs/inclusion?leafIndex=0", "/audit/proofs/consistency?from=1",
            "/audit/tile/0/000.p/1", "/audit/tile/entries/000.p/1",
        ].map(str::to_owned).into_iter().chain([
            format!("/audit/logs/{log}/checkpoint"),
            format!("/audit/logs/{log}/tile/0/000.p/1"),
            format!("/audit/logs/{log}/tile/entries/000.p/1"),
        ]);
        for path in paths {
            for (caller, status) in &callers {
                let answer = caller.request(Method::GET, &path).send().await.unwrap();
                assert_eq!(answer.status(), *status, "{path}");
            }
        }
        let made = broker.command(&["key", "create", "--tenant", "other", "--role", "auditor"]).await;
        let other = broker.caller(Some(String::from_utf8(made.stdout).unwrap().trim()));
        let theirs = other.get("/audit/tree-head").await.expect(200).body;
        assert_ne!(theirs["logId"], mine["logId"]);
        assert_eq!(theirs["treeSize"], 1, "the record of the key");
        for path in ["checkpoint", "tile/0/000.p/1", "tile/entries/000.p/1"] {
            other.get(&format!("/audit/logs/{log}/{path}")).await.refused(404, "NOT_FOUND");
        }
        other.get(&format!("/audit/proofs/inclusion?handoffId={}", handoffd::clock::random_id())).await.refused(404, "NOT_FOUND");
    }

    async fn tiles_hold_the_log_under_one_name_each(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        grow(&a, 300).await;
        let (hashes, _) = recomputed(&broker.admin).await;
        let full = broker.admin.request(Method::GET, "/audit/tile/0/000").send().await.unwrap();
        assert_eq!(full.headers()["cache-control"], "private, max-age=31536000, immutable");
        assert_eq!(full.headers()["content-type"], "application/octet-stream");
        let full = full.bytes().await.unwrap();
        assert_eq!(full, hashes[..256].concat());
        let partial = fetch(&broker.admin, "/audit/tile/0/001.p/9").await;
        assert_eq!(partial, hashes[256..265].concat());
        assert_eq!(fetch(&broker.admin, "/audit/tile/0/000.p/255").await, hashes[..255].concat());
        let mut first = Frontier::default();
        hashes[..256].iter().for_each(|leaf| first.push(*leaf, |_, _, _| {}));
        assert_eq!(fetch(&broker.admin, "/audit/tile/1/000.p/1").await, first.root());
        let bundle = fetch(&broker.admin, "/audit/tile/entries/001.p/3").await;
        let mut rest = &bundle[..];
        for leaf in &hashes[256..259] {
            let (length, entry) = rest.split_first_chunk::<2>().unwrap();
            let (entry, after) = entry.split_at(usize::from(u16::from_be_bytes(*length)));
            assert_eq!(record_hash(entry), *leaf);
            rest = after;
        }
        assert!(rest.is_empty());
        for none in [
            "0/001", "0/001.p/255", "0/002.p/1", "1/000", "1/000.p/2", "2/000.p/1", "63/000.p/1",
            "64/000.p/1", "0/0", "0/x000/000", "00/000", "0/000.p/256", "0/000.p/0", "0/000.p/01",
            "entries/001", "entries/002.p/1", "data/000", "0/x999/x999/x999/x999/x999/x999/999",
            "0/x018/x446/x744/x073/x709/x551/615.p/1", "entries/x036/x028/x797/x018/x963/967.p/1",
        ] {
            broker.admin.get(&format!("/audit/tile/{none}")).await.refused(404, "NOT_FOUND");
        }
    }
}

both! {
    with [("HANDOFFD_AUDIT__PUBLIC", "true")]
    async fn a_public_log_shows_hashes_to_anyone_and_no_records(broker: Broker) {
        let nobody = broker.caller(None);
        let log = broker.admin.get("/audit/tree-head").await.expect(200).body["logId"].as_str().unwrap().to_owned();
        fetch(&nobody, &format!("/audit/logs/{log}/checkpoint")).await;
        fetch(&nobody, &format!("/audit/logs/{log}/tile/0/000.p/1")).await;
        nobody.get(&format!("/audit/logs/{log}/tile/entries/000.p/1")).await.refused(401, "UNAUTHENTICATED");
        fetch(&broker.admin, &format!("/audit/logs/{log}/tile/entries/000.p/1")).await;
        for unknown in ["none", "%00", "a%2Fb"] {
            nobody.get(&format!("/audit/logs/{unknown}/checkpoint")).await.refused(404, "NOT_FOUND");
            nobody.get(&format!("/audit/logs/{unknown}/tile/0/000.p/1")).await.refused(404, "NOT_FOUND");
        }
        nobody.get("/audit/checkpoint").await.refused(401, "UNAUTHENTICATED");
        nobody.get("/audit/tile/0/000.p/1").await.refused(401, "UNAUTHENTICATED");
    }
}

/// A client by other authors (Cloudflare's `signed_note` and `tlog_tiles`) follows the log over HTTP,
/// without a key and with nothing of ours but its address and the log's public key.
mod stranger {
    use super::Caller;
    use reqwest::Method;
    use signed_note::{Note, StandardVerifier, VerifierList};
    use tlog_tiles::{
        Checkpoint, Error, HashReader as _, Tile, TileHashReader, TileReader, check_record,
        check_tree, prove_record, prove_tree, record_hash, stored_hash_index,
    };
    use tokio::runtime::Handle;

    /// Reads tiles from a monitoring prefix. The crate writes Go's older paths, with the tile's height.
    struct Prefix(Caller, String);

    impl Prefix {
        fn get(&self, path: &str) -> Vec<u8> {
            let url = format!("{}/{path}", self.1);
            let got = self.0.request(Method::GET, &url).send();
            let body = async { got.await.unwrap().error_for_status().unwrap().bytes().await };
            Handle::current().block_on(body).unwrap().to_vec()
        }
    }

    impl TileReader for Prefix {
        fn height(&self) -> u8 {
            8
        }
        fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, Error> {
            Ok(tiles.iter().map(|tile| self.get(&tile.path().replacen("/8/", "/", 1))).collect())
        }
        fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
    }

    fn head(prefix: &Prefix, vkey: &str) -> Checkpoint {
        let note = Note::from_bytes(&prefix.get("checkpoint")).unwrap();
        let known = VerifierList::new(vec![Box::new(StandardVerifier::new(vkey).unwrap())]);
        let (verified, _) = note.verify(&known).unwrap();
        assert_eq!(verified.len(), 1);
        Checkpoint::from_bytes(note.text()).unwrap()
    }

    /// Checks the log as it is; returns its size and what checks it again once it has grown.
    pub fn accepts(caller: Caller, prefix: String, vkey: String) -> (u64, impl FnOnce() -> u64) {
        let prefix = Prefix(caller, prefix);
        let old = head(&prefix, &vkey);
        let (size, root) = (old.size(), *old.hash());
        let again = move || {
            let new = head(&prefix, &vkey);
            let tiles = TileHashReader::new(new.size(), *new.hash(), &prefix);
            let proof = prove_tree(new.size(), size, &tiles).unwrap();
            check_tree(&proof, new.size(), *new.hash(), size, root).unwrap();
            let bundle = prefix.get("tile/entries/000");
            let mut rest = &bundle[..];
            for index in 0..256 {
                let (length, entry) = rest.split_first_chunk::<2>().unwrap();
                let (entry, after) = entry.split_at(usize::from(u16::from_be_bytes(*length)));
                rest = after;
                if ![0, 1, 100, 255].contains(&index) {
                    continue;
                }
                let leaf = tiles.read_hashes(&[stored_hash_index(0, index)]).unwrap()[0];
                assert_eq!(record_hash(entry), leaf);
                let proof = prove_record(new.size(), index, &tiles).unwrap();
                check_record(&proof, new.size(), *new.hash(), index, leaf).unwrap();
            }
            new.size()
        };
        (size, again)
    }
}

/// The facts that a stranger has to know: the prefix and the key.
async fn known(broker: &Broker) -> (String, String) {
    let log = broker.admin.get("/audit/tree-head").await.expect(200).body;
    let keys = broker.admin.get("/audit/keys").await.expect(200).body;
    let prefix = format!("/audit/logs/{}", log["logId"].as_str().unwrap());
    (prefix, keys["keys"][0]["key"].as_str().unwrap().to_owned())
}

both! {
    with [("HANDOFFD_AUDIT__PUBLIC", "true"), ("HANDOFFD_AUDIT__PUBLIC_ENTRIES", "true")]
    async fn a_client_by_other_authors_follows_the_log(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        grow(&a, 40).await;
        let (prefix, key) = known(broker).await;
        let nobody = broker.caller(None);
        let (size, again) =
            tokio::task::spawn_blocking(move || super::stranger::accepts(nobody, prefix, key)).await.unwrap();
        grow(&a, 300).await;
        let grown = tokio::task::spawn_blocking(again).await.unwrap();
        assert!(grown >= size + 300, "{size} {grown}");
    }

    async fn a_handoff_whose_row_was_changed_is_found_by_the_verifier(broker: Broker) {
        let a = broker.pull("a", &["b"]).await;
        let b = broker.pull("b", &["c"]).await;
        broker.pull("c", &[]).await;
        let first = Message::review("a", "b");
        a.submit(&first).await.expect(202);
        let token = b.claim_one().await;
        b.say(&first, "accept", token, json!({})).await.expect(200);
        let second = first.next("b", "c");
        b.submit(&second).await.expect(202);
        let other = "7a000000-0000-4000-8000-000000000001";
        let row = format!("handoff_id = '{}'", second.id());
        for (column, value, named) in [
            ("status", "'ACCEPTED'".to_owned(), "has the status ACCEPTED"),
            ("source", "'a'".to_owned(), "/fromAgent/agentId a, its record says b"),
            ("source_version", "'9.9.9'".to_owned(), "/fromAgent/agentVersion"),
            ("source_execution", format!("'{other}'"), "/fromAgent/executionId"),
            ("target", "'a'".to_owned(), "/toAgent/agentId a, its record says c"),
            ("target_type", "'other'".to_owned(), "/toAgent/agentType"),
            ("target_version", "'9.9.9'".to_owned(), "/toAgent/agentVersion"),
            ("parent_id", format!("'{other}'"), "/parentHandoffId 7a000000"),
            ("parent_id", "NULL".to_owned(), "/parentHandoffId none"),
            ("spent_nanos", "spent_nanos + 1".to_owned(), "/costAtHandoff/costSpentSoFarUSD"),
            ("remaining_nanos", "remaining_nanos + 1".to_owned(), "/costAtHandoff/costBudgetRemainingUSD"),
            ("prompt_tokens", "prompt_tokens + 1".to_owned(), "/costAtHandoff/tokenSpent/prompt"),
            ("completion_tokens", "completion_tokens + 1".to_owned(), "/costAtHandoff/tokenSpent/completion"),
            ("created_at", "created_at + 1".to_owned(), "by its first record"),
            ("task_id", format!("'{other}'"), "names task"),
        ] {
            past_the_broker(broker, "CREATE TABLE kept AS SELECT * FROM handoffs").await;
            let sql = format!("UPDATE handoffs SET {column} = {value} WHERE {row}");
            assert_eq!(past_the_broker(broker, &sql).await, 1, "{column}");
            let found = fault(broker).await;
            assert_eq!(found["fault"], "state", "{column}: {found}");
            let detail = found["detail"].as_str().unwrap();
            assert!(detail.contains(&second.id()) && detail.contains(named), "{column}: {detail}");
            let sql = format!("UPDATE handoffs SET {column} = (SELECT {column} FROM kept WHERE kept.{row}) WHERE {row}");
            assert_eq!(past_the_broker(broker, &sql).await, 1, "{column}");
            past_the_broker(broker, "DROP TABLE kept").await;
        }
        // A parent where there was none, and the time of a later record.
        for (column, value, named) in [
            ("parent_id", format!("'{}'", second.id()), "its record says none"),
            ("created_at", "accepted_at".to_owned(), "by its first record"),
            ("accepted_at", "accepted_at + 1".to_owned(), "was accepted at"),
            ("ended_at", "created_at - 1".to_owned(), "no record of it has that time"),
        ] {
            let of = format!("WHERE handoff_id = '{}'", first.id());
            past_the_broker(broker, "CREATE TABLE kept AS SELECT * FROM handoffs").await;
            past_the_broker(broker, &format!("UPDATE handoffs SET {column} = {value} {of}")).await;
            let found = fault(broker).await;
            assert!(found["detail"].as_str().unwrap().contains(named), "{column}: {found}");
            past_the_broker(broker, &format!("UPDATE handoffs SET {column} = (SELECT {column} FROM kept {of}) {of}")).await;
            past_the_broker(broker, "DROP TABLE kept").await;
        }
        let stays = Message::review("b", "b");
        b.submit(&stays).await.expect(200);
        past_the_broker(broker, &format!("UPDATE handoffs SET target = 'c' WHERE handoff_id = '{}'", stays.id())).await;
        let found = fault(broker).await;
        assert!(found["detail"].as_str().unwrap().contains("/toAgent/agentId c, its record says b"), "{found}");
        past_the_broker(broker, &format!("UPDATE handoffs SET target = 'b' WHERE handoff_id = '{}'", stays.id())).await;
        let said = broker.command(&["verify"]).await;
        assert!(said.status.success(), "all is as it was: {}", String::from_utf8_lossy(&said.stdout));
    }

    async fn what_was_changed_beside_a_handoff_is_found_by_the_verifier(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let person = json!({ "subjects": [{ "subjectId": "jana", "data": { "name": "Jana" } }] });
        let message = Message::review("a", "b")
            .set("/checkpoint", json!({ "step": 3 }))
            .set("/personalDataPayload", person);
        a.submit(&message).await.expect(202);
        let of = format!("WHERE handoff_id = '{}'", message.id());
        let sets = format!("UPDATE handoffs SET checkpoint_seq = NULL, checkpoint_execution = NULL {of}");
        let back = "UPDATE handoffs SET checkpoint_seq = (SELECT checkpoint_seq FROM kept), \
                    checkpoint_execution = (SELECT checkpoint_execution FROM kept)";
        past_the_broker(broker, &format!("CREATE TABLE kept AS SELECT * FROM handoffs {of}")).await;
        for (sql, back, named) in [
            (sets.as_str(), back, "the checkpoint of handoff"),
            (
                "UPDATE personal_data SET subject_id = 'omar'",
                "UPDATE personal_data SET subject_id = 'jana'",
                "filed under another person",
            ),
        ] {
            assert_eq!(past_the_broker(broker, sql).await, 1, "{sql}");
            let found = fault(broker).await;
            assert!(found["detail"].as_str().unwrap().contains(named), "{sql}: {found}");
            assert_eq!(past_the_broker(broker, back).await, 1, "{back}");
        }
        past_the_broker(broker, "DROP TABLE kept").await;
        let said = broker.command(&["verify"]).await;
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    }

    // Finding E1 of 0.3.0: rows that the log tells of, and that are gone or ended otherwise, were not missed.
    async fn an_end_of_a_task_that_no_record_tells_and_rows_that_are_gone_are_found(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        let left = Message::review("a", "b");
        a.submit(&left).await.expect(202);
        let ended = format!("UPDATE tasks SET status = 'CANCELED' WHERE task_id = '{}'", message["taskId"].as_str().unwrap());
        past_the_broker(broker, "CREATE TABLE kept AS SELECT * FROM tasks").await;
        past_the_broker(broker, &ended).await;
        let found = fault(broker).await;
        assert!(found["detail"].as_str().unwrap().contains("no record says that it ended"), "{found}");
        past_the_broker(broker, "UPDATE tasks SET status = (SELECT status FROM kept WHERE kept.task_id = tasks.task_id)").await;
        past_the_broker(broker, "DROP TABLE kept").await;

        let of = format!("WHERE handoff_id = '{}'", left.id());
        past_the_broker(broker, &format!("CREATE TABLE kept AS SELECT * FROM handoffs {of}")).await;
        past_the_broker(broker, &format!("DELETE FROM handoffs {of}")).await;
        let found = fault(broker).await;
        let detail = found["detail"].as_str().unwrap();
        assert!(detail.contains(&left.id()) && detail.contains("its row is gone"), "{found}");
        past_the_broker(broker, "INSERT INTO handoffs SELECT * FROM kept").await;
        past_the_broker(broker, "DROP TABLE kept").await;
        let said = broker.command(&["verify"]).await;
        assert!(said.status.success(), "all is as it was: {}", String::from_utf8_lossy(&said.stdout));
    }

    async fn a_tenant_whose_row_was_removed_is_verified_all_the_same(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        past_the_broker(broker, "CREATE TABLE kept AS SELECT * FROM tenants").await;
        past_the_broker(broker, "DELETE FROM tenants").await;
        let of = format!("WHERE handoff_id = '{}'", message.id());
        past_the_broker(broker, &format!("UPDATE handoffs SET source = 'b' {of}")).await;
        let found = fault(broker).await;
        assert_eq!(found["fault"], "state", "{found}");
        past_the_broker(broker, &format!("UPDATE handoffs SET source = 'a' {of}")).await;
        let said = broker.command(&["verify"]).await;
        assert!(String::from_utf8_lossy(&said.stdout).starts_with("ok: tenant "), "{said:?}");
        past_the_broker(broker, "INSERT INTO tenants SELECT * FROM kept").await;
        past_the_broker(broker, "DROP TABLE kept").await;
    }
}
