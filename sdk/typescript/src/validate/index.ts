import { equalBytes, fromHex, hmacSha256, utf8 } from "../bytes.js";
import { canonicalize, type Json } from "../canonical.js";
import type { ErrorCode, Failure } from "../errors.js";
import { SCHEMAS } from "../generated/schemas.js";
import { at, errors, isObject, member, type Schema, type SchemaError, token } from "./engine.js";
import { parseDollars, showDollars, toNanos } from "./money.js";
import { isRange, isVersion, trim } from "./semver.js";
import { MAX_ECHO, MAX_NAME, nearest, sentence, shown } from "./sentences.js";
import { strictParse } from "./strict-json.js";

/**
 * The answer of the offline part of the gate. `details` joins the sentences of `failures`. `checked` names the stages that were run to their
 * end, `unchecked` those that the gate has beside them: a valid message may still be refused by those.
 */
export type ValidationResult =
  | {
      readonly valid: true;
      readonly checked: readonly CheckedStage[];
      readonly unchecked: readonly UncheckedStage[];
    }
  | {
      readonly valid: false;
      /** The primary reason, in the gate's order of precedence. */
      readonly reason: ErrorCode;
      readonly details: string;
      readonly failures: readonly Failure[];
      readonly checked: readonly CheckedStage[];
      readonly unchecked: readonly UncheckedStage[];
    };

/**
 * Stages that a message alone cannot decide: they ask for the broker's agents, contracts and tasks. `safety`
 * reads the message alone too, and is the broker's: `validateWithBinary` of `handoffd/local` runs it offline.
 */
export type UncheckedStage =
  | "signature"
  | "identity"
  | "allowlist"
  | "route"
  | "contract"
  | "lineage"
  | "loop"
  | "safety"
  | "credentials";

/** Stages that were run: what a message alone decides, a signature under a secret that was given, and the binary's safety rules. */
export type CheckedStage = "json" | "signature" | "schema" | "completeness" | "budget" | "safety";

const CHECKED: readonly CheckedStage[] = ["json", "schema", "completeness", "budget"];

const UNCHECKED: readonly UncheckedStage[] = [
  ...(["signature", "identity", "allowlist", "route", "contract", "lineage", "loop"] as const),
  ...(["safety", "credentials"] as const),
];

/** The receiver's requirements, if the caller knows them. */
export interface ValidationOptions {
  /** Members that `currentState` must have (`requiredState` of the receiving agent); dots go deeper. */
  readonly requiredState?: readonly string[];
  /** Largest checkpoint in bytes of canonical JSON (`recovery.max_checkpoint_bytes`). */
  readonly maxCheckpointBytes?: number;
}

/** At most this many failures are reported for one message. */
const MAX_FAILURES = 100;
/** At most this many texts with a NUL are named. */
const MAX_NULS = 32;
const NUL = "The text has the character U+0000, which no database keeps: leave it out.";
const VERSIONS = Object.keys(SCHEMAS);
/** A field of a message that marks a handoff before any work was done. */
export const INITIAL = "INITIAL";

/** Reasons in the order in which the gate names the first. */
const PRECEDENCE: readonly ErrorCode[] = [
  "SIGNATURE_INVALID",
  "SCHEMA_INVALID",
  "SAFETY_VIOLATION",
  "CREDENTIAL_FOUND",
  "BUDGET_EXHAUSTED",
  "INCOMPLETE_CONTEXT",
];

/**
 * Runs the stages of the gate that need no broker: strict JSON, a signature's form, schema, completeness and budget.
 * The failures have the pointers, codes and sentences of the broker's own.
 *
 * @param message The message as an object, or its JSON text or UTF-8 bytes.
 */
export function validateHandoffMessage(message: unknown, options: ValidationOptions = {}): ValidationResult {
  const { failures, checked } = judge(bodyOf(message), options);
  return toResult(failures, UNCHECKED, checked);
}

/**
 * As {@link validateHandoffMessage}, and checks a `signature` that is there under the sender's signing secret (`hss_…`).
 * Whether one must be there, the broker says: `unchecked` names the stage for a message without one.
 */
