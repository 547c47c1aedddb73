// Writes src/generated/ from the broker's own documents: docs/openapi.json, schemas/handoff/ and the
// workspace's version. `--check` writes nothing and fails where a file differs.
import { readFile, writeFile } from "node:fs/promises";
import openapiTypescript, { astToString } from "openapi-typescript";

const root = new URL("../../../", import.meta.url);
const target = new URL("../src/generated/", import.meta.url);
const HEADER = "// Made by scripts/generate.mjs; changes by hand are lost.\n\n";

const read = (path) => readFile(new URL(path, root), "utf8");
const openapi = JSON.parse(await read("docs/openapi.json"));

/** The keywords that src/validate/engine.ts evaluates. Annotations do not count. */
const KEYWORDS = new Set([
  ...[
    "type",
    "required",
    "properties",
    "additionalProperties",
    "pattern",
    "format",
    "minLength",
    "maxLength",
  ],
  ...[
    "minimum",
    "maximum",
    "items",
    "maxItems",
    "uniqueItems",
    "enum",
    "anyOf",
    "$ref",
    "minProperties",
    "$defs",
  ],
]);
const ANNOTATIONS = new Set(["$schema", "$id", "title", "description", "x-droppable", "x-limit"]);

/** Checks that the engine knows every keyword, and drops the words that the engine does not need. */
function compact(schema, path) {
  const kept = {};
  for (const [name, value] of Object.entries(schema)) {
    if (name === "x-limit") kept[name] = value;
    else if (ANNOTATIONS.has(name)) continue;
    else if (!KEYWORDS.has(name)) throw new Error(`${path}: the engine does not know \`${name}\``);
    else if (name === "properties" || name === "$defs")
      kept[name] = Object.fromEntries(
        Object.entries(value).map(([key, each]) => [key, compact(each, `${path}/${name}/${key}`)]),
      );
    else if (name === "items") kept[name] = compact(value, `${path}/items`);
    else if (name === "anyOf") kept[name] = value.map((each, at) => compact(each, `${path}/anyOf/${at}`));
    else kept[name] = value;
  }
  return kept;
}

async function schemas() {
  const documents = {};
  for (const version of ["2.0", "2.1", "2.2"]) {
    const text = await read(`schemas/handoff/${version}.json`);
    // A limit with a fraction keeps its spelling, which the broker's sentences repeat.
    const spelled = text.replace(
      /"(maximum|minimum)": (-?\d+\.\d+)/g,
      (_, name, limit) => `"${name}": ${limit}, "x-limit": {"${name}": "${limit}"}`,
    );
    const merged = spelled.replace(
      /"x-limit": \{([^}]*)\},(\s*"(?:maximum|minimum)": -?\d+\.\d+), "x-limit": \{([^}]*)\}/g,
      (_, one, between, other) => `"x-limit": {${one}, ${other}},${between}`,
    );
    documents[version] = compact(JSON.parse(merged), version);
  }
  return `${HEADER}import type { Schema } from "../validate/engine.js";

/** The message schemas by minor version, oldest first; annotations are left out. */
export const SCHEMAS: Record<string, Schema> = ${JSON.stringify(documents, null, 1)};
`;
}

function operationTable() {
  const rows = [];
  for (const [path, item] of Object.entries(openapi.paths)) {
    for (const method of ["get", "put", "post", "patch", "delete"]) {
      const operation = item[method];
      if (operation) rows.push(`  ${operation.operationId}: ["${method.toUpperCase()}", "${path}"],`);
    }
  }
  const codes = openapi.components.schemas.ErrorCode;
  const listed = codes.enum ?? codes.anyOf?.flatMap((each) => each.enum ?? []);
  if (!listed?.length) throw new Error("ErrorCode has no list of codes");
  return `${HEADER}/** Method and path of each operation, by its id. */
export const OPERATIONS = {
${rows.sort().join("\n")}
} as const;

/** The codes of problems, as the broker's document lists them. */
export const ERROR_CODES = ${JSON.stringify(listed, null, 2)} as const;
`;
}

async function version() {
  const found = /^version = "([^"]+)"/m.exec(await read("Cargo.toml"));
  if (!found) throw new Error("Cargo.toml names no version");
  const manifest = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8"));
  if (manifest.version !== found[1])
    throw new Error(`package.json says ${manifest.version}; the broker's version is ${found[1]}`);
  return `${HEADER}/** The version of this package, and of the broker that it was made with. */
export const VERSION = "${found[1]}";
`;
}

const files = {
  // An open enum keeps its known values in editors: `string` alone would swallow them.
  "openapi.ts":
    HEADER +
    astToString(await openapiTypescript(openapi, { defaultNonNullable: false }))
      .replace(/\) \| string;/g, ") | (string & {});")
      .replace("export interface components {", "/** The parts of the API's document. */\n$&")
      .replace("export interface operations {", "/** The operations of the API's document, by id. */\n$&"),
  "operations.ts": operationTable(),
  "schemas.ts": await schemas(),
  "version.ts": await version(),
};

let drift = 0;
for (const [name, text] of Object.entries(files)) {
  const file = new URL(name, target);
  if (process.argv.includes("--check")) {
    const present = await readFile(file, "utf8").catch(() => "");
    if (present === text) continue;
    drift += 1;
    console.error(
      `src/generated/${name} differs from what the broker's documents give; run: npm run generate`,
    );
  } else await writeFile(file, text);
}
process.exitCode = drift ? 1 : 0;
