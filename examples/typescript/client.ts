// A small client in TypeScript: runs a command on a server and prints its output.
//
//     node client.js ws://127.0.0.1:41181 uname -a
//
// The types of all messages are made from docs/protocol/json-schema.json by `make protocol-check`.
import { randomUUID } from "node:crypto";
import WebSocket from "ws";
import type { ExitedEvent, OutputEvent, StartParams } from "./protocol";

const [url, ...argv] = process.argv.slice(2);
const socket = new WebSocket(url);
const waiting = new Map<number, (result: unknown) => void>();
let lastId = 0;

function call(method: string, params: unknown): Promise<unknown> {
  const id = ++lastId;
  socket.send(JSON.stringify({ id, method, params }));
  return new Promise((resolve) => waiting.set(id, resolve));
}

socket.on("message", (data) => {
  const message = JSON.parse(data.toString());
  if (message.method === "process/output") {
    const event: OutputEvent = message.params;
    process.stdout.write(Buffer.from(event.chunk, "base64"));
  } else if (message.method === "process/exited") {
    const event: ExitedEvent = message.params;
    process.exitCode = event.exitCode ?? 1;
  } else if (message.method === "process/closed") {
    socket.close();
  } else if (message.error) {
    console.error(message.error.message);
    process.exitCode = 1;
    socket.close();
  } else {
    waiting.get(message.id)?.(message.result);
    waiting.delete(message.id);
  }
});

socket.on("open", async () => {
  await call("initialize", { clientName: "typescript-example" });
  socket.send(JSON.stringify({ method: "initialized", params: {} }));
  const start: StartParams = {
    processId: randomUUID(),
    argv,
    cwd: "file:///tmp",
    env: { PATH: "/usr/local/bin:/usr/bin:/bin" },
    tty: false,
  };
  await call("process/start", start);
});