export async function validateSignedHandoffMessage(
  message: unknown,
  signingSecret: string,
  options: ValidationOptions = {},
): Promise<ValidationResult> {
  const body = bodyOf(message);
  const result = validateHandoffMessage(body, options);
  const parsed = strictParse(body);
  if ("fault" in parsed || signatureFailures(parsed.value).length > 0) return result;
  const { signature, ...unsigned } = parsed.value;
  if (typeof signature !== "string") return result;
  const tag = await hmacSha256(utf8(signingSecret), utf8(canonicalize(unsigned)));
  const given = fromHex(signature.slice("hmac-sha256:".length));
  const unchecked = result.unchecked.filter((stage) => stage !== "signature");
  const checked: CheckedStage[] = ["json", "signature"];
  if (given !== undefined && equalBytes(given, tag))
    return { ...result, checked: [...checked, ...result.checked.slice(1)], unchecked };
  return toResult([failure("signature", "SIGNATURE_INVALID", "/signature", MISFIT)], unchecked, checked);
}

const MISFIT =
  "The signature does not fit the message: it was changed after signing, signed with another secret, or not signed over its RFC 8785 form without `signature`.";

function bodyOf(message: unknown): string | Uint8Array {
  if (typeof message === "string" || message instanceof Uint8Array) return message;
  return JSON.stringify(message) ?? "null";
}

/** The result of a list of failures; the primary reason is the first by precedence. */
export function toResult(
  failures: readonly Failure[],
  unchecked: readonly UncheckedStage[] = UNCHECKED,
  checked: readonly CheckedStage[] = CHECKED,
): ValidationResult {
  const codes = failures.map((failure) => failure.code as ErrorCode);
  const reason = PRECEDENCE.find((code) => codes.includes(code)) ?? codes[0];
  if (reason === undefined) return { valid: true, checked, unchecked };
  const details = failures.map((failure) => `${failure.pointer || "message"}: ${failure.message}`).join(" ");
  return { valid: false, reason, details, failures, checked, unchecked };
}

function judge(
  body: string | Uint8Array,
  options: ValidationOptions,
): { readonly failures: Failure[]; readonly checked: readonly CheckedStage[] } {
  const parsed = strictParse(body);
  if ("fault" in parsed) {
    const { pointer, message } = parsed.fault;
    return { failures: [failure("schema", "SCHEMA_INVALID", pointer, message)], checked: ["json"] };
  }
  const message = parsed.value;
  const unsigned = signatureFailures(message);
  if (unsigned.length > 0) return { failures: unsigned, checked: ["json"] };
  const wrong = [...nulFailures(message), ...schemaFailures(message)];
  if (wrong.length > 0) return { failures: wrong, checked: ["json", "schema"] };
  const failures = [
    ...checkpointFailures(message, options.maxCheckpointBytes),
    ...openingFailures(message),
    ...completenessFailures(message, options.requiredState ?? []),
    ...budgetFailures(message),
  ];
  return { failures, checked: CHECKED };
}

function failure(stage: Failure["stage"], code: ErrorCode, pointer: string, message: string): Failure {
  return { stage, code, pointer, message };
}

type Message = { [name: string]: Json };

/** The faults in the form of a present signature. Only the secret's owner can tell whether it is the sender's. */
function signatureFailures(message: Message): Failure[] {
  const given = member(message, "signature");
  if (given === undefined || (typeof given === "string" && /^hmac-sha256:[0-9a-fA-F]{64}$/.test(given)))
    return [];
  const why = "`signature` must be `hmac-sha256:` and 64 hexadecimal digits.";
  return [failure("signature", "SIGNATURE_INVALID", "/signature", why)];
}

/** Failures so far, each pair of pointer and sentence once. */
class Found {
  readonly failures: Failure[] = [];
  readonly #seen = new Set<string>();

