// Messages that come in pieces, and messages to several receivers, at a real broker.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { buildHandoffMessage, type Client, ConflictError, ForbiddenError, Worker } from "../src/index.js";
import { Broker } from "./broker.js";

let broker: Broker;
let sender: Client;
before(async () => {
  broker = await Broker.start();
  sender = await broker.agent("sender");
});
after(() => broker.stop());

async function receiver(agentId: string): Promise<Client> {
  const client = await broker.agent(agentId);
  await broker.admin.allowlist.addTarget("sender", agentId);
  return client;
}

describe("a message in pieces", () => {
  it("is closed when its writer is done, and aborted when it throws", async () => {
    const page = await receiver("page");
    const { handoffId } = await sender.stream("page", "Read it", async (stream) => {
      await stream.turn("user", "Page one.");
      await stream.send({ set: { "/currentState/pages": 1 } });
    });
    const seen: [number, boolean][] = [];
    for await (const chunk of page.handoffs.readChunks(handoffId))
      seen.push([chunk.seq, chunk.close ?? false]);
    assert.deepEqual(seen, [
      [1, false],
      [2, false],
      [3, true],
    ]);
    const broken: string[] = [];
    const writing = sender.stream("page", "Read it", async (stream) => {
      broken.push(stream.handoffId);
      await stream.turn("user", "Page one.");
      throw new RangeError("no page two");
    });
    await assert.rejects(writing, RangeError);
    const ended = await sender.handoffs.waitEnded(broken[0] ?? "", { withinMs: 60_000 });
    assert.notEqual(ended.status, "COMPLETED");
  });

  it("reaches its reader in order, ends with the close, and refuses gaps", async () => {
    const reader = await receiver("reader");
    const message = await buildHandoffMessage({ agentId: "sender", task: "Read it" }, "reader");
    const { handoffId } = await sender.handoffs.submit({
      ...message,
      schemaVersion: "2.2",
      stream: { open: true },
    });
    const read: [number, boolean][] = [];
    const reading = (async () => {
      for await (const chunk of reader.handoffs.readChunks(handoffId))
        read.push([chunk.seq, chunk.close ?? false]);
    })();
    const turn = { role: "user", content: "Page one." };
    const chunks = [1, 2].map((seq) => ({ seq, append: { "/conversationHistoryVerbatim": [turn] } }));
    const taken = await sender.handoffs.appendChunks(handoffId, chunks);
    assert.deepEqual([taken.taken, taken.replayed, taken.expectedSeq], [2, 0, 3]);
    const again = await sender.handoffs.appendChunks(handoffId, chunks);
    assert.deepEqual([again.taken, again.replayed], [0, 2]);
    const gap = sender.handoffs.appendChunks(handoffId, [{ seq: 9, set: { "/currentState/pages": 1 } }]);
    await assert.rejects(gap, (error) => error instanceof ConflictError && error.problem.expectedSeq === 3);
    await sender.handoffs.appendChunks(handoffId, [{ seq: 3, close: true }]);
    await reading;
    assert.deepEqual(read, [
      [1, false],
      [2, false],
      [3, true],
    ]);
    assert.deepEqual(
      (await reader.handoffs.chunks(handoffId, { from: 3 })).items.map((chunk) => chunk.seq),
      [3],
    );
  });
});

describe("a message to several receivers", () => {
  it("gathers their results in the order of the list, and is refused as a whole", async () => {
    const names = ["first", "second", "third"];
    const workers: Worker[] = [];
    for (const name of names) workers.push(new Worker(await receiver(name), () => name, { pollSeconds: 1 }));
    const running = workers.map((worker) => worker.run());
    try {
      const { handoffId } = await sender.handOffToMany(names, "Check it");
      const done = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
      assert.deepEqual([done.status, done.result], ["COMPLETED", names]);
      const turn = await sender.handoffs.resultPrompt(handoffId);
      const places = names.map((name) => turn.indexOf(`by agent ${name} `));
      assert.ok(
        places.every((at, n) => at > (places[n - 1] ?? 0)),
        turn,
      );
    } finally {
      await Promise.all(workers.map((worker) => worker.stop()));
      await Promise.all(running);
    }
    await assert.rejects(
      sender.handOffToMany(["first", "nobody"], "Check it"),
      (error) =>
        error instanceof ForbiddenError &&
        error.failures.some((failure) => failure.pointer.startsWith("/receiverList/1")),
    );
  });
});
