import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Exchanges } from "../src/exchanges.js";
import { buildHandoffMessage, type HistoryTurn } from "../src/index.js";
import { ROOT } from "./broker.js";

interface Case {
  readonly name: string;
  readonly turns: readonly HistoryTurn[];
  readonly cuts: readonly number[];
}

const cases = JSON.parse(readFileSync(join(ROOT, "tests/vectors/turn_cuts.json"), "utf8")) as Case[];

describe("where a conversation is cut (finding D2 of 0.3.0)", () => {
  it("is where the broker cuts it", () => {
    assert.ok(cases.length >= 10);
    for (const { name, turns, cuts } of cases) {
      const exchanges = new Exchanges(turns);
      const found = Array.from({ length: turns.length + 1 }, (_, place) => exchanges.cut(place));
      assert.deepEqual(found, cuts, name);
    }
  });

  it("leaves no tool's result without its call in a message", async () => {
    for (const { name, turns } of cases)
      for (let maxTurns = 1; maxTurns <= turns.length; maxTurns += 1) {
        const message = await buildHandoffMessage({ agentId: "a", task: "t", history: turns }, "b", [], {
          maxTurns,
        });
        const kept = message.conversationHistoryVerbatim;
        const first = turns.length - kept.length;
        assert.ok(new Exchanges(turns).isWholeFrom(first), `${name}, ${maxTurns} turns`);
        assert.deepEqual(kept, turns.slice(first));
      }
  });
});
