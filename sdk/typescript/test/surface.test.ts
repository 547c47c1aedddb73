import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { ERROR_CODES, OPERATIONS } from "../src/generated/operations.js";
import * as sdk from "../src/index.js";
import { ROOT } from "./broker.js";

const home = join(ROOT, "sdk/typescript");

describe("the surface", () => {
  it("has a method for each operation of the broker's API, once", () => {
    const folder = join(home, "src/services");
    const source = readdirSync(folder)
      .map((name) => readFileSync(join(folder, name), "utf8"))
      .join("\n");
    const called = [...source.matchAll(/transport\s*\.(?:call|send|stream)\(\s*"(\w+)"/g)].map(
      (match) => match[1] ?? "",
    );
    const operations = new Set(called);
    // Traces and prompts have two formats each, and a wait asks for the handoff.
    const twice = called.filter((id, index) => called.indexOf(id) !== index).sort();
    assert.deepEqual(twice, ["getHandoff", "getPrompt", "getQuestionPrompt", "getResultPrompt", "getTrace"]);
    assert.deepEqual([...operations].sort(), Object.keys(OPERATIONS).sort());
  });

  it("has an error class for each code, and a page of the broker for each class", () => {
    assert.deepEqual(Object.keys(sdk.ERROR_CLASSES).sort(), [...ERROR_CODES].sort());
    for (const code of ERROR_CODES) readFileSync(join(ROOT, "docs/errors", `${code}.md`));
  });

  it("is made from the broker's present documents and has its version", () => {
    const check = spawnSync(process.execPath, ["scripts/generate.mjs", "--check"], {
      cwd: home,
      encoding: "utf8",
    });
    assert.equal(check.status, 0, check.stderr);
    const cargo = readFileSync(join(ROOT, "Cargo.toml"), "utf8");
    assert.equal(sdk.VERSION, /^version = "([^"]+)"/m.exec(cargo)?.[1]);
  });
});
