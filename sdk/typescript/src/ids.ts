import { concat, fromHex, sha256, toHex, utf8 } from "./bytes.js";

/** The namespace (RFC 9562 §6.6) of ids that the SDKs derive: the same in each language. */
const NAMESPACE = "6f6b7f0e-0d5c-5b0e-9d6e-2a6a3d0c9b11";
const SEPARATOR = "\x1f";

/** A random UUID, version 4. */
export function randomId(): string {
  return crypto.randomUUID();
}

/** A version 5 UUID (RFC 9562 §5.5) of a name in a namespace. */
export async function nameId(namespace: string, name: string): Promise<string> {
  const space = fromHex(namespace.replaceAll("-", ""));
  if (space?.length !== 16) throw new TypeError(`${namespace} is not a UUID`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-1", concat(space, utf8(name))));
  return format(digest, 5);
}

/** A version 5 UUID: the same for the same names, in this order. */
export function derivedId(...names: readonly string[]): Promise<string> {
  return nameId(NAMESPACE, names.join(SEPARATOR));
}

/** The same in the form of version 4, which the message schema asks of `executionId`. */
export async function derivedExecutionId(...names: readonly string[]): Promise<string> {
  return format(await sha256(utf8([NAMESPACE, ...names].join(SEPARATOR))), 4);
}

function format(bytes: Uint8Array, version: number): string {
  const id = bytes.slice(0, 16);
  id[6] = ((id[6] ?? 0) & 0x0f) | (version << 4);
  id[8] = ((id[8] ?? 0) & 0x3f) | 0x80;
  return toHex(id).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** A W3C traceparent: of the given trace with a new parent id, or of a new trace. */
export function traceparent(within?: string): string {
  const known = /^00-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})$/.exec(within ?? "");
  const random = (bytes: number): string => toHex(crypto.getRandomValues(new Uint8Array(bytes)));
  return `00-${known?.[1] ?? random(16)}-${random(8)}-${known?.[2] ?? "01"}`;
}

/** The parts of OpenTelemetry's global API that name the current span. */
interface TracingApi {
  readonly context?: { readonly active?: () => { readonly getValue: (key: symbol) => unknown } };
}

/** The W3C traceparent of OpenTelemetry's current span; `undefined` where the process has none. */
export function currentTraceparent(): string | undefined {
  const api = (globalThis as Record<symbol, unknown>)[Symbol.for("opentelemetry.js.api.1")] as
    | TracingApi
    | undefined;
  const span = api?.context?.active?.().getValue(Symbol.for("OpenTelemetry Context Key SPAN")) as
    | {
        readonly spanContext: () => {
          readonly traceId: string;
          readonly spanId: string;
          readonly traceFlags: number;
        };
      }
    | undefined;
  const context = span?.spanContext();
  if (!context || !/^[0-9a-f]{32}$/.test(context.traceId) || /^0+$/.test(context.traceId)) return undefined;
  return `00-${context.traceId}-${context.spanId}-${(context.traceFlags & 1) === 1 ? "01" : "00"}`;
}
