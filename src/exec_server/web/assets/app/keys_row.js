// A row of keys that phones do not have. Ctrl and Alt apply to the next key.

import { button, h } from "./dom.js";

const KEYS = [
  ["Esc", "\x1b"],
  ["Tab", "\t"],
  ["Ctrl", "ctrl"],
  ["Alt", "alt"],
  ["←", "arrow:D", "Left"],
  ["↓", "arrow:B", "Down"],
  ["↑", "arrow:A", "Up"],
  ["→", "arrow:C", "Right"],
  ["^C", "\x03", "Ctrl C"],
  ["^D", "\x04", "Ctrl D"],
  ["/", "/"],
  ["-", "-"],
  ["|", "|"],
  ["~", "~"],
  ["Home", "arrow:H"],
  ["End", "arrow:F"],
  ["PgUp", "\x1b[5~"],
  ["PgDn", "\x1b[6~"],
  ["Paste", "paste"],
];

export class KeysRow {
  constructor(currentPane) {
    this._currentPane = currentPane;
    this._held = new Set();
    this._buttons = new Map();
    this.element = h("div", { class: "keys", role: "toolbar", "aria-label": "Keys" }, KEYS.map((each) => this._button(...each)));
  }

  _button(label, what, name) {
    const made = button(label, () => this._press(what), { class: "key", "aria-label": name });
    // The keyboard of the phone stays open.
    made.addEventListener("pointerdown", (event) => event.preventDefault());
    if (what === "ctrl" || what === "alt") {
      made.setAttribute("aria-pressed", "false");
      this._buttons.set(what, made);
    }
    return made;
  }

  _press(what) {
    const pane = this._currentPane();
    if (what === "ctrl" || what === "alt") this._hold(what, !this._held.has(what));
    else if (!pane) return;
    else if (what === "paste") pane.pasteClipboard();
    else if (what.startsWith("arrow:")) {
      const before = pane.terminal.modes.applicationCursorKeysMode ? "\x1bO" : "\x1b[";
      pane.typeText(before + what.slice(6));
    } else pane.typeText(this.apply(what));
  }

  _hold(name, isHeld) {
    if (isHeld) this._held.add(name);
    else this._held.delete(name);
    this._buttons.get(name).setAttribute("aria-pressed", String(isHeld));
  }

  // What is typed, with the held keys applied once.
  apply(text) {
    if (!this._held.size || text.length !== 1) return text;
    let result = text;
    if (this._held.has("ctrl")) {
      const code = text.toUpperCase().charCodeAt(0);
      if (code >= 64 && code < 96) result = String.fromCharCode(code - 64);
      else if (text === " ") result = "\0";
    }
    if (this._held.has("alt")) result = `\x1b${result}`;
    for (const name of [...this._held]) this._hold(name, false);
    return result;
  }
}
