import { type Bytes, concat, equalBytes, fromBase64, fromHex, sha256, toHex, utf8 } from "./bytes.js";
import { VerificationError } from "./errors.js";
import type { Receipt } from "./types.js";

/** The statement of a receipt: the record's place among the leaves of a signed tree. */
export interface VerifiedReceipt {
  /** The log's name, as the tree head has it. */
  readonly origin: string;
  readonly leafIndex: number;
  readonly treeSize: number;
  /** The root that was signed, in hexadecimal digits. */
  readonly rootHash: string;
}

/**
 * Verifies a receipt offline: the Ed25519 signature of the tree head (C2SP signed note), and the inclusion proof from
 * the record up to the signed root (RFC 9162 §2.1.3.2).
 *
 * @param receipt `receipt` of the answer to a submission.
 * @param key The log's public key as `name+hash+base64`, from a source that you trust (`GET /audit/keys`,
 *   `handoffd key tree-head`); several where the log changed its key.
 * @throws VerificationError where anything does not hold.
 */
export async function verifyReceipt(
  receipt: Receipt,
  key: string | readonly string[],
): Promise<VerifiedReceipt> {
  checkTypes(receipt);
  const { origin, size, root } = await openNote(receipt.treeHead, typeof key === "string" ? [key] : key);
  if (!origin.endsWith(`/${receipt.logId}`))
    throw new VerificationError("the tree head is not of the log that the receipt names");
  const leaf = receipt.recordHash.startsWith("sha256:") ? fromHex(receipt.recordHash.slice(7)) : undefined;
  if (leaf?.length !== 32) throw new VerificationError("recordHash is not a sha256 digest");
  const steps = receipt.inclusionProof.map(fromBase64);
  const computed = await rootOf(leaf, receipt.leafIndex, size, steps);
  if (!equalBytes(computed, root)) throw new VerificationError("the record is not in this tree");
  return { origin, leafIndex: receipt.leafIndex, treeSize: size, rootHash: toHex(root) };
}

/** A receipt comes over a wire: a value of another type is not a receipt. */
function checkTypes(given: unknown): void {
  const { treeHead, recordHash, logId, inclusionProof } = (given ?? {}) as Partial<Record<string, unknown>>;
  const texts = [treeHead, recordHash, logId, ...(Array.isArray(inclusionProof) ? inclusionProof : [null])];
  if (texts.some((each) => typeof each !== "string"))
    throw new VerificationError("the receipt lacks a member, or one is of another type");
}

async function rootOf(
  leaf: Bytes,
  leafIndex: number,
  size: number,
  steps: readonly (Bytes | undefined)[],
): Promise<Bytes> {
  if (!Number.isSafeInteger(leafIndex) || leafIndex < 0 || leafIndex >= size)
    throw new VerificationError("the record's place is not in this tree");
  let node = leaf;
  let [at, last] = [leafIndex, size - 1];
  const half = (value: number): number => Math.floor(value / 2);
  for (const step of steps) {
    if (step?.length !== 32) throw new VerificationError("a step of the proof is not a digest");
    if (last === 0) throw new VerificationError("the proof is too long");
    if (at % 2 === 1 || at === last) {
      node = await sha256(concat(Uint8Array.of(1), step, node));
      while (at % 2 === 0 && at !== 0) [at, last] = [half(at), half(last)];
    } else {
      node = await sha256(concat(Uint8Array.of(1), node, step));
    }
    [at, last] = [half(at), half(last)];
  }
  if (last !== 0) throw new VerificationError("the proof is too short");
  return node;
}

interface TreeHead {
  readonly origin: string;
  readonly size: number;
  readonly root: Bytes;
}

/** The tree head of a note that one of the keys signed. */
async function openNote(note: string, keys: readonly string[]): Promise<TreeHead> {
  const split = note.lastIndexOf("\n\n");
  if (split < 0) throw new VerificationError("the tree head is not a signed note");
  const text = note.slice(0, split + 1);
  const signatures = note
    .slice(split + 2)
    .split("\n")
    .filter((line) => line !== "");
  const [origin = "", sizeText = "", rootText = ""] = text.split("\n");
  const root = fromBase64(rootText);
  if (!/^(0|[1-9]\d{0,15})$/.test(sizeText) || root?.length !== 32)
    throw new VerificationError("the tree head has no size and root");
  for (const key of keys) {
    const { name, id, bytes } = await parseKey(key);
    if (name !== origin) continue;
    for (const line of signatures) {
      const [dash, by, signed = ""] = line.split(" ");
      const found = fromBase64(signed);
      if (dash !== "—" || by !== name || found === undefined || toHex(found.slice(0, 4)) !== id) continue;
      const imported = await crypto.subtle.importKey("raw", bytes, "Ed25519", false, ["verify"]);
      if (await crypto.subtle.verify("Ed25519", imported, found.slice(4), utf8(text)))
        return { origin, size: Number(sizeText), root };
    }
  }
  throw new VerificationError("no signature of the tree head is by the key");
}

/** Reads `name+hash+base64`, and checks that the hash is the key's own. */
async function parseKey(key: string): Promise<{ name: string; id: string; bytes: Bytes }> {
  const parts = /^([^+ ]+)\+([0-9a-f]{8})\+(.+)$/.exec(key.trim());
  const bytes = fromBase64(parts?.[3] ?? "");
  if (!parts?.[1] || !parts[2] || bytes?.length !== 33 || bytes[0] !== 1)
    throw new VerificationError("the key is not a `name+hash+base64` of an Ed25519 key");
  const digest = await sha256(concat(utf8(`${parts[1]}\n`), bytes));
  if (toHex(digest.slice(0, 4)) !== parts[2])
    throw new VerificationError("the key does not have the id that it names");
  return { name: parts[1], id: parts[2], bytes: bytes.slice(1) };
}
