//! Evidence: the log recomputed here, records of refusals, the trace, altered bundles.

use std::io::{Cursor, Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use super::ensure;
use crate::Bench;
use crate::claims::Check;
use crate::message::Message;

type Hash = [u8; 32];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    records: Vec<Row<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    record_hash: String,
    #[serde(borrow)]
    record: Option<&'a RawValue>,
}

/// The hash of a leaf: a zero byte and the record (RFC 6962, section 2.1).
fn leaf(record: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(record).finalize().into()
}

/// The root over leaves: a one byte and both halves; the left one is the largest power of two below the count (RFC 6962).
fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest([]).into(),
        [one] => *one,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            Sha256::new()
                .chain_update([1])
                .chain_update(root(left))
                .chain_update(root(right))
                .finalize()
                .into()
        }
    }
}

/// Reads the log's first records; returns their leaves.
async fn leaves(bench: &Bench, size: usize) -> Result<Vec<Hash>, String> {
    let mut leaves = Vec::with_capacity(size);
    while leaves.len() < size {
        let limit = (size - leaves.len()).min(500);
        let path = format!("/audit/records?from={}&limit={limit}", leaves.len());
        let answer = bench.broker.get(&path).await?.expect(200, "reading records")?;
        let page: Page<'_> =
            serde_json::from_str(&answer.text).map_err(|err| format!("{path}: {err}"))?;
        ensure(!page.records.is_empty(), || {
            format!("the log ends at {} of {size} records", leaves.len())
        })?;
        for row in page.records {
            let record =
                row.record.ok_or_else(|| format!("record {} is not JSON", leaves.len()))?;
            let hash = leaf(record.get().as_bytes());
            let stated = format!("sha256:{}", hex::encode(hash));
            ensure(row.record_hash == stated, || {
                format!("record {} hashes to {stated}, stated is {}", leaves.len(), row.record_hash)
            })?;
            leaves.push(hash);
        }
    }
    Ok(leaves)
}

/// Size and root of a signed tree head: the second and third line of its note (C2SP tlog-checkpoint).
fn head_of(note: &str) -> Result<(usize, Vec<u8>), String> {
    let mut lines = note.lines().skip(1);
    let size =
        lines.next().and_then(|line| line.parse().ok()).ok_or("the tree head has no size")?;
    let root = lines
        .next()
        .and_then(|line| BASE64.decode(line).ok())
        .ok_or("the tree head has no root")?;
    Ok((size, root))
}

/// Recomputes the log from its records, and looks a receipt up in it.
pub(crate) async fn log(bench: &Bench) -> Result<String, String> {
    let (a, b, _receiver) = bench.accepting().await?;
    let sent =
        bench.broker.submit(&a, &Message::first(&a, &b)).await?.expect(202, "a submission")?;
    let (hash, note) = (sent.text_at("/receipt/recordHash")?, sent.text_at("/receipt/treeHead")?);
    let place = sent
        .body
        .pointer("/receipt/leafIndex")
        .and_then(Value::as_u64)
        .ok_or("the receipt has no place")?;
    let (size, signed) = head_of(&note)?;
    let leaves = leaves(bench, size).await?;
    ensure(root(&leaves)[..] == signed, || {
        format!("{size} records hash to {}, and not to the signed root", hex::encode(root(&leaves)))
    })?;
    let named = leaves
        .get(usize::try_from(place).unwrap_or(usize::MAX))
        .map(|leaf| format!("sha256:{}", hex::encode(leaf)));
    ensure(named.as_deref() == Some(hash.as_str()), || {
        format!("record {place} is {named:?}, the receipt says {hash}")
    })?;
    Ok(format!("{size} records recomputed to the signed root; the receipt names record {place}"))
}

/// A refused message leaves a record.
pub(crate) async fn refusals_recorded(bench: &Bench) -> Result<String, String> {
    let (a, b, _receiver) = bench.accepting().await?;
    let before =
        bench.broker.get("/audit/tree-head").await?.expect(200, "reading the tree head")?;
    let from = before.body["treeSize"].as_u64().ok_or("the tree head has no treeSize")?;
    let message = Message::first(&a, &b).cost(1.0, 0.0);
    bench.broker.submit(&a, &message).await?.refused(422, "BUDGET_EXHAUSTED", "nothing left")?;
    let listed = bench
        .broker
        .get(&format!("/audit/records?from={from}&limit=500"))
        .await?
        .expect(200, "reading records")?;
    let records = listed.body["records"].as_array().cloned().unwrap_or_default();
    let hits = records.iter().find(|row| row["record"].to_string().contains(message.id()));
    let hits = hits.ok_or("no record names the refused message")?;
    Ok(format!("record {} names it: {}", hits["leafIndex"], hits["record"]["kind"]))
}

