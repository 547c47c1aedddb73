import { hmacSha256, toHex, utf8 } from "./bytes.js";
import { canonicalize } from "./canonical.js";

/**
 * Signs a message: HMAC-SHA-256 under the agent's signing secret (`hss_…`) over the RFC 8785 form without
 * `signature`. Returns a copy with `signature`, read back from what is signed: a date in it is text.
 */
export async function signMessage<T extends object>(
  message: T,
  secret: string,
): Promise<T & { signature: string }> {
  const { signature: _, ...unsigned } = message as T & { signature?: string };
  const signed = canonicalize(unsigned);
  const tag = await hmacSha256(utf8(secret), utf8(signed));
  return { ...(JSON.parse(signed) as T), signature: `hmac-sha256:${toHex(tag)}` };
}

/** @deprecated The name until 0.3: {@link signMessage}. */
export const signHandoffMessage = signMessage;
