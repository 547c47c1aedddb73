import { sha256, toHex, utf8 } from "./bytes.js";
import { canonicalize, type Json } from "./canonical.js";

/** The input of a digest: a message, or the part of one that is known. */
type Parts = Readonly<Record<string, unknown>>;

/**
 * The digest of a message's request: SHA-256 over receiver, task, state, subtasks, constraints and history, without the times that a
 * rebuilt message has anew. The builder puts it into `extensions.handoffd.stepDigest` of a message whose id may be used again, so that
 * another step under the same name is told from the same one. The Python SDK writes the same.
 *
 * @throws TypeError where the message has values that JSON cannot hold.
 */
export async function stepDigest(message: object): Promise<string> {
  const told = message as Parts;
  const parts = {
    target: told.receiverList ?? told.toAgent ?? null,
    task: told.taskDescription ?? null,
    state: told.currentState ?? null,
    completed: listed(told.completedSubtasks, "completedAt"),
    remaining: told.remainingSubtasks ?? null,
    constraints: told.constraints ?? null,
    history: listed(told.conversationHistoryVerbatim, "timestamp"),
  };
  return `sha256:${toHex(await sha256(utf8(canonicalize(parts as Json))))}`;
}

/** The digest that a message has; none where it has none. */
export function statedDigest(message: object | null | undefined): string | undefined {
  let found: unknown = message;
  for (const name of ["extensions", "handoffd", "stepDigest"]) found = (found as Parts | undefined)?.[name];
  return typeof found === "string" ? found : undefined;
}

/** The message with the digest of its step. */
export async function withDigest<T extends object>(message: T): Promise<T> {
  const { extensions } = message as { extensions?: Parts };
  const own = extensions?.handoffd as Parts | undefined;
  const handoffd = { ...own, stepDigest: await stepDigest(message) };
  return { ...message, extensions: { ...extensions, handoffd } };
}

function listed(items: unknown, without: string): unknown[] {
  return ((items ?? []) as Parts[]).map(({ [without]: _, ...kept }) => kept);
}
