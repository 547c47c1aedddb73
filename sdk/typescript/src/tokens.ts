import { utf8 } from "./bytes.js";
import { canonicalize } from "./canonical.js";
import type { HandoffMessage } from "./types.js";

/** Share of a receiver's window that a message may take; the broker's `context.compress_at`. */
export const COMPRESS_AT = 0.8;

/** Sixty-fourths of a token by byte of UTF-8. */
const WEIGHTS: readonly number[] = weights();

function weights(): number[] {
  const table = [
    ...fill(0x80, 44),
    ...fill(0x40, 0),
    ...fill(0x20, 34),
    72,
    130,
    80,
    ...fill(13, 62),
    ...fill(16, 150),
  ];
  const set = (letters: Iterable<string>, weight: number): void => {
    for (const letter of letters) table[letter.charCodeAt(0)] = weight;
  };
  for (let byte = 0; byte < 0x20; byte++) table[byte] = 20;
  table[0x7f] = 20;
  set(" ", 2);
  set("_-.,/", 36);
  set('":{}[]\\', 24);
  set("0123456789", 28);
  set("abcdefghijklmnopqrstuvwxyz", 14);
  set("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 30);
  return table;
}

function fill(length: number, weight: number): number[] {
  return Array.from({ length }, () => weight);
}

/** Tokens of a text, rounded up: within half and twice the count of the vocabularies `o200k` and `cl100k`. */
export function estimateTokens(text: string): number {
  return Math.ceil(utf8(text).reduce((sum, byte) => sum + (WEIGHTS[byte] ?? 0), 0) / 64);
}

/** Estimated tokens of a message as its receiver gets it, by part. */
export interface Measurement {
  readonly tokens: number;
  readonly summary: number;
  readonly turns: number;
  readonly state: number;
  readonly tools: number;
  readonly context: number;
}

/** @deprecated The name until 0.3: {@link Measurement}. */
export type Measured = Measurement;

type Part = Exclude<keyof Measurement, "tokens">;

const PARTS: Readonly<Record<string, Part>> = {
  conversationHistorySummary: "summary",
  taskSummary: "summary",
  conversationHistoryVerbatim: "turns",
  currentState: "state",
  completedSubtasks: "state",
  remainingSubtasks: "state",
  toolCallHistory: "tools",
  toolState: "tools",
};

/**
 * Measures a message without its checkpoint and its personal data, which do not reach every receiver.
 *
 * @param count Counts the tokens of a text; an estimate unless said.
 */
export function measureMessage(
  message: HandoffMessage,
  count: (text: string) => number = estimateTokens,
): Measurement {
  const parts = { summary: 0, turns: 0, state: 0, tools: 0, context: 0 };
  for (const [name, value] of Object.entries(message)) {
    if (value === undefined || name === "checkpoint" || name === "personalDataPayload") continue;
    parts[PARTS[name] ?? "context"] += count(`${canonicalize(name)}:${canonicalize(value)}`);
  }
  return { tokens: Object.values(parts).reduce((sum, part) => sum + part, 0), ...parts };
}

/** @deprecated The name until 0.3: {@link measureMessage}. */
export const measureHandoffMessage = measureMessage;
