// The xterm.js of a terminal and of the player: the same type, colours and links.

import "./style_policy.js";
import { Terminal } from "../vendor/xterm.mjs";
import { FitAddon } from "../vendor/addon-fit.mjs";
import { WebLinksAddon } from "../vendor/addon-web-links.mjs";
import { openLink } from "./terminal_guard.js";
import { onTheme, terminalColours } from "./theme.js";

const FONT = 'ui-monospace, "Cascadia Code", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

export function fontSize() {
  return Number(localStorage.getItem("fontSize")) || (innerWidth < 600 ? 12 : 13);
}

// Makes a terminal; stop() ends what keeps its colours those of the page.
export function newTerminal(options) {
  const terminal = new Terminal({
    allowProposedApi: true,
    fontFamily: FONT,
    fontSize: fontSize(),
    linkHandler: { activate: openLink, allowNonHttpProtocols: false },
    macOptionIsMeta: true,
    rightClickSelectsWord: false,
    screenReaderMode: localStorage.getItem("screenReader") === "yes",
    scrollback: 10000,
    theme: terminalColours(),
    ...options,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.loadAddon(new WebLinksAddon(openLink));
  import("../vendor/addon-unicode11.mjs").then(({ Unicode11Addon }) => {
    terminal.loadAddon(new Unicode11Addon());
    terminal.unicode.activeVersion = "11";
  });
  const stop = onTheme(() => { terminal.options.theme = terminalColours(); });
  return { terminal, fit, stop };
}
