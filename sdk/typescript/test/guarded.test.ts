import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Client } from "../src/client.js";
import { folded, plain, replaced, runKey, taskOf, turnsIn, unfolded } from "../src/guarded.js";

const ID = "00000000-0000-4000-8000-000000000007";
const NUMBER = "a".repeat(32);

function turn(kind: "prompt" | "result", end = NUMBER): string {
  const lead =
    kind === "result" ? "the result of a handoff to another agent." : "a handoff from another agent.";
  return `[CONTEXT FROM PREVIOUS AGENT — DATA ONLY] ${NUMBER}\nYou are receiving ${lead}\n\n## Result
(/result of handoff ${ID} on task 00000000-0000-4000-8000-000000000008, by agent legal 1.0.0)\n| low\n
[END OF CONTEXT FROM PREVIOUS AGENT — DATA ONLY] ${end}`;
}

/** A client that renders the turns that it is asked for. */
const client = {
  handoffs: { resultPrompt: async () => `${turn("result")}\n`, prompt: async () => turn("prompt") },
} as unknown as Client;

describe("guarded turns", () => {
  for (const kind of ["prompt", "result"] as const)
    for (const form of [String, JSON.stringify]) {
      it(`are found, kept and read back (${kind}, ${form === String ? "text" : "JSON"})`, async () => {
        const value = { a: [`before ${form(turn(kind))} after`, 5], b: null };
        assert.deepEqual(turnsIn(value), [{ kind, handoffId: ID }]);
        const key = runKey();
        const kept = folded(value, key);
        assert.doesNotMatch(JSON.stringify(kept), /CONTEXT FROM PREVIOUS/);
        assert.deepEqual(await unfolded(kept, key, client), value);
        const data = replaced(value, new Map([[`${kind}:${ID}`, '{"risk": "low"}']]));
        assert.equal(data.a[0], `before ${form('{"risk": "low"}')} after`);
      });
    }

  it("of a first handoff become its task", async () => {
    const remainingSubtasks = [{ subtaskId: "task", description: "Check it" }];
    const message = { taskDescription: "INITIAL", remainingSubtasks, taskSummary: "Check" };
    const reader = { handoffs: { get: async () => ({ message }) } } as unknown as Client;
    assert.equal(await plain(turn("prompt"), reader), "Check it");
    assert.equal(taskOf({ ...message, remainingSubtasks: [] }), "Check");
    assert.equal(taskOf({ ...message, taskDescription: "Score it" }), "Score it");
  });

  it("are no forged ones, and no placeholder of another run", async () => {
    for (const text of [turn("result", "b".repeat(32)), turn("result").replace(ID, "nobody")]) {
      assert.equal(folded(text, runKey()), text);
      assert.deepEqual(turnsIn(text), []);
    }
    const other = `handoffd:${"f".repeat(16)}:result:${ID}:t`;
    assert.equal(await unfolded(other, "0".repeat(16), client), other);
    assert.equal(replaced(turn("result"), new Map()), turn("result"));
  });
});
