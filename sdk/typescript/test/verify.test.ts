import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders } from "node:http";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { encoded } from "../src/canonical.js";
import {
  accepted,
  buildHandoffMessage,
  type Client,
  canonicalize,
  type Receipt,
  rejected,
  signHandoffMessage,
  VerificationError,
  verifyReceipt,
  verifyWebhook,
  type WebhookHeaders,
  type WebhookOptions,
} from "../src/index.js";
import { Broker, ROOT } from "./broker.js";

let broker: Broker;
let intake: Client;
before(async () => {
  broker = await Broker.start({ HANDOFFD_EGRESS_ALLOW: "127.0.0.0/8" });
  await broker.agent("legal");
  intake = await broker.agent("intake", { handoffTargets: ["legal", "hooked"] });
});
after(() => broker.stop());

const send = async (target: string, task = "Look"): Promise<Receipt> => {
  const { receipt } = await intake.handOff(target, task);
  assert.ok(receipt);
  return receipt;
};

describe("canonicalize", () => {
  it("writes the vectors of RFC 8785", () => {
    for (const name of ["arrays", "french", "structures", "unicode", "values", "weird"]) {
      const read = (folder: string): string =>
        readFileSync(join(ROOT, "tests/vectors/jcs", folder, `${name}.json`), "utf8");
      assert.equal(canonicalize(JSON.parse(read("input"))), read("output").trimEnd(), name);
    }
  });

  it("is the request's body, too: what has toJSON goes as what that gives, and undefined members are left out", () => {
    class Money {
      toJSON(): string {
        return "1.00";
      }
    }
    const value = {
      at: new Date(0),
      left: undefined,
      price: new Money(),
      list: [undefined, 1],
      page: new URL("https://a.test/"),
    };
    assert.equal(encoded(value), JSON.stringify(value));
    assert.deepEqual(JSON.parse(encoded(value)), JSON.parse(canonicalize(value)));
    const shared = { n: 1 };
    assert.equal(encoded([shared, shared]), '[{"n":1},{"n":1}]');
  });

  it("refuses what JSON cannot hold", () => {
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, "\ud800", { a: 1n }, () => 1])
      assert.throws(() => canonicalize(value), TypeError);
  });

  it("writes a value with toJSON as JSON.stringify does", () => {
    const named = { toJSON: (name: string) => `of ${name}` };
    const value = {
      a: new Date(0),
      b: [new URL("https://a.test/"), named, undefined],
      c: { toJSON: () => undefined },
      d: named,
    };
    assert.equal(canonicalize(value), JSON.stringify(value));
    assert.equal(canonicalize(value.a), JSON.stringify(value.a));
  });
});

describe("signHandoffMessage", () => {
  it("signs the example of docs/signing.md as it stands there", async () => {
    const page = readFileSync(join(ROOT, "docs/signing.md"), "utf8");
    const message = JSON.parse(/```json\n([\s\S]*?)```/.exec(page)?.[1] ?? "") as object;
    const { signature } = await signHandoffMessage(
      { ...message, signature: "old" },
      "hss_only-for-this-page",
    );
    assert.ok(page.includes(signature));
  });

  it("signs what is sent, whatever the message is made of", async () => {
    const message = { state: { at: new Date(0), page: new URL("https://a.test/"), no: undefined } };
    const signed = await signHandoffMessage(message, "hss_a");
    const sent = JSON.parse(JSON.stringify(signed)) as typeof signed;
    assert.deepEqual(sent.state, { at: "1970-01-01T00:00:00.000Z", page: "https://a.test/" });
    assert.equal((await signHandoffMessage(sent, "hss_a")).signature, signed.signature);
  });
});

