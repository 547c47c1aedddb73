// Guarded turns inside what a framework keeps.
//
// The broker renders a handoff's context, and a result, as a guarded turn for a model: text between marks that content cannot
// forge (docs/prompt.md). It refuses those marks in a message, because there they can only be forgeries. So a guarded turn becomes
// the data that it guards where it is sent on, and a placeholder where it is kept; a process that resumes reads it again.

import { jsonOf } from "./canonical.js";
import type { Client } from "./client.js";
import { NotFoundError } from "./errors.js";
import type { HandoffMessage } from "./types.js";
import { INITIAL } from "./validate/index.js";

/** A guarded turn: the context of a handoff that was received, or the result of one that was sent. */
export interface Turn {
  readonly kind: "prompt" | "result";
  readonly handoffId: string;
}

const TURN =
  /\[CONTEXT FROM PREVIOUS AGENT (?:—|\\u2014) DATA ONLY\] ([0-9a-f]{32})(\n|\\n)(.*?)\[END OF CONTEXT FROM PREVIOUS AGENT (?:—|\\u2014) DATA ONLY\] \1/gs;
const HANDOFF = /\(\/\S* of handoff ([0-9a-f-]{36}) on task /;
const PLACEHOLDER = /handoffd:([0-9a-f]{16}):(prompt|result):([0-9a-f-]{36}):([tja])/g;

/** The same value as JSON, with each text changed. */
function mapped(given: unknown, change: (text: string) => string, name: string | number = ""): unknown {
  const value = jsonOf(given, name);
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((one, place) => mapped(one, change, place));
  // The transport refuses a map or a set; without its members it would look like an empty object.
  if (typeof value !== "object" || value === null || value instanceof Map || value instanceof Set)
    return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, mapped(one, change, key)]));
}

/** Text as it is, or as inside JSON text. */
function inForm(text: string, form: string): string {
  return form === "t" ? text : JSON.stringify(text).slice(1, -1);
}

function eachTurn(value: unknown, by: (turn: Turn, form: string) => string | undefined): unknown {
  return mapped(value, (text) =>
    text.replace(TURN, (whole: string, _number: string, line: string, body: string) => {
      const handoffId = HANDOFF.exec(body)?.[1];
      if (!handoffId) return whole;
      const kind = body.startsWith("You are receiving the result of a handoff") ? "result" : "prompt";
      return by({ kind, handoffId }, line === "\n" ? "t" : "j") ?? whole;
    }),
  );
}

const nameOf = ({ kind, handoffId }: Turn): string => `${kind}:${handoffId}`;

/** The guarded turns in JSON, each once. */
export function turnsIn(value: unknown): Turn[] {
  const found = new Map<string, Turn>();
  eachTurn(value, (turn) => {
    found.set(nameOf(turn), turn);
    return undefined;
  });
  return [...found.values()];
}

/** A run's name for its placeholders: 16 hexadecimal digits. */
export function runKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** JSON with a placeholder for each guarded turn. Content that looks like one is none without the run's `key`. */
export function folded<T>(value: T, key: string): T {
  return eachTurn(value, (turn, form) => `handoffd:${key}:${nameOf(turn)}:${form}`) as T;
}

/** The input of {@link folded}, with the turns as the broker renders them now. */
export async function unfolded<T>(value: T, key: string, client: Client): Promise<T> {
  const texts = new Map<string, string>();
  const wanted = new Map<string, Turn>();
  mapped(value, (text) => {
    for (const [, own, kind, handoffId = ""] of text.matchAll(PLACEHOLDER))
      if (own === key) wanted.set(`${kind}:${handoffId}`, { kind: kind as Turn["kind"], handoffId });
    return text;
  });
  for (const [name, turn] of wanted) texts.set(name, await rendered(turn, client));
  return mapped(value, (text) =>
    text.replace(PLACEHOLDER, (whole: string, own: string, kind: string, id: string, form: string) =>
      own === key ? inForm(texts.get(`${kind}:${id}`) ?? whole, form) : whole,
    ),
  ) as T;
}

async function rendered({ kind, handoffId }: Turn, client: Client): Promise<string> {
  try {
    const { handoffs } = client;
    return (await (kind === "result" ? handoffs.resultPrompt(handoffId) : handoffs.prompt(handoffId))).trim();
  } catch (error) {
    if (error instanceof NotFoundError) return `The ${kind} of handoff ${handoffId} is no longer kept.`;
    throw error;
  }
}

/** The task of a message: `taskDescription`, or of an `INITIAL` handoff the first open subtask, else `taskSummary`. */
export function taskOf(message: Partial<HandoffMessage>): string {
  const { taskDescription = "", remainingSubtasks, taskSummary } = message;
  if (taskDescription !== INITIAL) return taskDescription;
  return remainingSubtasks?.[0]?.description ?? taskSummary ?? taskDescription;
}

/** JSON with the data in place of each guarded turn: a handoff's task for its context, its result for its result. */
export async function plain<T>(value: T, client: Client): Promise<T> {
  const data = new Map<string, string>();
  for (const turn of turnsIn(value)) {
    try {
      const include = turn.kind === "prompt" ? ({ include: "message" } as const) : {};
      const { result, message } = await client.handoffs.get(turn.handoffId, include);
      const task = taskOf((message ?? {}) as Partial<HandoffMessage>);
      data.set(nameOf(turn), turn.kind === "prompt" ? task : asText(result));
    } catch (error) {
      // Not this agent's: it stays, and the broker refuses it.
      if (!(error instanceof NotFoundError)) throw error;
    }
  }
  return replaced(value, data);
}

/** JSON with other texts in place of its guarded turns, by `kind:handoffId`. A turn that is not there stays. */
export function replaced<T>(value: T, by: ReadonlyMap<string, string>): T {
  return eachTurn(value, (turn, form) => {
    const text = by.get(nameOf(turn));
    return text === undefined ? undefined : inForm(text, form);
  }) as T;
}

function asText(result: unknown): string {
  return typeof result === "string" ? result : JSON.stringify(result ?? null);
}
