// The sentences of the schema stage, as the broker says them. A value is repeated only when it is short, and
// never from below `/personalDataPayload` or `/checkpoint`.

import { utf8 } from "../bytes.js";
import type { Json } from "../canonical.js";
import type { SchemaError } from "./engine.js";
import { kindOf } from "./strict-json.js";

export const MAX_ECHO = 80;
/** Longest unknown name, in bytes, that a pointer has or that is compared with known names. */
export const MAX_NAME = 256;
const NEAR = 0.7;

/** JSON Schema's types in the order in which the broker names several. */
const TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"];

/** `, and is …` for a short value, nothing for a long or compound one. */
export function shown(value: Json): string {
  if (typeof value === "string") return [...value].length <= MAX_ECHO ? `, and is \`${value}\`` : "";
  if (typeof value === "number") return `, and is ${showNumber(value)}`;
  return value === null || typeof value === "boolean" ? `, and is ${value}` : "";
}

/** A number as the broker writes it: the shortest digits, with an exponent below 1e-5. */
function showNumber(value: number): string {
  const text = value !== 0 && Math.abs(value) < 1e-5 ? value.toExponential() : String(value);
  return text.replace("e+", "e");
}

function mayEcho(pointer: string): boolean {
  return !/^\/(personalDataPayload|checkpoint)(\/|$)/.test(pointer);
}

function typeName(name: string): string {
  return name === "null" ? name : `${/^[aio]/.test(name) ? "an" : "a"} ${name}`;
}

/** The fault, for the author of the sender. */
export function sentence({ keyword, schema, pointer, value }: SchemaError): string {
  const is = mayEcho(pointer) ? shown(value) : "";
  const limit = (name: "minimum" | "maximum"): string => schema["x-limit"]?.[name] ?? String(schema[name]);
  switch (keyword) {
    case "type": {
      const types = TYPES.filter((type) => type === schema.type || schema.type?.includes(type));
      return `Must be ${types.map(typeName).join(" or ")}, and is ${kindOf(value)}.`;
    }
    case "enum":
      return `Must be one of ${(schema.enum ?? []).map((option) => `\`${option}\``).join(", ")}${is}.`;
    case "minimum":
      return `Must be at least ${limit("minimum")}${is}.`;
    case "maximum":
      return `Must be at most ${limit("maximum")}${is}.`;
    case "minLength":
      return schema.minLength === 1
        ? "Must not be empty."
        : `Must have at least ${schema.minLength} characters.`;
    case "maxLength":
      return `Must have at most ${schema.maxLength} characters.`;
    case "maxItems":
      return `Must have at most ${schema.maxItems} items.`;
    case "minProperties":
      return "Must not be an empty object.";
    case "format":
      return schema.format === "uuid"
        ? `Must be a version 4 UUID with hyphens${is}.`
        : `Must be a date and time after RFC 3339, like \`2026-06-12T08:00:00Z\`${is}.`;
    case "pattern":
      return patternSentence(schema.pattern ?? "", pointer, is);
    case "anyOf":
      return pointer === "/toAgent"
        ? "Must name a target: at least one of `agentType`, `agentId` and `capability`."
        : "Does not satisfy the schema's `anyOf`.";
    case "additionalProperties":
      return "Has a member that the schema does not allow here.";
    default:
      return `Does not satisfy the schema's \`${keyword}\`.`;
  }
}

function patternSentence(pattern: string, pointer: string, is: string): string {
  if (pattern.includes("-4[0-9a-fA-F]")) return `Must be a version 4 UUID with hyphens${is}.`;
  if (pattern.includes("-[1-8][0-9a-fA-F]")) return `Must be a UUID with hyphens, of version 1 to 8${is}.`;
  if (pointer === "/schemaVersion") return `Must be a version like \`2.1\` or \`2.1.0\`${is}.`;
  if (pointer === "/traceparent")
    return `Must be a W3C traceparent, \`00-<32 hex>-<16 hex>-<2 hex>\` in lower case, or one of a later version${is}.`;
  if (pattern.startsWith("^sha256:")) return `Must be \`sha256:\` and at most 64 hexadecimal digits${is}.`;
  if (pointer === "/signature") return "Must be `hmac-sha256:` and 64 hexadecimal digits.";
  if (pointer.startsWith("/constraints/")) return `Must have the form \`key:value\`${is}.`;
  if (pattern.startsWith("^[A-Za-z0-9]["))
    return `Must be an agent id: a letter or digit, then at most 127 more of letters, digits and \`._:@-\`${is}.`;
  return `Must match the pattern \`${pattern}\`${is}.`;
}

/** The known name most like an unknown one, if it is alike enough. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  if (utf8(name).length > MAX_NAME) return undefined;
  const plain = (text: string): string => text.replace(/[_\- ]/g, "").toLowerCase();
  let best: string | undefined;
  let most = NEAR;
  for (const candidate of known) {
    const score = likeness([...plain(name)], [...plain(candidate)]);
    if (score >= most) [best, most] = [candidate, score];
  }
  return best;
}

/** 1 minus the Damerau-Levenshtein distance over the longer length. */
function likeness(a: readonly string[], b: readonly string[]): number {
  const longest = Math.max(a.length, b.length);
  return longest === 0 ? 1 : 1 - distance(a, b) / longest;
}

/** Unrestricted Damerau-Levenshtein distance (Lowrance and Wagner, 1975). */
function distance(a: readonly string[], b: readonly string[]): number {
  const far = a.length + b.length;
  const rows = Array.from({ length: a.length + 2 }, () => new Array<number>(b.length + 2).fill(far));
  const cell = (row: number, column: number): number => rows[row]?.[column] ?? far;
  const put = (row: number, column: number, value: number): void => {
    const cells = rows[row];
    if (cells) cells[column] = value;
  };
  for (let row = 0; row <= a.length; row++) put(row + 1, 1, row);
  for (let column = 0; column <= b.length; column++) put(1, column + 1, column);
  const lastRow = new Map<string, number>();
  for (let row = 1; row <= a.length; row++) {
    let lastColumn = 0;
    for (let column = 1; column <= b.length; column++) {
      const from = lastRow.get(b[column - 1] ?? "") ?? 0;
      const same = a[row - 1] === b[column - 1];
      const changed = cell(row, column) + (same ? 0 : 1);
      const swapped = cell(from, lastColumn) + (row - from - 1) + 1 + (column - lastColumn - 1);
      put(
        row + 1,
        column + 1,
        Math.min(changed, cell(row + 1, column) + 1, cell(row, column + 1) + 1, swapped),
      );
      if (same) lastColumn = column;
    }
    lastRow.set(a[row - 1] ?? "", row);
  }
  return cell(a.length + 1, b.length + 1);
}
