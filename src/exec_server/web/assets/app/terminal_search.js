// The search bar of a terminal, and the question before several lines are pasted.

import { h, iconButton } from "./dom.js";
import { ask } from "./notices.js";

export class TerminalSearch {
  constructor(pane) {
    this._pane = pane;
    this._addon = null;
    this._count = h("span", { class: "count", role: "status" });
    this._input = h("input", {
      type: "search",
      placeholder: "Search",
      "aria-label": "Search in the terminal",
      oninput: () => this._find(true),
      onkeydown: (event) => this._key(event),
    });
    this.element = h(
      "div",
      { class: "search", role: "search", hidden: true },
      this._input,
      this._count,
      iconButton("up", "Previous (Shift+Enter)", () => this._find(false, true)),
      iconButton("down", "Next (Enter)", () => this._find(false)),
      iconButton("close", "Close (Esc)", () => this.hide()),
    );
  }

  async show() {
    this.element.hidden = false;
    this._input.focus();
    this._input.select();
    if (this._addon === null) {
      const { SearchAddon } = await import("../vendor/addon-search.mjs");
      this._addon = new SearchAddon();
      this._pane.terminal.loadAddon(this._addon);
      this._addon.onDidChangeResults(({ resultIndex, resultCount }) => {
        this._count.textContent = resultCount ? `${resultIndex + 1} of ${resultCount}` : "none";
      });
      this._find(true);
    }
  }

  hide() {
    this.element.hidden = true;
    this._addon?.clearDecorations();
    this._pane.focus();
  }

  _find(incremental, backwards = false) {
    const text = this._input.value;
    if (!this._addon) return;
    if (!text) {
      this._addon.clearDecorations();
      this._count.textContent = "";
      return;
    }
    const decorations = { matchOverviewRuler: "#d29922", activeMatchColorOverviewRuler: "#f0883e", matchBackground: "#5a4a12", activeMatchBackground: "#9e6a03" };
    const options = { incremental, decorations };
    if (backwards) this._addon.findPrevious(text, options);
    else this._addon.findNext(text, options);
  }

  _key(event) {
    if (event.key === "Enter") this._find(false, event.shiftKey);
    else if (event.key === "Escape") this.hide();
    else return;
    event.preventDefault();
  }
}

// Without bracketed paste a shell runs each line at once.
export async function askAboutPaste(text, isBracketed) {
  const lines = text.trimEnd().split("\n").length;
  if (isBracketed || lines < 2) return true;
  const question = `These are ${lines} lines. The program may run each of them at once.`;
  return (await ask("Paste several lines?", { text: question, yes: "Paste" })) !== null;
}
