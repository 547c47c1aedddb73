import { concat, equalBytes, fromBase64, hmacSha256, utf8 } from "./bytes.js";
import { VerificationError } from "./errors.js";
import { taskOf } from "./guarded.js";
import type { HandoffMessage } from "./types.js";

/** Headers of a request: those of fetch, of node:http, or a plain object. Names are matched in any case. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/** How strict the time of a delivery is. */
export interface WebhookOptions {
  /** Seconds by which the timestamp may lie in the past or future; 300 unless said. */
  readonly toleranceSeconds?: number;
  /** The present moment; for tests of receivers. */
  readonly now?: Date;
}

/** A delivery whose signature holds. */
export interface VerifiedWebhook {
  /** `webhook-id`: the same for each attempt. */
  readonly id: string;
  /** When this attempt was signed. */
  readonly timestamp: Date;
  /** The parsed body: a handoff message, a chunk, a test, or an event for callbacks and subscriptions. */
  readonly payload: unknown;
  /** The headers of a handoff's delivery; absent for an event. */
  readonly delivery?: WebhookDelivery;
}

/**
 * The content of a delivery. `message` is present for a handoff alone. `chunk` is the number, from 1, of a piece of a message that comes in
 * pieces. `test` marks a test of the transport, which an operator sends: no handoff is behind it.
 */
export type DeliveryContent =
  | {
      readonly test: false;
      readonly chunk?: undefined;
      readonly message: HandoffMessage;
      /** The work: the task's description, or the first open subtask of an `INITIAL` handoff. */
      readonly task: string;
    }
  | { readonly test: false; readonly chunk: number; readonly message?: undefined; readonly task?: undefined }
  | {
      readonly test: true;
      readonly chunk?: undefined;
      readonly message?: undefined;
      readonly task?: undefined;
    };

/** The headers of a handoff's delivery. */
export type WebhookDelivery = DeliveryContent & {
  readonly handoffId: string;
  readonly taskId: string;
  readonly attempt: number;
  readonly fencingToken: number;
};

/**
 * Verifies a delivery of the broker after Standard Webhooks 1.0 and returns its parsed body.
 *
 * @param body The raw body, before any JSON parser.
 * @param secrets `whsec_…`, as registration or rotation answered it; several while one is rotated out.
 * @throws VerificationError without a matching `v1` signature, with a timestamp outside the tolerance, or with a body that is not
 *   a JSON object.
 * @throws TypeError where a secret is empty or no base64.
 */
export async function verifyWebhook(
  body: string | Uint8Array,
  headers: WebhookHeaders,
  secrets: string | readonly string[],
  options?: WebhookOptions,
): Promise<VerifiedWebhook>;
/** @deprecated The order until 0.3: body, headers, secrets. */
export async function verifyWebhook(
  secrets: string | readonly string[],
  headers: WebhookHeaders,
  body: string | Uint8Array,
  options?: WebhookOptions,
): Promise<VerifiedWebhook>;
export async function verifyWebhook(
  first: string | Uint8Array | readonly string[],
  headers: WebhookHeaders,
  third: string | Uint8Array | readonly string[],
  options: WebhookOptions = {},
): Promise<VerifiedWebhook> {
  // No body that the broker signs begins as a secret does.
  const isOld = Array.isArray(first) || (typeof first === "string" && first.startsWith("whsec_"));
  const [secret, body] = (isOld ? [first, third] : [third, first]) as [
    string | readonly string[],
    string | Uint8Array,
  ];
  const header = reader(headers);
  const id = required(header, "webhook-id");
  const stamp = required(header, "webhook-timestamp");
  const signatures = required(header, "webhook-signature");
  if (!/^\d{1,12}$/.test(stamp)) throw new VerificationError("webhook-timestamp is not a number of seconds");
  const now = (options.now ?? new Date()).getTime() / 1000;
  const tolerance = options.toleranceSeconds ?? 300;
  if (Math.abs(now - Number(stamp)) > tolerance)
    throw new VerificationError(`webhook-timestamp lies more than ${tolerance} s from now`);
  const raw = typeof body === "string" ? utf8(body) : body;
  const given = signatures
    .split(" ")
    .filter((each) => each.startsWith("v1,"))
    .map((each) => fromBase64(each.slice("v1,".length)));
  let valid = false;
  for (const each of typeof secret === "string" ? [secret] : secret) {
    const key = fromBase64(each.replace(/^whsec_/, ""));
    if (!key || key.length === 0) throw new TypeError("a webhook secret is `whsec_` and base64");
    const expected = await hmacSha256(key, concat(utf8(`${id}.${stamp}.`), raw));
    for (const signature of given)
      valid = (signature !== undefined && equalBytes(signature, expected)) || valid;
  }
  if (!valid) throw new VerificationError("no signature of this delivery is by the secret");
  const payload = parsed(raw);
  const handoffId = header("handoff-id");
  return {
    id,
    timestamp: new Date(Number(stamp) * 1000),
    payload,
    ...(handoffId === undefined
      ? {}
      : {
          delivery: {
            handoffId,
            taskId: required(header, "handoff-task-id"),
            attempt: number(header, "handoff-attempt"),
            fencingToken: number(header, "handoff-fencing-token"),
            ...contentOf(header, payload),
          },
        }),
  };
}

type Reader = (name: string) => string | undefined;

function contentOf(header: Reader, payload: object): DeliveryContent {
  if (header("handoff-test") !== undefined) return { test: true };
  if (header("handoff-chunk") !== undefined) return { test: false, chunk: number(header, "handoff-chunk") };
  const message = payload as HandoffMessage;
  return { test: false, message, task: taskOf(message) };
}

function reader(headers: WebhookHeaders): Reader {
  if (headers instanceof Headers) return (name) => headers.get(name) ?? undefined;
  const plain = new Map(
    Object.entries(headers).map(([name, value]) => [
      name.toLowerCase(),
      typeof value === "string" ? value : value?.join(" "),
    ]),
  );
  return (name) => plain.get(name);
}

function required(header: Reader, name: string): string {
  const value = header(name);
  if (value === undefined || value === "") throw new VerificationError(`the header ${name} is missing`);
  return value;
}

function number(header: Reader, name: string): number {
  const value = required(header, name);
  if (!/^\d{1,15}$/.test(value)) throw new VerificationError(`the header ${name} is not a number`);
  return Number(value);
}

/** The object in a body. */
function parsed(raw: Uint8Array): object {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw));
  } catch {
    throw new VerificationError("the body is not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new VerificationError("the body is not a JSON object");
  return value;
}

/** The body of a receiver's answer that takes a handoff. */
export function accepted(details?: unknown): { status: "ACCEPTED"; details?: unknown } {
  return details === undefined ? { status: "ACCEPTED" } : { status: "ACCEPTED", details };
}

/** The body of a receiver's answer that does not take it. The record has a code in capitals, digits and underscores. */
export function rejected(
  reason: string,
  details?: unknown,
): { status: "REJECTED"; reason: string; details?: unknown } {
  return details === undefined ? { status: "REJECTED", reason } : { status: "REJECTED", reason, details };
}
