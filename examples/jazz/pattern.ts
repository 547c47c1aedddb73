// The types of Jazz's agent handoff pattern, and its services over the broker's door. No dependency but `fetch`.

export interface ChatMessage {
  readonly role: "user" | "assistant" | "tool";
  readonly content: string;
  readonly name?: string;
}

export interface HandoffContext {
  readonly originalRequest: string;
  readonly conversationHistory: readonly ChatMessage[];
  readonly completedWork?: Record<string, unknown>;
  readonly requiredCapabilities: readonly string[];
  readonly metadata?: Record<string, unknown>;
  readonly userId?: string;
  readonly correlationId?: string;
}

export interface HandoffRequest {
  readonly id: string;
  readonly fromAgentId: string;
  readonly toAgentId: string;
  readonly reason: string;
  readonly task: string;
  readonly context: HandoffContext;
  readonly timestamp: Date;
  readonly conversationId: string;
  readonly maxIterations?: number;
}

export interface HandoffResult {
  readonly handoffId: string;
  readonly agentId: string;
  readonly agentName: string;
  readonly success: boolean;
  readonly result: unknown;
  readonly duration: number;
  readonly iterations: number;
  readonly conversationSummary?: string;
  readonly error?: string;
}

export interface AgentCapabilityProfile {
  readonly agentId: string;
  readonly agentName: string;
  readonly specialization: string;
  readonly capabilities: readonly string[];
  readonly description: string;
  readonly examples: readonly string[];
  readonly acceptsHandoffs: boolean;
}

/** Arguments of `handoff_to_specialist`. */
export interface ToolArguments {
  readonly specialist_type: string;
  readonly task: string;
  readonly reason: string;
  readonly context?: Record<string, unknown>;
  readonly required_capabilities?: readonly string[];
}

/** Where the agent stands when it calls the tool. The same `requestId` again is the same handoff. */
export interface ExecutionContext {
  readonly agentId: string;
  readonly conversationId: string;
  readonly userInput?: string;
  readonly conversationHistory?: readonly ChatMessage[];
  readonly userId?: string;
  readonly requestId?: string;
}

export type ToolResult =
  | {
      readonly success: true;
      readonly result: {
        readonly specialist_name: string;
        readonly specialist_response: unknown;
        readonly handoff_summary: string;
        readonly conversation_summary?: string;
        readonly iterations: number;
      };
    }
  | { readonly success: false; readonly result: null; readonly error: string };

export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly tags: readonly string[];
  readonly parameters: object;
}

/** What `AgentRunner.run` takes for a specialist. */
export interface SpecialistRun {
  readonly handoffId: string;
  readonly agent: { readonly id: string; readonly name: string };
  readonly userInput: string;
  readonly conversationId: string;
  readonly userId?: string;
  readonly maxIterations: number;
  readonly conversationHistory: readonly ChatMessage[];
}

/** What an agent's run comes to. */
export interface AgentResponse {
  readonly response: unknown;
  readonly iterations: number;
  readonly toolCalls: number;
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** The pattern's services for one agent. */
export class Jazz {
  constructor(
    readonly url: string,
    readonly key: string,
  ) {}

  /** A request, which is sent again while the broker is away. */
  async send(method: string, path: string, body?: unknown): Promise<Response> {
    for (;;) {
      try {
        const answer = await fetch(this.url + path, {
          method,
          headers: { authorization: `Bearer ${this.key}`, "content-type": "application/json" },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
        if (answer.status !== 503) return answer;
      } catch {
        // Not reached, or cut off while it waited.
      }
      await pause(200);
    }
  }

  /** Sends a request until its handoff has ended: 202 says that it is still open. */
  async #settled<T>(path: string, body: unknown): Promise<T> {
    for (;;) {
      const answer = await this.send("POST", path, body);
      if (answer.status !== 202) return (await answer.json()) as T;
      await answer.body?.cancel();
      await pause(100);
    }
  }

  executeHandoff(request: HandoffRequest): Promise<HandoffResult> {
    return this.#settled("/adapters/jazz/handoffs", request);
  }

  async getHandoffHistory(conversationId: string): Promise<readonly HandoffRequest[]> {
    const path = `/adapters/jazz/conversations/${encodeURIComponent(conversationId)}/handoffs`;
    return (await this.send("GET", path)).json() as Promise<readonly HandoffRequest[]>;
  }

  handoffToSpecialist(args: ToolArguments, executionContext: ExecutionContext): Promise<ToolResult> {
    return this.#settled("/adapters/jazz/tools/handoff_to_specialist", { ...args, executionContext });
  }

  async tools(): Promise<readonly ToolDefinition[]> {
    return (await this.send("GET", "/adapters/jazz/tools")).json() as Promise<readonly ToolDefinition[]>;
  }

  async registerAgent(profile: AgentCapabilityProfile): Promise<{ apiKey?: string }> {
    return (await this.send("PUT", "/adapters/jazz/agents", profile)).json() as Promise<{ apiKey?: string }>;
  }

  async listAvailableAgents(): Promise<readonly AgentCapabilityProfile[]> {
    const answer = await this.send("GET", "/adapters/jazz/agents");
    return answer.json() as Promise<readonly AgentCapabilityProfile[]>;
  }

  async guidance(agentId: string): Promise<string> {
    return (await this.send("GET", `/adapters/jazz/agents/${agentId}/handoff-guidance`)).text();
  }
}

/** A summary of a specialist's conversation. */
export function summarizeConversation(response: AgentResponse): string {
  return `Completed in ${response.iterations} iterations, used ${response.toolCalls} tool calls`;
}

/** Serves an agent's inbox: each handoff is run, and its result or its error goes back. */
export async function serve(
  jazz: Jazz,
  agentId: string,
  run: (run: SpecialistRun, jazz: Jazz) => Promise<AgentResponse>,
): Promise<never> {
  for (;;) {
    const inbox = await jazz.send("GET", `/agents/${agentId}/inbox?wait=10&max=1`);
    const { items } = (await inbox.json()) as { items: { handoffId: string; fencingToken: number }[] };
    for (const { handoffId, fencingToken } of items) {
      const say = (verb: string, body: object): Promise<Response> =>
        jazz.send("POST", `/handoffs/${handoffId}/${verb}`, { ...body, fencingToken });
      await say("accept", {});
      const asked = await jazz.send("GET", `/adapters/jazz/handoffs/${handoffId}/run`);
      try {
        const response = await run((await asked.json()) as SpecialistRun, jazz);
        const { response: result, iterations } = response;
        await say("complete", { result, iterations, conversationSummary: summarizeConversation(response) });
      } catch (error) {
        await say("fail", { error: error instanceof Error ? error.message : String(error) });
      }
    }
  }
}
