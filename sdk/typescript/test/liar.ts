// A server that says whatever bytes a test wants, a connection each.

import { once } from "node:events";
import { createServer, type Socket } from "node:net";

/** What is sent before the connection is closed, or what is done with the connection. */
export type Saying = string | Buffer | ((socket: Socket) => void);

/** A whole answer; its `content-length` may be said otherwise. */
export function answer(
  status: number,
  body: string | Buffer = "",
  headers: Record<string, string> = {},
): Buffer {
  const bytes = Buffer.from(body as string);
  const length = String(bytes.length);
  const said = {
    "content-type": "application/json",
    "content-length": length,
    connection: "close",
    ...headers,
  };
  const lines = Object.entries(said).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.concat([Buffer.from(`HTTP/1.1 ${status} Said\r\n${lines.join("")}\r\n`, "latin1"), bytes]);
}

export interface Liar {
  readonly url: string;
  /** The requests that it saw: head and body. */
  readonly seen: string[];
  stop(): Promise<void>;
}

/** Connections after the last saying get `{"items": []}`. */
export async function startLiar(...sayings: Saying[]): Promise<Liar> {
  const seen: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).on("close", () => sockets.delete(socket));
    let text = "";
    socket.on("data", (part) => {
      text += part.toString("latin1");
      const [head = "", body] = text.split("\r\n\r\n", 2);
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
      if (body === undefined || body.length < length) return;
      seen.push(text);
      text = "";
      const saying = sayings.shift() ?? answer(200, '{"items": []}');
      if (typeof saying === "function") saying(socket);
      else socket.end(saying);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  const stop = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, "close");
  };
  return { url: `http://127.0.0.1:${address.port}`, seen, stop };
}