  add(pointer: string, message: string): void {
    const key = JSON.stringify([pointer, message]);
    if (this.failures.length >= MAX_FAILURES || this.#seen.has(key)) return;
    this.#seen.add(key);
    this.failures.push(failure("schema", "SCHEMA_INVALID", pointer, message));
  }
}

/** Major and minor of `2.1` or `2.1.7`; digits without leading zeros. */
function parseVersion(text: string): [number, number] | undefined {
  const parts = text.split(".");
  if (parts.length < 2 || parts.length > 3) return undefined;
  if (!parts.every((part) => /^(0|[1-9]\d*)$/.test(part) && Number(part) <= 4_294_967_295)) return undefined;
  return [Number(parts[0]), Number(parts[1])];
}

function names(schema: Schema): string[] {
  return Object.keys(schema.properties ?? {});
}

function schemaFailures(message: Message): Failure[] {
  const found = new Found();
  const newest = VERSIONS.at(-1) ?? "";
  const newestSchema = SCHEMAS[newest] ?? {};
  const open: Schema = {
    ...newestSchema,
    additionalProperties: true,
    properties: { ...newestSchema.properties, schemaVersion: { type: "string" } },
  };
  let [version, schema, minor] = [newest, open, 0];
  const claimed = member(message, "schemaVersion");
  if (claimed !== undefined) {
    const parsed = typeof claimed === "string" ? parseVersion(claimed) : undefined;
    if (!parsed) {
      found.add("/schemaVersion", `\`schemaVersion\` must be a string like \`${newest}\`${shown(claimed)}.`);
    } else if (parsed[0] !== 2) {
      const takes = VERSIONS.join(" and ");
      found.add(
        "/schemaVersion",
        `Schema major version ${parsed[0]} is not supported; this broker takes ${takes}.`,
      );
      return found.failures;
    } else {
      minor = parsed[1];
      const known = SCHEMAS[`2.${minor}`];
      if (known) [version, schema] = [`2.${minor}`, known];
    }
  }
  const versionSaid = found.failures.length > 0;
  for (const error of errors(sampled(message, schema, found), schema)) {
    if (found.failures.length >= MAX_FAILURES) break;
    if (!(versionSaid && error.pointer === "/schemaVersion")) explain(error, version, schema, found);
  }
  semantics(message, found);
  if (minor >= FAN_OUT_MINOR) receivers(message, found);
  return found.failures;
}

/** The places of texts with a NUL. A member whose name has one is named by its object. */
function* nuls(value: Json, pointer: string): Generator<string> {
  if (typeof value === "string") {
    if (value.includes("\0")) yield pointer;
  } else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* nuls(item, `${pointer}/${index}`);
  } else if (isObject(value)) {
    const members = Object.entries(value);
    if (members.some(([name]) => name.includes("\0"))) yield pointer;
    for (const [name, item] of members) if (!name.includes("\0")) yield* nuls(item, pointer + token(name));
  }
}

function nulFailures(message: Message): Failure[] {
  const failures: Failure[] = [];
  for (const pointer of nuls(message, "")) {
    if (failures.length === MAX_NULS) break;
    failures.push(failure("schema", "SCHEMA_INVALID", pointer, NUL));
  }
  return failures;
}

function explain(error: SchemaError, version: string, schema: Schema, found: Found): void {
  // The pattern beside it says the same, and which versions there are.
  if (error.keyword === "format" && error.schema.format === "uuid") return;
  const name = error.name ?? "";
  if (error.keyword === "required") {
    found.add(error.pointer + token(name), `The required field \`${name}\` is missing.`);
  } else if (error.keyword === "additionalProperties" && error.pointer === "") {
    found.add(utf8(name).length <= MAX_NAME ? token(name) : "", unknownField(name, version, schema));
  } else {
    found.add(error.pointer, sentence(error));
  }
}

function unknownField(name: string, version: string, schema: Schema): string {
  const echo = [...name].slice(0, MAX_ECHO).join("");
  const other = VERSIONS.find((each) => names(SCHEMAS[each] ?? {}).includes(name));
  if (other)
    return `\`${echo}\` is a field of schema ${other}, not of ${version}; set \`schemaVersion\` to \`${other}\` to send it.`;
  const near = nearest(name, names(schema));
  return near
    ? `\`${echo}\` is not a field of schema ${version}; did you mean \`${near}\`?`
    : `\`${echo}\` is not a field of schema ${version}.`;
}

/** `maxItems` of every long list, and how much of a longer one is looked at. */
const [LONGEST, SAMPLE] = [10_000, 100];

/** The message with lists over the limit cut, so that ten megabytes of bad items are not as many errors. */
function sampled(message: Message, schema: Schema, found: Found): Message {
  const copy = { ...message };
  const cut = (holder: Message, name: string, pointer: string): void => {
    const items = member(holder, name);
    if (!Array.isArray(items) || items.length <= LONGEST) return;
    holder[name] = items.slice(0, SAMPLE);
    found.add(pointer, `Must have at most ${LONGEST} items.`);
  };
  for (const name of names(schema)) cut(copy, name, token(name));
  const personal = member(copy, "personalDataPayload");
  if (isObject(personal)) {
    const payload = { ...personal };
    for (const name of ["subjects", "pointers"]) cut(payload, name, `/personalDataPayload/${name}`);
    copy.personalDataPayload = payload;
  }
  return copy;
}

