import { concat } from "./bytes.js";
import { encoded } from "./canonical.js";
import { AnswerError, type HandoffdError, type Problem, TransportError, toError } from "./errors.js";
import type { operations } from "./generated/openapi.js";
import { OPERATIONS } from "./generated/operations.js";
import { VERSION } from "./generated/version.js";

/** The id of an operation of the broker's API. */
export type OperationId = keyof typeof OPERATIONS & keyof operations;

/** The parameters of an operation. */
export type Params<Id extends OperationId> = operations[Id]["parameters"];
/** Parameters of an operation of one kind: `query` or `path`. */
export type Part<Id extends OperationId, Name extends string> = Name extends keyof Params<Id>
  ? Exclude<Params<Id>[Name], undefined>
  : never;
/** The query parameters of an operation. */
export type Query<Id extends OperationId> = Partial<Part<Id, "query">>;
/** The path parameters of an operation. */
export type Path<Id extends OperationId> = Part<Id, "path">;
/** The JSON body of a request or an answer. */
export type JsonOf<T> = T extends { content: { "application/json": infer Body } } ? Body : never;
/** The JSON body of an operation's request. */
export type Body<Id extends OperationId> = operations[Id] extends { requestBody?: infer Request }
  ? JsonOf<Exclude<Request, undefined>>
  : never;
/** The answers of an operation by their status. */
export type Answers<Id extends OperationId> = operations[Id]["responses"];
/** The JSON body of an operation's successful answer. */
export type Answer<Id extends OperationId> = JsonOf<Answers<Id>[Extract<keyof Answers<Id>, 200 | 201 | 202>]>;

/** Limits of one call. */
export interface CallOptions {
  /** Ends the call; the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds for one try, beside the seconds that the request itself asks the broker to wait. */
  readonly timeoutMs?: number | undefined;
  /** Repeats at most; the client's unless said. */
  readonly retries?: number | undefined;
}

export interface TransportOptions {
  /** The broker's address, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  /** The API key. */
  readonly key?: string | undefined;
  /** Milliseconds for one try of a request; 30 000 unless said. */
  readonly timeoutMs?: number | undefined;
  /** Repeats of one request at most; 7 unless said. They last 13 seconds at least: a broker's restart. */
  readonly retries?: number | undefined;
  /** Longest pause before a repeat in milliseconds, `Retry-After` included; 60 000 unless said. */
  readonly maxPauseMs?: number | undefined;
  /** Another implementation of fetch. */
  readonly fetch?: typeof fetch | undefined;
}

interface Request<Id extends OperationId> extends CallOptions {
  readonly path?: Path<Id> | undefined;
  readonly query?: Readonly<Record<string, unknown>> | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>> | undefined;
  readonly body?: unknown;
  /** A body of several JSON values, a line each. */
  readonly lines?: readonly unknown[] | undefined;
  readonly accept?: string | undefined;
  /** Seconds for which the broker may hold the answer. */
  readonly waitSeconds?: number | undefined;
}

/**
 * Operations that do something again when they are sent again. After a broken connection or a 500 it is unknown
 * whether they were done, so they are repeated only if the broker says that nothing was written.
 */
const NOT_REPEATABLE: ReadonlySet<OperationId> = new Set<OperationId>([
  ...(["createAgent", "createKey", "createSubscription", "topUpTask", "rotateSecret"] as const),
  ...(["rotateSubscriptionSecret", "replaySubscription", "releaseDeadLetter", "releaseDeadLetters"] as const),
  ...(["discardDeadLetter", "discardDeadLetters", "resolveEscalation", "restoreCheckpoint"] as const),
  "testDelivery",
]);

/** Repeats of one request. */
const RETRIES = 7;
/** First bound of the pause before a repeat, which is random between half of it and the whole; it doubles with each. */
const PAUSE_MS = 250;
/** Last bound of it. */
const MOST_PAUSE_MS = 10_000;

/** Sends requests, repeats what may be repeated, and turns problems into typed errors. */
export class Transport {
  readonly #options: TransportOptions;
  readonly #base: string;

