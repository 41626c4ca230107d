// Shows bytes on a headless xterm.js: reads lines of JSON {"cols","rows"} or {"data": base64}, answers {"lines","cursor"}.
const { Terminal } = require("@xterm/headless");
const { Unicode11Addon } = require("@xterm/addon-unicode11");
let terminal;
const answer = () => {
  const buffer = terminal.buffer.active;
  const lines = [];
  for (let row = 0; row < terminal.rows; row++) lines.push(buffer.getLine(buffer.baseY + row).translateToString(true));
  console.log(JSON.stringify({ lines, cursor: [buffer.cursorY, buffer.cursorX] }));
};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { cols, rows, data } = JSON.parse(line);
  if (cols) {
    if (terminal) terminal.dispose();
    terminal = new Terminal({ cols, rows, allowProposedApi: true, scrollback: 2000 });
    terminal.loadAddon(new Unicode11Addon());
    terminal.unicode.activeVersion = "11";
    console.log("{}");
  } else terminal.write(Buffer.from(data, "base64"), answer);
});
