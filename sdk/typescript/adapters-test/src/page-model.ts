// The scripted model in the place of OpenAI's in the programs of docs/sdk/typescript.md. PAGE_ROLE says which agent's it is.

import { calls, results, says, scripted } from "./scripted.js";

export function openai(): never {
  const answer = scripted((prompt) => {
    if (process.env.PAGE_ROLE === "legal") return says("low risk");
    const known = results(prompt);
    const input = { task: "Check clause 4.2", reason: "clauses" };
    return known.length === 0
      ? calls({ id: "c1", name: "transfer_to_legal", input })
      : says(`Legal says: ${JSON.stringify(known)}`);
  });
  return answer as never;
}
