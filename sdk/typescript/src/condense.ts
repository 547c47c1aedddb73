import type { HistoryTurn } from "./types.js";

/** Characters of an extract unless a window asks for fewer. */
export const MOST_CHARS = 16_000;
/** Characters of one statement. */
const LINE_CHARS = 400;

const BOUNDARY = /(?<=[.!?])\s+|(?<=[。！？])|\n+/u;
const FIGURE = /[0-9]|https?:\/\/|`|[A-Z]{2,}[-_][A-Z0-9]/;
const WEIGHTY =
  /\b(?:not|never|no longer|don'?t|do not|must|shall|only|because|decided|instead|deadline|warning|careful|heads-up|agreed|promise|nicht|nie|kein\w*|muss|m(?:ue|ü)ssen|darf|weil|entschied\w*|stattdessen|frist|achtung|vereinbart|zugesagt)\b|不|别|必须|应当|因为|决定|注意|截止|承诺/i;

/**
 * An extract of turns that have to be left out of a message: the statements that a reader will need, in their own words and in the order
 * of the turns. Its first line says how much it is of how much.
 *
 * @param most Characters at most, besides the first line.
 */
export function condense(turns: readonly HistoryTurn[], most = MOST_CHARS): string {
  const found = turns.flatMap((turn) =>
    texts(turn.content)
      .flatMap((text) => text.split(BOUNDARY))
      .map((part) => part.trim().split(/\s+/).join(" "))
      .filter((said) => said !== "")
      .map((said) => ({
        weight: weight(said),
        line: `${turn.role}: ${[...said].slice(0, LINE_CHARS).join("")}`,
      })),
  );
  const placed = found.map((one, place) => ({ ...one, place, size: [...one.line].length + 1 }));
  // The weightiest first, and of those the latest.
  const wanted = [...placed].sort((a, b) => b.weight - a.weight || b.place - a.place);
  const kept: typeof placed = [];
  let room = most;
  for (const one of wanted)
    if (one.size <= room) {
      kept.push(one);
      room -= one.size;
    }
  kept.sort((a, b) => a.place - b.place);
  const head = `Extract of ${turns.length} earlier turns that do not fit: ${kept.length} of ${found.length} statements.`;
  return [head, ...kept.map(({ line }) => line)].join("\n");
}

/** How much a statement is needed: figures and names, prohibitions, duties, decisions, reasons; then questions. */
function weight(text: string): number {
  return 2 * Number(FIGURE.test(text)) + 3 * Number(WEIGHTY.test(text)) + Number(/[?？]\s*$/.test(text));
}

/** Every text in a turn's content: a text, a list of blocks, or an object. */
function texts(content: unknown): string[] {
  if (typeof content === "string") return [content];
  if (typeof content !== "object" || content === null) return [];
  return Object.values(content).flatMap(texts);
}
