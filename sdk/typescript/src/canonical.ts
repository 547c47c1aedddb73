/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/**
 * The RFC 8785 canonical form (JCS) of a JSON value. Members that are `undefined` count as absent.
 *
 * ECMAScript writes numbers and strings as JCS asks; what is left is the order of members: by UTF-16
 * code units, the order of `Array.prototype.sort`.
 *
 * @throws TypeError for NaN, infinities, lone surrogates and values that JSON cannot hold.
 */
export function canonicalize(value: unknown): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new TypeError(`JSON has no ${value}`);
    return JSON.stringify(value);
  }
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw new TypeError("a text holds half of a surrogate pair");
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) return `[${value.map((item) => canonicalize(item ?? null)).join(",")}]`;
  if (typeof value === "object") {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    const sorted = members.sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${sorted.map(([name, member]) => `${canonicalize(name)}:${canonicalize(member)}`).join(",")}}`;
  }
  throw new TypeError(`JSON cannot hold a ${typeof value}`);
}
