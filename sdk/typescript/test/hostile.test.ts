// What a network, a proxy or a broker may do wrong: broken connections, answers of another kind, restarts.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { AnswerError, Client, OverloadedError, ProblemError, TransportError, Worker } from "../src/index.js";
import { Broker } from "./broker.js";
import { answer, type Liar, type Saying, startLiar } from "./liar.js";

/** Asks a server that says this, and stops it. */
async function asked(sayings: Saying[], ask: (client: Client, liar: Liar) => Promise<void>): Promise<void> {
  const liar = await startLiar(...sayings);
  try {
    await ask(new Client({ url: liar.url, key: "secret-key" }), liar);
  } finally {
    await liar.stop();
  }
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe("an answer that breaks off", () => {
  const broken: Record<string, Saying> = {
    "closed at once": (socket) => socket.destroy(),
    reset: (socket) => socket.resetAndDestroy(),
    "no HTTP": "220 mail.example.org ESMTP\r\n",
    "within the head": "HTTP/1.1 200 OK\r\ncontent-le",
    "within the body": answer(200, '{"items"', { "content-length": "14" }),
    "within a chunk": 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{"items"',
  };
  for (const [kind, saying] of Object.entries(broken)) {
    it(`${kind}: is asked for again where that is safe`, async () => {
      await asked([saying, saying], async (client, { seen }) => {
        assert.deepEqual((await client.agents.list()).items, []);
        assert.equal(seen.length, 3);
      });
      await asked([saying], async (client, { seen }) => {
        await assert.rejects(client.keys.create({ role: "auditor" }), TransportError);
        assert.equal(seen.length, 1);
      });
    });
  }
});

describe("a test delivery", () => {
  it("is not sent again after a lost answer", async () => {
    await asked([(socket) => socket.destroy()], async (client, { seen }) => {
      await assert.rejects(client.agents.testDelivery("a"), TransportError);
      assert.equal(seen.length, 1);
    });
  });
});

describe("a question and an answer", () => {
  it("carry the idempotency key", async () => {
    await asked([], async (client, { seen }) => {
      const options = { idempotencyKey: "once" };
      await client.handoffs.ask("h", 7, { question: "Which?" }, options);
      await client.handoffs.answer("h", { answer: "This" }, options);
      for (const text of seen) assert.match(text, /^idempotency-key: once\r$/im);
      assert.match(seen[0] ?? "", /\{"question":"Which\?","fencingToken":7\}$/);
    });
  });
});

describe("an answer of another kind", () => {
  const other: Record<string, Buffer> = {
    "a login": answer(200, "<html>Please log in</html>", { "content-type": "text/html" }),
    "half of a text": answer(200, '{"items": ['),
    "no text": answer(200, Buffer.from('{"items": ["\xff', "latin1")),
  };
  for (const [kind, saying] of Object.entries(other)) {
    it(`${kind}: is an error of the package that repeats neither key nor content`, async () => {
      await asked([saying], async (client, { seen }) => {
        await assert.rejects(client.agents.list(), (error) => {
          assert.ok(error instanceof AnswerError);
          return !/secret-key|log in/.test(error.message);
        });
        assert.equal(seen.length, 1);
      });
    });
  }

  it("that cannot be decompressed is a lost answer", async () => {
    const said = answer(200, "no gzip", { "content-encoding": "gzip" });
    await asked([said], async (client, { seen }) => {
      assert.deepEqual((await client.agents.list()).items, []);
      assert.equal(seen.length, 2);
    });
  });

  it("that redirects is not followed, and deletes nothing", async () => {
    const stranger = await startLiar();
    const location = `${stranger.url}/agents/a`;
    await asked([answer(307, "", { location })], async (client, { seen }) => {
      await assert.rejects(client.agents.delete("a", { retries: 0 }), TransportError);
      assert.deepEqual([seen.length, stranger.seen.length], [1, 0]);
    });
    await stranger.stop();
  });

  it("is no stream of events", async () => {
    const streams = [answer(200, "<html>", { "content-type": "text/html" })];
    const junk = answer(200, "data: {\n\n", { "content-type": "text/event-stream" });
    for (const said of [...streams, junk]) {
      await asked([said], async (client, { seen }) => {
        await assert.rejects(client.tasks.watch("t").next(), AnswerError);
        assert.equal(seen.length, 1);
      });
    }
  });

  it("ends no stream of events early: it is opened again behind the last event, and not at once", async () => {
    const stream = (text: string): Buffer => answer(200, text, { "content-type": "text/event-stream" });
    const event = (id: string, type: string): string => `id: ${id}\ndata: ${JSON.stringify({ type })}\n\n`;
    const said = [
      stream(event("a", "one")),
      stream(""),
      answer(200, event("b", "two"), { "content-type": "text/event-stream", "content-length": "500" }),
      stream(event("c", "task.completed")),
    ];
    await asked(said, async (client, { seen }) => {
      const types: string[] = [];
      const begun = Date.now();
      for await (const { type } of client.tasks.watch("t")) types.push(String(type));
      assert.deepEqual(types, ["one", "two", "task.completed"]);
      assert.deepEqual(
        seen.map((head) => /last-event-id: (\S+)/i.exec(head)?.[1]),
        [undefined, "a", "a", "b"],
      );
      assert.ok(Date.now() - begun > 700);
    });
  });
});

describe("a problem", () => {
  const bodies = [
    "",
    "<html>",
    "[]",
    "7",
    "null",
    '{"code": 7}',
    '{"code": "SCHEMA_INVALID"}',
    '{"code": "X", "failures": 7}',
  ];
  it("of another form is still a problem", async () => {
    for (const body of bodies) {
      const said = answer(422, body, { "content-type": "application/problem+json" });
      await asked([said], async (client) => {
        await assert.rejects(client.agents.list(), (error) => {
          assert.ok(error instanceof ProblemError, body);
          assert.deepEqual([error.status, error.failures], [422, []]);
          return error.code !== "";
        });
      });
    }
  });
});

describe("Retry-After", () => {
  const busy = (after: string): Buffer =>
    answer(503, '{"code": "OVERLOADED", "failures": []}', {
      "retry-after": after,
      "content-type": "application/problem+json",
    });

  it("of another form is none of the broker's", async () => {
    for (const after of ["\xb2", "soon", "", "1e3"]) {
      await asked([busy(after)], async (client, { seen }) => {
        assert.deepEqual((await client.agents.list()).items, []);
        assert.equal(seen.length, 2, after);
      });
    }
  });

  it("in seconds or as a date is waited for, also where a repetition does something again", async () => {
    for (const said of [() => "1", () => new Date(Date.now() + 2_000).toUTCString()]) {
      const after = said();
      await asked([busy(after)], async (client, { seen }) => {
        const begun = Date.now();
        await client.keys.create({ role: "auditor" });
        assert.equal(seen.length, 2);
        assert.ok(Date.now() - begun > 700, after);
      });
    }
  });

  it("that is too long is told at once", async () => {
    for (const after of ["600", "9".repeat(400), new Date(Date.now() + 3_600_000).toUTCString()]) {
      await asked([busy(after)], async (client, { seen }) => {
        await assert.rejects(client.agents.list(), OverloadedError);
        assert.equal(seen.length, 1);
      });
    }
  });
});

/** Collects garbage again and again meanwhile, as a busy process does: fetch loses its signal by it. */
async function collecting<T>(work: () => Promise<T>): Promise<T> {
  setFlagsFromString("--expose-gc");
  const timer = setInterval(runInNewContext("gc") as () => void, 10);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

describe("a client", () => {
  it("gives up a broker that never answers, also within its answer", async () => {
    const begins: Saying = (socket) => void socket.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{");
    await asked([() => undefined, begins], async (client, { seen }) => {
      const call = collecting(() => client.agents.list({ timeoutMs: 200, retries: 1 }));
      await assert.rejects(call, (error) => error instanceof TransportError && /200 ms/.test(error.message));
      assert.equal(seen.length, 2);
    });
  });

  it("ends a call by its signal, also within its answer", async () => {
    const begins: Saying = (socket) => void socket.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{");
    await asked([begins], async (client) => {
      const stop = new AbortController();
      setTimeout(() => stop.abort(new Error("enough")), 100);
      await assert.rejects(
        collecting(() => client.agents.list({ signal: stop.signal })),
        /enough/,
      );
    });
  });

  it("ends a stream of events by its signal", async () => {
    const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\n";
    const begins: Saying = (socket) => void socket.write(`${head}data: {}\n\n`);
    await asked([begins], async (client) => {
      const stop = new AbortController();
      const events = client.tasks.watch("t", { signal: stop.signal });
      await events.next();
      setTimeout(() => stop.abort(new Error("enough")), 100);
      await assert.rejects(
        collecting(() => events.next()),
        /enough/,
      );
    });
  });

  it("refuses a URL or a key that is none at once, and does not repeat the key", async () => {
    for (const url of ["localhost:8080", "ftp://127.0.0.1", "/handoffs"])
      assert.throws(() => new Client({ url }), /http:\/\//);
    for (const key of ["hok_a\nx: y", "hok_é", "hok_a b", "hok_\0"])
      assert.throws(
        () => new Client({ url: "http://127.0.0.1:1", key }),
        (error) => error instanceof TypeError && !error.message.includes("hok_"),
      );
    const liar = await startLiar();
    await new Client({ url: liar.url, key: " hok_abc\n" }).agents.list();
    assert.match(liar.seen[0] ?? "", /\r\nauthorization: bearer hok_abc\r\n/i);
    await liar.stop();
  });

  it("goes on waiting over a restart of the broker", { timeout: 120_000 }, async (t) => {
    const broker = await Broker.start();
    t.after(() => broker.stop());
    const receiver = await broker.agent("b");
    const sender = await broker.agent("a", { handoffTargets: ["b"] });
    const sent = await sender.handOff("b", "Check it");
    const ended = sender.handoffs.waitEnded(sent.handoffId, { withinMs: 60_000 });
    const fresh = sender.handOffAndWait("b", "And this", { withinMs: 60_000 });
    for (
      const until = Date.now() + 30_000;
      (await broker.admin.handoffs.list()).items.length < 2;
      await sleep(20)
    )
      assert.ok(Date.now() < until, "the second handoff is not at the broker");
    await sleep(300);
    await broker.kill();
    await sleep(1_000);
    await broker.restart();
    const worker = new Worker(receiver, (job) => job.task, { pollSeconds: 1, concurrency: 2 });
    const running = worker.run();
    t.after(() => worker.stop());
    assert.deepEqual([(await ended).result, (await fresh).result], ["Check it", "And this"]);
    await worker.stop();
    await running;
  });
});

describe("a worker", () => {
  it("tells its verdict to a broker that comes back, once", { timeout: 120_000 }, async (t) => {
    const broker = await Broker.start();
    t.after(() => broker.stop());
    const enrolled = await broker.agent("b");
    const { apiKey } = await broker.admin.keys.create({ role: "agent", agentId: "b" });
    assert.ok(enrolled && apiKey);
    // The client gives up at once here, so that only the worker's own patience brings the result.
    const receiver = new Client({ url: broker.url, key: apiKey, agentId: "b", retries: 0 });
    const sender = await broker.agent("a", { handoffTargets: ["b"] });
    const sent = await sender.handOff("b", "Once");
    let back: Promise<void> | undefined;
    const work = async ({ task }: { task: string }): Promise<string> => {
      await broker.kill();
      back = sleep(3_000).then(() => broker.restart());
      return task;
    };
    const worker = new Worker(receiver, work, { pollSeconds: 1 });
    const running = worker.run();
    t.after(() => worker.stop());
    const done = await sender.handoffs.waitEnded(sent.handoffId, { withinMs: 60_000 });
    assert.deepEqual([done.status, done.result, done.attempts], ["COMPLETED", "Once", 1]);
    await worker.stop();
    await running;
    await back;
  });

  it("outlives a proxy in the broker's place, and stops without waiting for it", async () => {
    const wrong = [
      answer(200, "<html>", { "content-type": "text/html" }),
      answer(500, "{}"),
      answer(502, "bad gateway"),
      answer(302),
    ];
    const liar = await startLiar(...wrong, answer(200, '{"items": []}'), () => undefined);
    const client = new Client({ url: liar.url, key: "k", agentId: "b" });
    const errors: unknown[] = [];
    const worker = new Worker(client, () => 1, {
      pollSeconds: 0,
      adopt: false,
      onEvent: (event) => void (event.type === "unreachable" && errors.push(event.error)),
    });
    const running = worker.run();
    for (const until = Date.now() + 30_000; liar.seen.length <= wrong.length && Date.now() < until; )
      await sleep(50);
    assert.equal(errors.length, wrong.length);
    await liar.stop();
    const begun = Date.now();
    await worker.stop();
    await running;
    assert.ok(Date.now() - begun < 5_000);
  });
});
