// Money in whole nano-dollars (1e-9 USD), as the broker's books have it (crates/domain/src/money.rs).

const NANOS = 1e9;
const MOST = 1_000_000_000_000_000_000n;

/** The nearest whole number of nano-dollars; halves away from zero. */
export function toNanos(dollars: number): bigint {
  const scaled = dollars * NANOS;
  return BigInt(Math.sign(scaled) * Math.round(Math.abs(scaled)));
}

export function toDollars(nanos: bigint): number {
  return Number(nanos) / NANOS;
}

/** `12`, `12.5`, `0.000000001`: decimal US dollars without sign and exponent; `undefined` for any other text. */
export function parseDollars(text: string): bigint | undefined {
  const parts = /^(\d{1,10})(?:\.(\d{1,9}))?$/.exec(text);
  if (!parts) return undefined;
  const nanos = BigInt(`${parts[1]}${(parts[2] ?? "").padEnd(9, "0")}`);
  return nanos > MOST ? undefined : nanos;
}

/** Dollars with at least two decimals: `0.00`, `-1.25`, `0.123456`. */
export function showDollars(nanos: bigint): string {
  const size = nanos < 0n ? -nanos : nanos;
  const cents = (size % 1_000_000_000n)
    .toString()
    .padStart(9, "0")
    .replace(/0{1,7}$/, "");
  return `${nanos < 0n ? "-" : ""}${size / 1_000_000_000n}.${cents}`;
}