describe("verifyReceipt", () => {
  it("holds for each of many receipts, under the log's own key", async () => {
    const { keys } = await broker.admin.audit.treeKeys();
    const vkey = keys[0]?.key ?? "";
    const receipts: Receipt[] = [];
    for (let count = 0; count < 9; count++) receipts.push(await send("legal", `Look ${count}`));
    for (const receipt of receipts) {
      const verified = await verifyReceipt(receipt, ["nobody+00000000+x", vkey].slice(1));
      assert.equal(verified.leafIndex, receipt.leafIndex);
      assert.ok(verified.treeSize > receipt.leafIndex);
    }
    // Later proofs of the same record, for trees of other sizes.
    const { leafIndex, recordHash, logId } = receipts[2] as Receipt;
    const { treeSize } = await broker.admin.audit.treeHead();
    const proof = await broker.admin.audit.inclusionProof({ leafIndex, treeSize });
    const head = await broker.admin.audit.treeHead();
    assert.equal(head.treeSize, treeSize);
    const later = { logId, leafIndex, recordHash, treeHead: head.treeHead, inclusionProof: proof.proof };
    assert.equal((await verifyReceipt(later, vkey)).treeSize, treeSize);
  });

  it("finds each thing that does not hold", async () => {
    const { keys } = await broker.admin.audit.treeKeys();
    const vkey = keys[0]?.key ?? "";
    const good = await send("legal");
    const flip = (text: string, at: number): string =>
      `${text.slice(0, at)}${text[at] === "a" ? "b" : "a"}${text.slice(at + 1)}`;
    const bad: Receipt[] = [
      { ...good, leafIndex: good.leafIndex - 1 },
      { ...good, leafIndex: 10_000 },
      { ...good, leafIndex: -1 },
      { ...good, recordHash: flip(good.recordHash, 20) },
      { ...good, recordHash: "sha256:00" },
      { ...good, treeHead: good.treeHead.replace(/\n(\d+)\n/, (_, size) => `\n${Number(size) + 1}\n`) },
      { ...good, treeHead: flip(good.treeHead, good.treeHead.length - 20) },
      { ...good, treeHead: "nothing" },
      { ...good, inclusionProof: good.inclusionProof.slice(1) },
      { ...good, inclusionProof: [...good.inclusionProof, good.inclusionProof[0] ?? ""] },
      { ...good, inclusionProof: good.inclusionProof.map((step) => flip(step, 5)) },
    ];
    // A wire may bring what no type allows.
    const untyped: unknown[] = [null, undefined, 7, "receipt", [], {}];
    untyped.push(
      { ...good, treeHead: null },
      { ...good, inclusionProof: "none" },
      { ...good, recordHash: 7 },
    );
    untyped.push({ ...good, inclusionProof: [7] }, { ...good, leafIndex: String(good.leafIndex) });
    untyped.push({ ...good, logId: "00000000-0000-4000-8000-000000000000" });
    bad.push(...(untyped as Receipt[]));
    // A byte moved from the digest to the proof's first step, or back: their hash is the same.
    const leaf = Buffer.from(good.recordHash.slice(7), "hex");
    const first = Buffer.from(good.inclusionProof[0] ?? "", "base64");
    const isRight = good.leafIndex % 2 === 1 || good.leafIndex === Number(good.treeHead.split("\n")[1]) - 1;
    const joined = Buffer.concat(isRight ? [first, leaf] : [leaf, first]);
    const [step, digest] = isRight
      ? [joined.subarray(0, 33), joined.subarray(33)]
      : [joined.subarray(33), joined.subarray(0, 33)];
    const inclusionProof = [step.toString("base64"), ...good.inclusionProof.slice(1)];
    bad.push({ ...good, recordHash: `sha256:${digest.toString("hex")}`, inclusionProof });
    assert.ok((await verifyReceipt(good, vkey)).treeSize > 0);
    for (const [at, receipt] of bad.entries())
      await assert.rejects(verifyReceipt(receipt, vkey), VerificationError, `${at}`);
    const [name, , bytes] = vkey.split("+");
    await assert.rejects(verifyReceipt(good, []), VerificationError);
    for (const key of [`${name}+00000000+${bytes}`, `other${vkey}`, "", `${name}+x`])
      await assert.rejects(verifyReceipt(good, key), VerificationError, key);
  });
});