  constructor(options: TransportOptions) {
    this.#options = options;
    this.#base = options.url.replace(/\/+$/, "");
    if (!/^https?:\/\//.test(this.#base))
      throw new TypeError(`the broker's URL begins with http:// or https://: ${options.url}`);
    // A value that a header cannot hold is refused here, where no error repeats the key.
    if (options.key !== undefined && !/^[!-~]*$/.test(options.key.trim()))
      throw new TypeError("the API key has characters that no key has");
  }

  /** The same broker with another key. */
  withKey(key: string): Transport {
    return new Transport({ ...this.#options, key });
  }

  /** The JSON answer of an operation; `undefined` where it answers without a body. */
  async call<Id extends OperationId>(operation: Id, request: Request<Id> = {}): Promise<Answer<Id>> {
    const answer = await this.send(operation, request);
    return (answer.bytes.length === 0 ? undefined : answer.json()) as Answer<Id>;
  }

  /** The answer of an operation, which is a success and was read to its end. Repeats are behind it. */
  async send<Id extends OperationId>(operation: Id, request: Request<Id> = {}): Promise<WholeAnswer> {
    return this.#repeated(operation, request, async (response, signal, what) => {
      const bytes = await wholeBody(response, signal);
      return new WholeAnswer(response.status, response.headers, bytes, what);
    });
  }

  /** The answer of an operation, which is a success and whose body is read by {@link bodyParts}, for which no time is set. */
  async stream<Id extends OperationId>(operation: Id, request: Request<Id> = {}): Promise<Response> {
    return this.#repeated(operation, request, async (response) => response);
  }

  async #repeated<Id extends OperationId, T>(
    operation: Id,
    request: Request<Id>,
    read: Reading<T>,
  ): Promise<T> {
    const most = request.retries ?? this.#options.retries ?? RETRIES;
    for (let tries = 0; ; tries++) {
      const outcome = await this.#once(operation, request, read);
      if (!("error" in outcome)) return outcome.read;
      const bound = Math.min(PAUSE_MS * 2 ** tries, MOST_PAUSE_MS);
      const pause = outcome.retryAfterMs ?? (bound * (1 + Math.random())) / 2;
      if (!outcome.repeatable || tries >= most || pause > (this.#options.maxPauseMs ?? 60_000))
        throw outcome.error;
      await sleep(pause, request.signal);
    }
  }

  async #once<Id extends OperationId, T>(
    operation: Id,
    request: Request<Id>,
    read: Reading<T>,
  ): Promise<{ readonly read: T } | Failed> {
    const [method, template] = OPERATIONS[operation];
    const url = this.#base + fill(template, request.path) + search(request.query);
    const timeoutMs =
      (request.timeoutMs ?? this.#options.timeoutMs ?? 30_000) + (request.waitSeconds ?? 0) * 1000;
    // Held here by strong references: signals that are derived from others get lost under garbage collection.
    const ending = new AbortController();
    const { signal } = ending;
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      ending.abort();
    }, timeoutMs);
    const stop = (): void => ending.abort(request.signal?.reason);
    request.signal?.addEventListener("abort", stop, { once: true });
    if (request.signal?.aborted) stop();
    const headers = new Headers({
      accept: request.accept ?? "application/json",
      "user-agent": `handoffd-typescript/${VERSION}`,
    });
    if (this.#options.key) headers.set("authorization", `Bearer ${this.#options.key.trim()}`);
    for (const [name, value] of Object.entries(request.headers ?? {}))
      if (value !== undefined) headers.set(name, value);
    const init: RequestInit = { method, headers, signal, redirect: "error" };
    if (request.lines) {
      headers.set("content-type", "application/x-ndjson");
      init.body = request.lines.map(encoded).join("\n");
    } else if (request.body !== undefined) {
      headers.set("content-type", "application/json");
      init.body = typeof request.body === "string" ? request.body : encoded(request.body);
    }
    const mayRepeat = !NOT_REPEATABLE.has(operation);
    let response: Response;
    let text: string;
    try {
      response = await (this.#options.fetch ?? fetch)(url, init);
      // A connection that breaks within the answer is a lost answer, too.
      if (response.ok) return { read: await read(response, signal, `${method} ${url}`) };
      text = await wholeBody(response, signal).then(utf8Text, (error: unknown) => {
        if (request.signal?.aborted) throw error;
        return "";
      });
    } catch (cause) {
      if (request.signal?.aborted) throw request.signal.reason;
      const why = isLate ? `no answer within ${timeoutMs} ms` : reason(cause);
      return { error: new TransportError(`${method} ${url}: ${why}`, { cause }), repeatable: mayRepeat };
    } finally {
      clearTimeout(timer);
      request.signal?.removeEventListener("abort", stop);
    }
    const retryAfterMs = retryAfter(response.headers.get("retry-after"));
    const error = toError(problemOf(response, text, template), retryAfterMs);
    const nothingWritten = error.code === "OVERLOADED" || error.code === "UNAVAILABLE";
    const away = response.status >= 500 && mayRepeat;
    return {
      error,
      repeatable: nothingWritten || away,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    };
  }
}

/** An answer with its whole body. */
export class WholeAnswer {
  constructor(
    readonly status: number,
    readonly headers: Headers,
    readonly bytes: Uint8Array,
    /** Method and URL of the request. */
    private readonly what: string,
  ) {}

  text(): string {
    return utf8Text(this.bytes);
  }

  /** @throws AnswerError if the body is not JSON. */
  json(): unknown {
    try {
      return JSON.parse(this.text());
    } catch {
      const type = this.headers.get("content-type") ?? "no type";
      throw new AnswerError(`${this.what}: the answer ${this.status} (${type}) is not JSON`);
    }
  }
}

/** Makes something of a successful answer until the signal is aborted; the text names the request. */
type Reading<T> = (response: Response, signal: AbortSignal, what: string) => Promise<T>;

/**
 * The parts of an answer's body as they come. The reader is cancelled here once the signal is aborted: behind the head,
 * Node's fetch may have lost its own signal to garbage collection, and would wait for ever.
 */
export async function* bodyParts(
  response: Response,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array, void> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const stop = (): void => void reader.cancel(signal?.reason).catch(() => undefined);
  signal?.addEventListener("abort", stop, { once: true });
  if (signal?.aborted) stop();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      signal?.throwIfAborted();
      if (done) return;
      yield value;
    }
  } finally {
    signal?.removeEventListener("abort", stop);
    await reader.cancel().catch(() => undefined);
  }
}

