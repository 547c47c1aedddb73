// Versions and ranges as the broker reads them: versions after Semantic Versioning 2.0.0, ranges as npm
// writes them (crates/domain/src/version_range.rs).

const U64 = 18_446_744_073_709_551_615n;
const IDENTIFIERS = "[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*";
const VERSION = new RegExp(`^(\\d+)\\.(\\d+)\\.(\\d+)(?:-(${IDENTIFIERS}))?(?:\\+(${IDENTIFIERS}))?$`);
const BUILD = new RegExp(`^${IDENTIFIERS}$`);
const BLANK = /\p{White_Space}/u;
const MAX_BYTES = 256;
const MAX_COMPARATORS = 64;

function isNumber(text: string): boolean {
  return /^(0|[1-9]\d*)$/.test(text) && BigInt(text) <= U64;
}

function isPreRelease(text: string): boolean {
  return BUILD.test(text) && text.split(".").every((each) => !/^0\d+$/.test(each));
}

/** Whether a text is a semantic version, such as `2.1.0-rc.1+build.5`. */
export function isVersion(text: string): boolean {
  const parts = VERSION.exec(text);
  if (!parts) return false;
  return (
    parts.slice(1, 4).every((each) => isNumber(each ?? "")) &&
    (parts[4] === undefined || isPreRelease(parts[4]))
  );
}

/** Whether a text is a range of versions, such as `>=1.5.0` or `^1.5 || ^2.0`. */
export function isRange(text: string): boolean {
  if (new TextEncoder().encode(text).length > MAX_BYTES || trim(text) === "") return false;
  const counts = text.split("||").map(comparators);
  if (counts.some((count) => count === undefined)) return false;
  return counts.reduce<number>((sum, count) => sum + (count ?? 0), 0) <= MAX_COMPARATORS;
}

/** Without the white space of Unicode at both ends. */
export function trim(text: string): string {
  return text.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, "");
}

/** The number of comparators that restrict anything; `undefined` for an invalid alternative. */
function comparators(text: string): number | undefined {
  const words = trim(text).split(/\p{White_Space}+/u);
  if (words.length === 3 && words[1] === "-") {
    const bounds = [comparator(words[0] ?? "", false), comparator(words[2] ?? "", false)];
    return bounds.includes(undefined) ? undefined : bounds.filter(Boolean).length;
  }
  let count = 0;
  let rest = trim(text);
  while (rest !== "") {
    const operator = [">=", "<=", "~>", ">", "<", "=", "~", "^"].find((sign) => rest.startsWith(sign)) ?? "";
    const after = trim(rest.slice(operator.length));
    let end = 0;
    while (end < after.length && after[end] !== "," && !BLANK.test(after[end] ?? "")) end++;
    const restricts = comparator(after.slice(0, end), operator === ">" || operator === "<");
    if (restricts === undefined) return undefined;
    count += restricts ? 1 : 0;
    rest = trim(after.slice(end));
    if (rest.startsWith(",")) {
      rest = trim(rest.slice(1));
      if (rest === "") return undefined;
    }
  }
  return count;
}

/** Whether the version of a comparator restricts anything; `undefined` for an invalid version. */
function comparator(given: string, strict: boolean): boolean | undefined {
  let text = given.startsWith("v") ? given.slice(1) : given;
  const plus = text.indexOf("+");
  if (plus >= 0) {
    if (!BUILD.test(text.slice(plus + 1))) return undefined;
    text = text.slice(0, plus);
  }
  const dash = text.indexOf("-");
  const pre = dash < 0 ? undefined : text.slice(dash + 1);
  if (pre !== undefined && !isPreRelease(pre)) return undefined;
  const parts = (dash < 0 ? text : text.slice(0, dash)).split(".");
  const isAny = (part: string | undefined): boolean => part === "x" || part === "X" || part === "*";
  if (parts.length > 3 || !parts.every((part) => isAny(part) || isNumber(part))) return undefined;
  if (isAny(parts[0])) return strict;
  const partial = parts.length < 3 || parts.some(isAny);
  return partial && pre !== undefined ? undefined : true;
}
