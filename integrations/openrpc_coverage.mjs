// Calls every method of a live server with generated parameters, and compares the answers with the
// OpenRPC document: node openrpc_coverage.mjs DOCUMENT FOLDER URL.
// The packages are in FOLDER. The last line of the output is JSON.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [document, modules, url] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const testCoverage = require("@open-rpc/test-coverage").default;
const { default: FakerRule } = require("@open-rpc/test-coverage/build/rules/json-schema-faker-rule.js");
const CALLS_OF_A_METHOD = 5;
const SECONDS = 20;

// One connection for each call, because calls with generated parameters may end one.
async function call(_, method, params) {
  const socket = new WebSocket(url);
  const answers = new Map();
  const lost = new Promise((_, reject) => {
    socket.onerror = () => reject(new Error(`${method}: no connection`));
    socket.onclose = () => reject(new Error(`${method}: the connection was closed`));
    setTimeout(() => reject(new Error(`${method}: no answer`)), SECONDS * 1000).unref();
  });
  lost.catch(() => {});
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.method === undefined) answers.get(message.id)?.(message);
  };
  const ask = (id, name, given) =>
    Promise.race([
      lost,
      new Promise((resolve) => {
        answers.set(id, resolve);
        socket.send(JSON.stringify({ id, method: name, params: given }));
      }),
    ]);
  try {
    await Promise.race([lost, new Promise((resolve) => (socket.onopen = resolve))]);
    if (method === "initialize") return await ask(1, method, params);
    await ask(1, "initialize", { clientName: "coverage" });
    socket.send(JSON.stringify({ method: "initialized", params: {} }));
    return await ask(2, method, params);
  } finally {
    socket.close();
  }
}

const original = JSON.parse(readFileSync(document, "utf8"));

// The library takes no references. What refers to itself accepts anything below.
function inlined(value, above = []) {
  if (Array.isArray(value)) return value.map((each) => inlined(each, above));
  if (value === null || typeof value !== "object") return value;
  const reference = value.$ref;
  if (typeof reference === "string") {
    if (above.includes(reference)) return {};
    const target = reference.slice(2).split("/").reduce((found, part) => found[part], original);
    return inlined(target, [...above, reference]);
  }
  // Its generator knows the older word for tuples alone.
  const entries = Object.entries(value).map(([key, each]) => [
    key === "prefixItems" ? "items" : key,
    inlined(each, above),
  ]);
  const isKept = ([key, each]) => !key.startsWith("x-") && (key !== "items" || each !== false);
  return Object.fromEntries(entries.filter(isKept));
}

const openrpcDocument = { ...original, methods: inlined(original.methods) };
// A method with examples gets no generated parameters.
for (const method of openrpcDocument.methods) delete method.examples;
// Notifications have no answer, and one method is for clients. The last call stops the server.
openrpcDocument.methods = openrpcDocument.methods
  .filter((each) => each.result && each.name !== "network/policyRequest")
  .sort((one, other) => (one.name === "server/stop") - (other.name === "server/stop"));
openrpcDocument.servers = [{ name: "server", url }];
const rules = [new FakerRule({ skip: [], only: [], numCalls: CALLS_OF_A_METHOD })];
const calls = await testCoverage({ openrpcDocument, transport: call, reporters: ["empty"], rules });
// An answer with an error is an answer: generated parameters rarely make sense.
const stop = (each) => each.methodName === "server/stop" && each.requestError;
const bad = calls.filter((each) => (!each.valid && !each.error && !stop(each)) || (each.requestError && !stop(each)));
process.stdout.write(
  "\n" +
  JSON.stringify({
    methods: new Set(calls.map((each) => each.methodName)).size,
    calls: calls.length,
    results: calls.filter((each) => each.result !== undefined && !each.error).length,
    bad: bad.map(({ methodName, params, reason, requestError, result }) => ({
      methodName, params, reason, requestError: String(requestError), result,
    })),
  }),
);
process.exit(bad.length ? 1 : 0);
