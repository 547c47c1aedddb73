import { utf8 } from "../bytes.js";
import type { Json } from "../canonical.js";
import { token } from "./engine.js";

/** Deepest nesting of arrays and objects, the top-level object counted. */
const MAX_DEPTH = 64;
/** Most members and elements of one document. */
const MAX_VALUES = 500_000;
const MAX_ECHO = 80;

/** Why a text is not a message, where (RFC 6901; empty where no pointer is known), and whether it is JSON at all. */
export interface Fault {
  readonly pointer: string;
  readonly message: string;
}

/**
 * Parses a message body as the broker does: duplicate names, half surrogate pairs, integers beyond
 * ±(2^53 − 1), nesting over 64 levels and more than 500 000 members and elements are faults.
 */
export function strictParse(
  body: string | Uint8Array,
): { value: { [name: string]: Json } } | { fault: Fault } {
  const fault = (message: string, pointer = ""): { fault: Fault } => ({ fault: { pointer, message } });
  let text: string;
  try {
    text =
      typeof body === "string"
        ? body
        : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return fault("The body is not valid UTF-8.");
  }
  if (!text.isWellFormed()) return fault("The body is not valid UTF-8.");
  const size = outline(text);
  if (size.tooDeep !== undefined) {
    const place = position(text, size.tooDeep);
    return fault(`The body nests more than ${MAX_DEPTH} arrays and objects at ${place}.`);
  }
  if (size.values > MAX_VALUES) return fault(`The body holds more than ${MAX_VALUES} members and elements.`);
  let value: Json;
  try {
    value = JSON.parse(text) as Json;
  } catch (error) {
    return fault(`The body is not valid JSON: ${error instanceof Error ? error.message : String(error)}.`);
  }
  const inside = inspect(text);
  if (inside.malformed) return { fault: inside.malformed };
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return fault(`The body must be a JSON object and is ${kindOf(value)}.`);
  return inside.unsafeInteger ? { fault: inside.unsafeInteger } : { value };
}

/** The kind of a JSON value, with its article. */
export function kindOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** Line and column, both from 1, in characters. */
function position(text: string, offset: number): string {
  const before = text.slice(0, offset);
  const lines = before.split("\n");
  return `line ${lines.length}, column ${[...(lines.at(-1) ?? "")].length + 1}`;
}

/** The same, with the column in bytes of UTF-8, as the broker's parser counts. */
function bytePosition(text: string, offset: number): string {
  const before = text.slice(0, offset);
  const line = before.slice(before.lastIndexOf("\n") + 1);
  return `line ${before.split("\n").length}, column ${utf8(line).length + 1}`;
}

/** The offset of the quote that closes the text opened at `open`. */
function closing(text: string, open: number): number {
  let at = open + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at;
}

function outline(text: string): { tooDeep?: number; values: number } {
  let depth = 0;
  let values = 0;
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (sign === '"') at = closing(text, at);
    else if (sign === "[" || sign === "{") {
      depth += 1;
      if (depth > MAX_DEPTH) return { tooDeep: at, values };
    } else if (sign === "]" || sign === "}") depth -= 1;
    else if (sign === "," || sign === ":") values += 1;
  }
  return { values };
}

interface Level {
  /** Names so far of an object; none for an array. */
  readonly names?: Set<string>;
  /** The present member or element. */
  place: string | number;
}

/** Looks through a text that is valid JSON for what `JSON.parse` lets pass. */
function inspect(text: string): { malformed?: Fault; unsafeInteger?: Fault } {
  const levels: Level[] = [];
  let expectsName = false;
  let unsafeInteger: Fault | undefined;
  const pointer = (): string => levels.map((level) => token(level.place)).join("");
  for (let at = 0; at < text.length; at++) {
    const sign = text[at] ?? "";
    const level = levels.at(-1);
    if (sign === '"') {
      const end = closing(text, at);
      const content = JSON.parse(text.slice(at, end + 1)) as string;
      if (!content.isWellFormed()) {
        const message = `The body is not valid JSON at ${position(text, end)}: lone leading surrogate in hex escape.`;
        return { malformed: { pointer: "", message } };
      }
      if (expectsName && level?.names) {
        if (level.names.has(content)) {
          level.place = content;
          const name = [...content].slice(0, MAX_ECHO).join("");
          const message = `The key \`${name}\` occurs twice in one object (${bytePosition(text, end)}).`;
          return { malformed: { pointer: pointer(), message } };
        }
        level.names.add(content);
        level.place = content;
        expectsName = false;
      }
      at = end;
    } else if (sign === "{") {
      levels.push({ names: new Set(), place: "" });
      expectsName = true;
    } else if (sign === "[") {
      levels.push({ place: 0 });
      expectsName = false;
    } else if (sign === "]" || sign === "}") {
      levels.pop();
      expectsName = false;
    } else if (sign === "," && level) {
      if (typeof level.place === "number") level.place += 1;
      else expectsName = true;
    } else if (sign === "-" || (sign >= "0" && sign <= "9")) {
      const literal = /^[-+.eE0-9]+/.exec(text.slice(at, at + 400))?.[0] ?? sign;
      if (!Number.isFinite(Number(literal))) {
        const message = `The body is not valid JSON at ${position(text, at + literal.length)}: number out of range.`;
        return { malformed: { pointer: "", message } };
      }
      if (!unsafeInteger && /^-?\d+$/.test(literal) && !Number.isSafeInteger(Number(literal))) {
        const message = `The integer at ${position(text, at)} lies beyond ±${Number.MAX_SAFE_INTEGER} (2^53 − 1) and cannot be kept exactly; send it as a string.`;
        unsafeInteger = { pointer: pointer(), message };
      }
      at += literal.length - 1;
    }
  }
  return unsafeInteger ? { unsafeInteger } : {};
}
