/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/**
 * The value that `JSON.stringify` uses: the result of `toJSON` if the value has one, such as a date's text. @internal
 *
 * @param name The member's name, or the item's place.
 */
export function jsonOf(value: unknown, name: string | number = ""): unknown {
  if ((typeof value !== "object" && typeof value !== "bigint") || value === null) return value;
  const { toJSON } = value as { readonly toJSON?: unknown };
  return typeof toJSON === "function" ? toJSON.call(value, String(name)) : value;
}

/**
 * The JSON of a request's body. Members that are `undefined` are left out, and a value with `toJSON` is what that gives. @internal
 *
 * @throws TypeError with the RFC 6901 pointer of a value that JSON cannot hold.
 */
export function encoded(body: unknown): string {
  const pointers = new Map<unknown, string>();
  return JSON.stringify(body, function (this: unknown, name: string, value: unknown) {
    const above = pointers.get(this);
    const pointer = above === undefined ? "" : `${above}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    const refused = notJson(value);
    if (refused) throw new TypeError(`JSON cannot hold ${refused} at ${pointer || "the top"}`);
    if (typeof value === "object" && value !== null) pointers.set(value, pointer);
    return value;
  });
}

/** The name of a value that `JSON.stringify` refuses or replaces by another; `undefined` for all others. */
function notJson(value: unknown): string | undefined {
  if (typeof value === "number") return Number.isFinite(value) ? undefined : String(value);
  if (typeof value === "function" || typeof value === "symbol" || typeof value === "bigint")
    return `a ${typeof value}`;
  if (value instanceof Map) return "a Map";
  return value instanceof Set ? "a Set" : undefined;
}

/**
 * The RFC 8785 canonical form (JCS) of a JSON value. Members that are `undefined` count as absent; a value with `toJSON` counts as what
 * that gives.
 *
 * ECMAScript writes numbers and strings as JCS asks; what is left is the order of members: by UTF-16
 * code units, the order of `Array.prototype.sort`.
 *
 * @throws TypeError for NaN, infinities, lone surrogates and values that JSON cannot hold.
 */
export function canonicalize(value: unknown): string {
  return written(jsonOf(value));
}

function written(value: unknown): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new TypeError(`JSON has no ${value}`);
    return JSON.stringify(value);
  }
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw new TypeError("a text holds half of a surrogate pair");
    return JSON.stringify(value);
  }
  if (Array.isArray(value))
    return `[${value.map((item, place) => written(jsonOf(item, place) ?? null)).join(",")}]`;
  if (typeof value === "object") {
    const all = Object.entries(value).map(([name, member]) => [name, jsonOf(member, name)] as const);
    const members = all.filter(([, member]) => member !== undefined);
    const sorted = members.sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${sorted.map(([name, member]) => `${written(name)}:${written(member)}`).join(",")}}`;
  }
  throw new TypeError(`JSON cannot hold a ${typeof value}`);
}
