#!/usr/bin/env bash
# Let programs of others read docs/protocol: an OpenRPC validator accepts the document, types for TypeScript are made
# from the schemas and compiled, and a client that uses them runs a command on a server of ours. Needs npm.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
folder=$PWD/build/protocol-check
packages=(@open-rpc/schema-utils-js@2 json-schema-to-typescript@15 typescript@5 ws@8 @types/ws@8 @types/node@20)

mkdir -p "$folder"
cp docs/protocol/*.json examples/typescript/client.ts "$folder/"
cd "$folder"
npm install --no-save --no-audit --no-fund --no-update-notifier --ignore-scripts --loglevel=error "${packages[@]}" >/dev/null

node - <<'JS'
const { readFileSync } = require("node:fs");
const { validateOpenRPCDocument } = require("@open-rpc/schema-utils-js");
const verdict = validateOpenRPCDocument(JSON.parse(readFileSync("openrpc.json", "utf8")));
if (verdict !== true) throw verdict;
console.log("openrpc.json: accepted by @open-rpc/schema-utils-js");
JS

node_modules/.bin/json2ts --unreachableDefinitions -i json-schema.json -o protocol.ts
node_modules/.bin/tsc --strict --target es2022 --module commonjs --moduleResolution node --esModuleInterop \
    --skipLibCheck client.ts protocol.ts
echo "json-schema.json: $(grep -c '^export interface' protocol.ts) interfaces, compiled by tsc $(node_modules/.bin/tsc --version)"

coproc server { exec "$python" -m exec_server --listen ws://127.0.0.1:0 2>/dev/null; }
pid=$server_PID
trap 'kill "$pid" 2>/dev/null || true' EXIT
read -r -t 20 url <&"${server[0]}"
said=$(timeout 30 node client.js "$url" sh -c 'echo hello from a client in TypeScript')
[ "$said" = "hello from a client in TypeScript" ]
echo "client.ts: ran a command on $url"
