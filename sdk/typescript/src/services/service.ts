// The common part of the resources' classes.

import type { CallOptions, OperationId, Query, Transport } from "../transport.js";

/** One page of a list, and where the next one begins. */
interface Page<Item> {
  readonly items: readonly Item[];
  readonly nextCursor?: string | null | undefined;
}

/** All items of a list, page by page. */
export async function* pages<Item>(
  next: (cursor: string | undefined) => Promise<Page<Item>>,
): AsyncGenerator<Item, void> {
  let cursor: string | undefined;
  do {
    const page = await next(cursor);
    yield* page.items;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
}

/** The base of a resource. */
export class Service {
  /** @internal */
  protected readonly transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.transport = transport;
  }
}

/** The query parameters of an operation, with the options of its call beside them. */
export type Query_<Id extends OperationId> = Query<Id> & CallOptions;

/** Seconds as the broker takes them: whole, and at least 1 where it is asked to wait at all. */
export function wholeSeconds(wait: number): number {
  return wait > 0 ? Math.max(1, Math.round(wait)) : wait;
}

/** Splits the options of a call from the parameters of its query. */
export function split(given: object | undefined): { query: Record<string, unknown> } & CallOptions {
  const { signal, timeoutMs, retries, ...query } = (given ?? {}) as Record<string, unknown> & CallOptions;
  if (typeof query.wait === "number") query.wait = wholeSeconds(query.wait);
  return { query, signal, timeoutMs, retries };
}
