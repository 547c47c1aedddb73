import { hmacSha256, toHex, utf8 } from "./bytes.js";
import { canonicalize } from "./canonical.js";

/**
 * Signs a message: HMAC-SHA-256 under the agent's signing secret (`hss_…`) over the RFC 8785 form without
 * `signature`. Returns a copy with `signature`.
 */
export async function signHandoffMessage<T extends object>(
  message: T,
  secret: string,
): Promise<T & { signature: string }> {
  const { signature: _, ...unsigned } = message as T & { signature?: string };
  const tag = await hmacSha256(utf8(secret), utf8(canonicalize(unsigned)));
  return { ...(unsigned as T), signature: `hmac-sha256:${toHex(tag)}` };
}