describe("verifyWebhook", () => {
  it("holds for a delivery of the broker, and for nothing that was changed", async () => {
    const got: { headers: IncomingHttpHeaders; body: Buffer }[] = [];
    const server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      got.push({ headers: request.headers, body: Buffer.concat(chunks) });
      const { reason } = JSON.parse(Buffer.concat(chunks).toString()) as { reason?: string };
      response.end(JSON.stringify(reason === "no" ? rejected("NOT_MINE", { by: "hook" }) : accepted()));
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    assert.ok(address && typeof address === "object");
    const url = `http://127.0.0.1:${address.port}/`;
    const { webhookSecret } = await broker.admin.agents.create({
      agentId: "hooked",
      delivery: { mode: "webhook", url },
    });
    const message = await buildHandoffMessage({ agentId: "intake", task: "Grüße" }, "hooked");
    const sent = await intake.handoffs.submit(message, { waitSeconds: 20 });
    assert.equal(sent.status, "ACCEPTED");
    const refused = await intake.handOff("hooked", { task: "Grüße", reason: "no" }, { waitSeconds: 20 });
    assert.deepEqual([refused.status, refused.reason], ["REJECTED", "NOT_MINE"]);
    server.close();
    const { headers, body } = got[0] as (typeof got)[0];
    const verified = await verifyWebhook(body, headers, webhookSecret);
    assert.equal(verified.id, message.handoffId);
    assert.equal(verified.delivery?.handoffId, message.handoffId);
    assert.equal(verified.delivery?.message?.taskId, message.taskId);
    assert.equal(verified.delivery?.task, "Grüße");
    assert.equal(verified.delivery?.attempt, 1);
    assert.ok((verified.delivery?.fencingToken ?? 0) > 0);
    // Other forms of the same: fetch's headers, text, and a secret beside an old one.
    const fetched = new Headers(
      Object.entries(headers).map(([name, value]): [string, string] => [name, String(value)]),
    );
    const other = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
    assert.equal(
      (await verifyWebhook(body.toString("utf8"), fetched, [other, webhookSecret])).id,
      verified.id,
    );
    const late = new Date(Date.now() + 301_000);
    type Call = [string | string[], WebhookHeaders, Buffer, WebhookOptions?];
    const wrong: Call[] = [
      [other, headers, body],
      [webhookSecret, headers, Buffer.concat([body, Buffer.from(" ")])],
      [webhookSecret, { ...headers, "webhook-id": message.taskId }, body],
      [
        webhookSecret,
        { ...headers, "webhook-timestamp": String(Number(headers["webhook-timestamp"]) + 1) },
        body,
      ],
      [webhookSecret, { ...headers, "webhook-signature": "v1,AAAA" }, body],
      [
        webhookSecret,
        { ...headers, "webhook-signature": String(headers["webhook-signature"]).replace("v1,", "v1a,") },
        body,
      ],
      [webhookSecret, { ...headers, "webhook-signature": undefined }, body],
      [webhookSecret, headers, body, { now: late }],
    ];
    const stamp = String(headers["webhook-timestamp"]);
    wrong.push([webhookSecret, { ...headers, "webhook-timestamp": `+${stamp}` }, body]);
    wrong.push([webhookSecret, { ...headers, "webhook-timestamp": ` ${stamp}` }, body]);
    wrong.push([webhookSecret, { ...headers, "webhook-signature": "" }, body]);
    wrong.push([webhookSecret, { ...headers, "webhook-signature": "v1,\u00e9====" }, body]);
    wrong.push([[], headers, body]);
    // Attempt and fencing token stand beside the signed body.
    for (const number of ["x", "-1", "1e3", "\xb2", "9".repeat(400), ""])
      wrong.push([webhookSecret, { ...headers, "handoff-fencing-token": number }, body]);
    for (const [at, [secrets, given, content, options]] of wrong.entries())
      await assert.rejects(verifyWebhook(content, given, secrets, options), VerificationError, `${at}`);
    assert.ok(await verifyWebhook(body, headers, webhookSecret, { now: late, toleranceSeconds: 600 }));
    // The order until 0.3.
    assert.equal((await verifyWebhook(webhookSecret, headers, body)).id, verified.id);
    assert.equal((await verifyWebhook([webhookSecret], headers, body)).id, verified.id);
  });

  const signed = (secret: Buffer, body: Buffer): Record<string, string> => {
    const stamp = String(Math.floor(Date.now() / 1000));
    const content = Buffer.concat([Buffer.from(`msg_1.${stamp}.`), body]);
    const tag = createHmac("sha256", secret).update(content).digest("base64");
    return { "webhook-id": "msg_1", "webhook-timestamp": stamp, "webhook-signature": `v1,${tag}` };
  };

  it("has handoffs of this SDK taken by the documented receiver, and an operator's test", async () => {
    const page = readFileSync(join(ROOT, "docs/delivery.md"), "utf8");
    const program = [...page.matchAll(/```js\n(.*?)```/gs)].map(([, text]) => text ?? "");
    const [receiver] = program.filter((text) => text.includes("createServer"));
    assert.ok(receiver);
    const file = join(ROOT, "sdk/typescript/build/documented-receiver.mjs");
    writeFileSync(file, receiver);
    const probe = createServer().listen(0, "127.0.0.1");
    await once(probe, "listening");
    const address = probe.address();
    assert.ok(address && typeof address === "object");
    const { port } = address;
    probe.close();
    const url = `http://127.0.0.1:${port}/`;
    const { webhookSecret } = await broker.admin.agents.create({
      agentId: "documented",
      delivery: { mode: "webhook", url },
    });
    await broker.admin.allowlist.addTarget("intake", "documented");
    const env = { ...process.env, WEBHOOK_SECRET: webhookSecret ?? "", PORT: String(port) };
    const child = spawn(process.execPath, [file], { env, stdio: "ignore" });
    try {
      const isUp = (): Promise<boolean> =>
        fetch(url, { method: "POST" }).then(
          () => true,
          () => false,
        );
      for (const end = Date.now() + 60_000; Date.now() < end && !(await isUp()); )
        await new Promise((resolve) => setTimeout(resolve, 50));
      const sent = await intake.handOff("documented", "Check it", { waitSeconds: 30 });
      assert.equal(sent.status, "ACCEPTED");
      assert.equal((await broker.admin.agents.testDelivery("documented")).delivered, true);
      assert.equal(child.exitCode, null);
    } finally {
      child.kill();
    }
  });

  it("tells a chunk and a test from a handoff", async () => {
    const key = Buffer.alloc(24, 7);
    const secret = `whsec_${key.toString("base64")}`;
    const told = async (more: Record<string, string>): Promise<unknown> => {
      const ids = { "Handoff-Id": "h", "Handoff-Task-Id": "t" };
      const numbers = { "Handoff-Attempt": "1", "Handoff-Fencing-Token": "7" };
      const headers = { ...signed(key, Buffer.from("{}")), ...ids, ...numbers, ...more };
      return (await verifyWebhook("{}", headers, secret)).delivery;
    };
    const common = { handoffId: "h", taskId: "t", attempt: 1, fencingToken: 7 };
    assert.deepEqual(await told({}), { ...common, test: false, message: {}, task: "" });
    assert.deepEqual(await told({ "Handoff-Chunk": "3" }), { ...common, test: false, chunk: 3 });
    assert.deepEqual(await told({ "Handoff-Test": "true" }), { ...common, test: true });
    await assert.rejects(told({ "Handoff-Chunk": "x" }), VerificationError);
  });

  it("refuses a signed body that is no JSON object", async () => {
    const key = Buffer.alloc(24, 7);
    const secret = `whsec_${key.toString("base64")}`;
    assert.deepEqual((await verifyWebhook("{}", signed(key, Buffer.from("{}")), secret)).payload, {});
    for (const text of ["", "7", "null", "[]", '"text"', "{", "\xff", "\ufeff{}"]) {
      const body = Buffer.from(text, text === "\xff" ? "latin1" : "utf8");
      await assert.rejects(verifyWebhook(body, signed(key, body), secret), VerificationError, text);
    }
  });

  it("lets nothing through by a secret that a deployment left empty", async () => {
    const headers = signed(Buffer.alloc(0), Buffer.from("{}"));
    for (const secret of ["", "whsec_", "whsec_?", ["whsec_"]])
      await assert.rejects(verifyWebhook("{}", headers, secret), TypeError);
  });
});