/// Three hops, and one trace of them.
pub(crate) async fn trace(bench: &Bench) -> Result<String, String> {
    let (a, b, receiver) = bench.accepting().await?;
    let delivery = serde_json::json!({ "mode": "webhook", "url": receiver.url });
    let c = bench
        .broker
        .agent(serde_json::json!({ "agentId": bench.broker.name("third"), "delivery": delivery }))
        .await?;
    bench.broker.change(&b, &serde_json::json!({ "handoffTargets": [c.id] })).await?;
    let first = Message::first(&a, &b).cost(0.10, 0.90);
    let second = first.next(&b, &c).cost(0.35, 0.65);
    for (from, message) in [(&a, &first), (&b, &second)] {
        bench.broker.submit_and_wait(from, message).await?.expect(200, "a hop")?;
    }
    let path = format!("{}/trace", bench.broker.task_path(&first));
    let trace = bench.broker.get(&path).await?.expect(200, "reading the trace")?.body;
    let ids: Vec<&str> = trace["handoffs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["handoffId"].as_str())
        .collect();
    ensure(ids == [first.id(), second.id()], || format!("the trace's handoffs are {ids:?}"))?;
    let total = trace["cost"]["totalUSD"].as_f64().unwrap_or(f64::NAN);
    ensure((total - 0.35).abs() < 1e-9, || format!("the trace's cost is {total} and not 0.35"))?;
    ensure(trace["verification"]["ok"] == true, || {
        format!("the trace says {}", trace["verification"])
    })?;
    Ok("2 hops in order, 0.35 USD in all, evidence verified".to_owned())
}

/// Alters one byte of each entry of a bundle in turn.
pub(crate) async fn tampering(bench: &Bench) -> Check {
    match altered(bench).await {
        Ok(Some(evidence)) => Check::Holds(evidence),
        Ok(None) => {
            Check::Unsupported("needs --verifier, a command that checks a bundle".to_owned())
        }
        Err(why) => Check::Broken(why),
    }
}

async fn altered(bench: &Bench) -> Result<Option<String>, String> {
    let (a, b, _receiver) = bench.accepting().await?;
    let message = Message::first(&a, &b);
    bench.broker.submit_and_wait(&a, &message).await?.expect(200, "a submission")?;
    let path = format!("{}/trace?format=bundle", bench.broker.task_path(&message));
    let bundle = bench.broker.bytes(&path).await?;
    let folder = tempfile::tempdir().map_err(|err| err.to_string())?;
    let file = folder.path().join("bundle.zip");
    let judge = async |bytes: &[u8]| {
        std::fs::write(&file, bytes).map_err(|err| err.to_string())?;
        bench.hooks.verifies(&file).await.transpose()
    };
    match judge(&bundle).await? {
        None => return Ok(None),
        Some(ok) => ensure(ok, || "the verifier refuses the bundle as it was exported".to_owned())?,
    }
    let entries = unpack(&bundle)?;
    let mut hits = 0;
    for (place, (name, _)) in entries
        .iter()
        .enumerate()
        .filter(|(_, (name, content))| is_evidence(name) && !content.is_empty())
    {
        let ok = judge(&pack(&entries, place)?).await? == Some(true);
        ensure(!ok, || format!("one altered byte in {name} passes the verifier"))?;
        hits += 1;
    }
    ensure(hits > 0, || "the bundle has no entry of evidence".to_owned())?;
    Ok(Some(format!("the bundle verifies; one altered byte in each of {hits} entries: all found")))
}

/// Whether an entry is evidence; texts for readers are not.
fn is_evidence(name: &str) -> bool {
    let text = [".md", ".html", ".txt"].iter().any(|ending| name.ends_with(ending));
    !text && !name.ends_with('/')
}

type Entries = Vec<(String, Vec<u8>)>;

fn unpack(bundle: &[u8]) -> Result<Entries, String> {
    let wrong = |err: zip::result::ZipError| format!("the bundle is not a zip archive: {err}");
    let mut archive = ZipArchive::new(Cursor::new(bundle)).map_err(wrong)?;
    let mut entries = Entries::new();
    for place in 0..archive.len() {
        let mut entry = archive.by_index(place).map_err(wrong)?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(|err| err.to_string())?;
        let name = entry.name().map_err(wrong)?.into_owned();
        entries.push((name, content));
    }
    Ok(entries)
}

/// The same bundle with one byte of one entry altered: a letter or digit near its middle, so that it stays readable.
fn pack(entries: &Entries, altered: usize) -> Result<Vec<u8>, String> {
    let wrong = |err: zip::result::ZipError| err.to_string();
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (place, (name, content)) in entries.iter().enumerate() {
        writer.start_file(name.as_str(), SimpleFileOptions::default()).map_err(wrong)?;
        let content =
            if place == altered { with_one_byte_altered(content) } else { content.clone() };
        writer.write_all(&content).map_err(|err| err.to_string())?;
    }
    Ok(writer.finish().map_err(wrong)?.into_inner())
}

fn with_one_byte_altered(content: &[u8]) -> Vec<u8> {
    let mut content = content.to_vec();
    let middle = content.len() / 2;
    let place = (middle..content.len())
        .chain(0..middle)
        .find(|place| content[*place].is_ascii_alphanumeric());
    if let Some(byte) = place.and_then(|place| content.get_mut(place)) {
        *byte = if *byte == b'1' { b'2' } else { b'1' };
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_those_of_rfc_6962() {
        // Leaves and roots as published with the certificate-transparency reference implementation.
        let inputs: [&[u8]; 4] = [b"", b"\x00", b"\x10", b"\x20\x21"];
        let leaves: Vec<Hash> = inputs.iter().map(|input| leaf(input)).collect();
        let roots = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ];
        for (count, expected) in (1..).zip(roots) {
            assert_eq!(hex::encode(root(&leaves[..count])), expected);
        }
    }

    #[test]
    fn one_byte_and_no_more_is_altered() {
        let content = b"{\"a\":\"1\"}";
        let altered = with_one_byte_altered(content);
        assert_eq!(content.iter().zip(&altered).filter(|(one, other)| one != other).count(), 1);
    }
}
