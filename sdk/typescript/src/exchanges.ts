/**
 * Calls of tools and their results in a conversation: where it may be cut. The APIs of models refuse a history with a
 * result whose call is missing. The broker and the Python SDK have the same rule, and `tests/vectors/turn_cuts.json` holds
 * all three to it.
 */

type Members = Readonly<Record<string, unknown>>;

const TOOL_ROLES: readonly unknown[] = ["tool", "function"];
const OTHER_ROLES: readonly unknown[] = ["user", "human", "system", "developer"];
const IDS = ["call_id", "tool_use_id", "tool_call_id", "toolCallId", "id"] as const;
const RESULTS: readonly string[] = ["function_result", "tool-result", "tool-return"];

/**
 * Which turns of a conversation belong together. A result belongs to the nearest earlier turn that has its call, by id or
 * else by name. If no turn has it, the result belongs to the nearest earlier turn of the model: some frameworks keep
 * calls apart from the turns.
 */
export class Exchanges {
  /** For each place, and the end, the earliest turn that one from there on depends on. */
  readonly #reach: readonly number[];

  constructor(turns: readonly unknown[]) {
    const made = new Map<string, number>();
    let speaker: number | undefined;
    const reach = turns.map((turn, at) => {
      const { asked, answered } = keys(turn);
      const calls = answered.map((key) => (key === undefined ? speaker : (made.get(key) ?? speaker)) ?? at);
      if (answered.length === 0 && !(isMembers(turn) && OTHER_ROLES.includes(turn.role))) speaker = at;
      for (const key of asked) made.set(key, at);
      return Math.min(at, ...calls);
    });
    let least = turns.length;
    for (let at = turns.length - 1; at >= 0; at -= 1) {
      least = Math.min(least, reach[at] ?? least);
      reach[at] = least;
    }
    this.#reach = [...reach, turns.length];
  }

  /** Whether no result from a place on lacks its call. */
  isWholeFrom(place: number): boolean {
    return (this.#reach[place] ?? place) >= place;
  }

  /** The last place at or before this one from which turns are whole. */
  before(place: number): number {
    let at = Math.min(Math.max(place, 0), this.#reach.length - 1);
    while (!this.isWholeFrom(at)) at -= 1;
    return at;
  }

  /**
   * The place at which a conversation is cut when it should begin at `place`: there or later, so that at most the requested
   * turns stay; before it only if no turn would stay.
   */
  cut(place: number): number {
    const count = this.#reach.length - 1;
    if (place >= count) return count;
    for (let at = place; at < count; at += 1) if (this.isWholeFrom(at)) return at;
    return this.before(place);
  }
}

interface Keys {
  /** The calls that a turn makes. */
  readonly asked: string[];
  /** The calls whose results it has; undefined for a result that names none. */
  readonly answered: (string | undefined)[];
}

function keys(turn: unknown): Keys {
  const found: Keys = { asked: [], answered: [] };
  if (!isMembers(turn)) return found;
  part(turn, found);
  for (const name of ["content", "parts", "metadata"]) {
    const inner = turn[name];
    for (const one of Array.isArray(inner) ? inner : [inner]) if (isMembers(one)) part(one, found);
  }
  if (found.asked.length === 0 && found.answered.length === 0 && TOOL_ROLES.includes(turn.role))
    found.answered.push(keyOf(turn, []));
  return found;
}

function part(members: Members, { asked, answered }: Keys): void {
  const ask = (call: unknown, ids: readonly string[]): void => {
    const key = isMembers(call) ? keyOf(call, ids) : undefined;
    if (key !== undefined) asked.push(key);
  };
  const inner = (...names: string[]): Members | undefined =>
    names.map((name) => members[name]).find(isMembers);
  for (const name of ["tool_calls", "toolCalls"]) {
    const calls = members[name];
    if (Array.isArray(calls))
      for (const call of calls) ask(call, ["id", "call_id", "tool_call_id", "toolCallId"]);
  }
  ask(inner("function_call", "functionCall"), ["id", "call_id"]);
  ask(inner("toolUse", "tool_use"), ["toolUseId", "id"]);
  const response = inner("function_response", "functionResponse");
  if (response) answered.push(keyOf(response, ["id", "call_id"]));
  const result = inner("toolResult", "tool_result");
  if (result) answered.push(keyOf(result, ["toolUseId", "tool_use_id"]));
  const said = ["type", "part_kind"].map((name) => members[name]).find((one) => typeof one === "string");
  const kind = typeof said === "string" ? said : "";
  if (kind.endsWith("tool_result") || kind.endsWith("_call_output") || RESULTS.includes(kind))
    answered.push(keyOf(members, IDS.slice(0, 4)));
  else if (kind.endsWith("tool_use") || kind.endsWith("_call") || kind === "tool-call") ask(members, IDS);
  else {
    const call = text(members, ["tool_call_id", "tool_use_id"]);
    if (call !== undefined) answered.push(`id ${call}`);
  }
}

function keyOf(members: Members, ids: readonly string[]): string | undefined {
  const call = text(members, ids);
  if (call !== undefined) return `id ${call}`;
  const name = text(members, ["name"]);
  return name === undefined ? undefined : `name ${name}`;
}

function text(members: Members, names: readonly string[]): string | undefined {
  for (const name of names) {
    const one = members[name];
    if (typeof one === "string" && one !== "") return one;
  }
  return undefined;
}

function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