async function wholeBody(response: Response, signal: AbortSignal): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of bodyParts(response, signal)) parts.push(part);
  return concat(...parts);
}

interface Failed {
  readonly error: HandoffdError;
  readonly repeatable: boolean;
  readonly retryAfterMs?: number;
}

/** Resolves after some milliseconds; rejects with the signal's reason. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
    return undefined;
  });
}

function utf8Text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

function reason(error: unknown): string {
  const inner = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return inner instanceof Error ? inner.message || inner.name : String(inner);
}

function fill(template: string, path: unknown): string {
  const values = (path ?? {}) as Record<string, unknown>;
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(values[name] ?? "");
    if (value === "" || value === "." || value === "..")
      throw new TypeError(`${name} is empty or names a folder`);
    // A tile's path has slashes of its own.
    return name === "path" ? value.split("/").map(encodeURIComponent).join("/") : encodeURIComponent(value);
  });
}

function search(query: Readonly<Record<string, unknown>> | undefined): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}))
    if (value !== undefined && value !== null) parameters.set(name, String(value));
  return parameters.size === 0 ? "" : `?${parameters}`;
}

/** Milliseconds of a `Retry-After` in seconds or as a date. */
function retryAfter(header: string | null): number | undefined {
  if (header === null) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}

/** The problem of an answer; what a proxy says instead becomes one with an empty `requestId`. */
function problemOf(response: Response, text: string, instance: string): Problem {
  if (response.headers.get("content-type")?.includes("application/problem+json")) {
    try {
      const found = JSON.parse(text) as Partial<Problem> | null;
      if (typeof found?.code === "string" && Array.isArray(found.failures))
        return { ...(found as Problem), status: response.status };
    } catch {
      // A problem document that is cut off is told as any other answer.
    }
  }
  const code = response.status === 429 ? "OVERLOADED" : response.status === 503 ? "UNAVAILABLE" : "INTERNAL";
  const detail = `the answer is no problem document of a broker: ${text.slice(0, 200)}`;
  const common = { status: response.status, code };
  return {
    ...common,
    type: "about:blank",
    title: response.statusText,
    detail,
    instance,
    reason: code,
    failures: [],
    requestId: "",
    error: { ...common, message: detail },
  };
}