/** Rules that a schema cannot express. */
function semantics(message: Message, found: Found): void {
  const version = at(message, "/fromAgent/agentVersion");
  if (typeof version === "string" && version !== "" && !isVersion(version))
    found.add("/fromAgent/agentVersion", `Must be a semantic version like \`2.1.0\`${shown(version)}.`);
  personalMarks(message, found);
  const seen = new Set<string>();
  list(message, "/completedSubtasks").forEach((subtask, index) => {
    const id = at(subtask, "/subtaskId");
    if (typeof id !== "string") return;
    if (seen.has(id))
      found.add(
        `/completedSubtasks/${index}/subtaskId`,
        "Each completed subtask is named once; this one was named before.",
      );
    seen.add(id);
  });
  const range = (pointer: string, target: Json | undefined): void => {
    const text = at(target, "/agentVersion");
    if (typeof text === "string" && text !== "" && !isRange(text))
      found.add(
        pointer,
        `Must be a range of semantic versions like \`>=1.5.0\` or \`^1.5 || ^2.0\`${shown(text)}.`,
      );
  };
  range("/toAgent/agentVersion", at(message, "/toAgent"));
  list(message, "/receiverList").forEach((receiver, index) => {
    range(`/receiverList/${index}/agentVersion`, receiver);
  });
}

/** From this minor on the broker sends to each receiver of `receiverList`. */
const FAN_OUT_MINOR = 2;
const MAX_RECEIVERS = 100;
const ADDRESSES = ["agentId", "agentType", "capability"];
const RECEIVER = ["agentId", "agentType", "agentVersion", "capability"];

/** A receiver in the form of `toAgent`. */
function address(entry: Json | undefined): Message {
  if (typeof entry === "string") return { agentId: entry };
  return isObject(entry) ? entry : {};
}

/** Rules for a message to several receivers that the schema document cannot express (specification §10.4). */
function receivers(message: Message, found: Found): void {
  const entries = member(message, "receiverList");
  if (!Array.isArray(entries)) {
    for (const name of ["join", "onReject"])
      if (Object.hasOwn(message, name)) found.add(`/${name}`, "Takes effect with `receiverList` only.");
    return;
  }
  const count = entries.length;
  if (count === 0 || count > MAX_RECEIVERS)
    found.add("/receiverList", `A list has 1 to ${MAX_RECEIVERS} receivers; this one has ${count}.`);
  const before: string[] = [];
  entries.slice(0, MAX_RECEIVERS).forEach((entry, index) => {
    const [place, receiver] = [`/receiverList/${index}`, address(entry)];
    for (const name of Object.keys(receiver).sort())
      if (!RECEIVER.includes(name))
        found.add(place + token(name), `Unknown member: a receiver has ${RECEIVER.join(", ")}.`);
    if (!ADDRESSES.some((name) => Object.hasOwn(receiver, name)))
      found.add(place, `A receiver has one of ${ADDRESSES.join(", ")}.`);
    const text = canonicalize(receiver);
    const first = before.indexOf(text);
    if (first >= 0) found.add(place, `The same receiver as \`/receiverList/${first}\`.`);
    before.push(text);
  });
  if (before.length > 0 && before[0] !== canonicalize(address(member(message, "toAgent"))))
    found.add("/toAgent", "With a `receiverList`, `toAgent` is the first of its receivers.");
  const join = member(message, "join");
  const quorum = typeof join === "string" ? Number(/^quorum:\+?(\d+)$/.exec(join)?.[1] ?? 0) : 0;
  if (quorum > count && quorum <= 4_294_967_295)
    found.add("/join", `${quorum} of ${count} receivers cannot be needed.`);
  if (list(message, "/preferredAgents").length > 0)
    found.add(
      "/preferredAgents",
      "A list names its receivers: `preferredAgents` cannot stand in for one of them.",
    );
}

function list(message: Message, pointer: string): Json[] {
  const found = at(message, pointer);
  return Array.isArray(found) ? found : [];
}

/** Members of a message that hold content, in which values may be marked as personal. */
const CONTENT_MEMBERS: readonly string[] = [
  ...[
    "taskDescription",
    "completedSubtasks",
    "remainingSubtasks",
    "currentState",
    "relevantContext",
    "constraints",
  ],
  ...[
    "conversationHistorySummary",
    "conversationHistoryVerbatim",
    "toolCallHistory",
    "taskSummary",
    "provenance",
  ],
  ...["reason", "userId", "toolState", "metadata", "extensions", "checkpoint"],
];

