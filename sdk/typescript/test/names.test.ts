// The surface of the package against the table of names that both SDKs share (docs/sdk/names.md).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import * as handoffd from "../src/index.js";
import * as local from "../src/local.js";
import { ROOT } from "./broker.js";

const page = readFileSync(join(ROOT, "docs/sdk/names.md"), "utf8");
const [table = "", renamed = ""] = page.split("## Names until 0.3");
const named = table
  .split("\n")
  .filter((line) => line.startsWith("| "))
  .slice(1)
  .map((line) => line.split("|")[2]?.trim().replaceAll("`", "") ?? "")
  .filter((name) => name !== "");

describe("the table of names", () => {
  it("has every name of the package, and no other", () => {
    const values = new Set(Object.keys(handoffd));
    for (const kind of Object.values(handoffd.ERROR_CLASSES)) values.delete(kind?.name ?? "");
    // Names until 0.3 are in the table below.
    for (const old of ["ConnectionError", "signHandoffMessage", "measureHandoffMessage"]) {
      assert.ok(values.delete(old) && renamed.includes(`\`${old}\``), old);
    }
    assert.deepEqual(
      [...values].filter((name) => !named.includes(name)),
      [],
    );
    const source = readFileSync(join(ROOT, "sdk/typescript/src/index.ts"), "utf8");
    const missing = named.filter((name) => !values.has(name) && !(name in local));
    // What is no value is a type.
    const types = missing.filter((name) => !new RegExp(`\\b${name}\\b`).test(source));
    assert.deepEqual(
      types.filter((name) => !["Sent", "Failure"].includes(name)),
      [],
    );
    assert.equal(new Set(named).size, named.length);
  });

  it("keeps names until 0.3 as aliases", () => {
    assert.equal(handoffd.ConnectionError, handoffd.TransportError);
    assert.equal(handoffd.signHandoffMessage, handoffd.signMessage);
    assert.equal(handoffd.measureHandoffMessage, handoffd.measureMessage);
    const { agentId } = new handoffd.Client({ url: "http://127.0.0.1:1", key: "k", agentId: "a" });
    assert.equal(agentId, "a");
  });
});