function personalMarks(message: Message, found: Found): void {
  const marked: { path: string; at: string }[] = [];
  list(message, "/personalDataPayload/pointers").forEach((mark, index) => {
    const pointer = at(mark, "/pointer");
    if (typeof pointer !== "string" || typeof at(mark, "/subjectId") !== "string") return;
    const where = `/personalDataPayload/pointers/${index}/pointer`;
    const top = pointer.startsWith("/") ? pointer.split("/")[1] : undefined;
    if (top === undefined || !CONTENT_MEMBERS.includes(top))
      found.add(where, "Must point into a member that holds content, as `/currentState/…`.");
    else if (pointer === "/checkpoint") found.add(where, "Must point below `/checkpoint`.");
    else if (at(message, pointer) === undefined) found.add(where, "Must point to a value of this message.");
    else marked.push({ path: `${pointer}/`, at: where });
  });
  marked.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : a.at < b.at ? -1 : 1));
  marked.slice(1).forEach((mark, index) => {
    if (mark.path.startsWith(marked[index]?.path ?? "/"))
      found.add(mark.at, "Must not be marked twice, nor below a marked value.");
  });
}

function checkpointFailures(message: Message, most: number | undefined): Failure[] {
  const checkpoint = member(message, "checkpoint");
  if (most === undefined || checkpoint === undefined) return [];
  const size = utf8(JSON.stringify(checkpoint)).length;
  if (size <= most) return [];
  return [
    failure(
      "schema",
      "SCHEMA_INVALID",
      "/checkpoint",
      `the checkpoint has ${size} bytes; ${most} are allowed`,
    ),
  ];
}

/** Whether the message opens a stream: chunks follow (specification §10.5). */
function opens(message: Message): boolean {
  return at(message, "/stream/open") === true;
}

/** Members that exclude a stream. */
function openingFailures(message: Message): Failure[] {
  if (!opens(message)) return [];
  const cases: [boolean, string, string][] = [
    [at(message, "/stream/seq") !== undefined, "/stream/seq", "the broker counts the chunks of a stream"],
    [list(message, "/receiverList").length > 0, "/receiverList", "a stream goes to one receiver"],
    [
      Object.hasOwn(message, "personalDataPayload"),
      "/personalDataPayload",
      "a stream carries no personal data: submit the message whole",
    ],
  ];
  return cases
    .filter(([refused]) => refused)
    .map(([, pointer, why]) => failure("schema", "SCHEMA_INVALID", pointer, why));
}

function completenessFailures(message: Message, requiredState: readonly string[]): Failure[] {
  const failures: Failure[] = [];
  const incomplete = (pointer: string, text: string): void => {
    failures.push(failure("completeness", "INCOMPLETE_CONTEXT", pointer, text));
  };
  // Completed work may follow in chunks.
  const begins = message.taskDescription === INITIAL || opens(message);
  if (!begins && list(message, "/completedSubtasks").length === 0)
    incomplete(
      "/completedSubtasks",
      `No completed subtask, though \`taskDescription\` is not \`${INITIAL}\`: name what was done, or mark the handoff as initial.`,
    );
  for (const name of requiredState) {
    const path = name.split(".").map(token).join("");
    const present = [at(message, `/currentState${token(name)}`), at(message, `/currentState${path}`)];
    if (present.every((value) => value === undefined || value === null))
      incomplete(
        `/currentState${path}`,
        `The receiver requires \`${name}\` in \`currentState\`, and it is missing or null.`,
      );
  }
  return failures;
}

const NO_AMOUNT =
  "an amount is decimal US dollars from 0 to 1000000000 with at most nine decimals, such as 12.50";

function budgetFailures(message: Message): Failure[] {
  const failures: Failure[] = [];
  const pointer = "/costTracking/costBudgetRemainingUSD";
  const remaining = at(message, pointer);
  if (typeof remaining === "number" && toNanos(remaining) <= 0n) {
    const amount = showDollars(toNanos(remaining));
    const text = `The remaining budget is ${amount} USD; nothing may be started on it.`;
    failures.push(failure("budget", "BUDGET_EXHAUSTED", pointer, text));
  }
  let declared = 0;
  list(message, "/constraints").forEach((constraint, index) => {
    const colon = typeof constraint === "string" ? constraint.indexOf(":") : -1;
    if (typeof constraint !== "string" || colon < 0 || trim(constraint.slice(0, colon)) !== "budgetUSD")
      return;
    const readable = parseDollars(trim(constraint.slice(colon + 1))) !== undefined;
    if (!readable) failures.push(failure("budget", "SCHEMA_INVALID", `/constraints/${index}`, NO_AMOUNT));
    else if (declared > 0)
      failures.push(
        failure("budget", "SCHEMA_INVALID", `/constraints/${index}`, "the task's budget is named twice"),
      );
    declared += 1;
  });
  return failures;
}
