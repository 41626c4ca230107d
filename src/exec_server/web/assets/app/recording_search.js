// Finds text in one recording, also such that only an editor has shown, and goes to its moments.

import { h, iconButton } from "./dom.js";
import { clock } from "./format.js";

export class RecordingSearch {
  constructor(player, link, words) {
    this._player = player;
    this._link = link;
    this._words = words;
    this._found = [];
    this._at = -1;
    this._asked = null;
    this._count = h("span", { class: "count", role: "status" });
    this._input = h("input", { type: "search", placeholder: "Regular expression", "aria-label": "Search in the recording", spellcheck: "false", autocomplete: "off", onkeydown: (event) => this._key(event) });
    this.element = h(
      "div",
      { class: "search", role: "search", hidden: true },
      this._input,
      this._count,
      iconButton("up", "Previous (Shift+Enter, N)", () => this._go(-1)),
      iconButton("down", "Next (Enter, n)", () => this._go(1)),
      iconButton("close", "Close (Esc)", () => this.hide()),
    );
  }

  show() {
    this.element.hidden = false;
    this._input.focus();
    this._input.select();
  }

  hide() {
    this.element.hidden = true;
    this._player.focus();
  }

  _key(event) {
    if (event.key === "Enter") this._go(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") this.hide();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  async _go(direction) {
    const pattern = this._input.value;
    if (!pattern) return;
    if (pattern !== this._asked && !(await this._find(pattern))) return;
    this.step(direction);
  }

  // The next or the previous place, from the moment that is shown.
  step(direction) {
    if (!this._found.length) return;
    if (this._at < 0) this._at = direction > 0 ? this._found.findIndex((each) => each.time >= this._player.time) : this._found.findLastIndex((each) => each.time <= this._player.time);
    else this._at += direction;
    this._at = (this._at + this._found.length) % this._found.length;
    const { time, row } = this._found[this._at];
    this._count.textContent = `${this._at + 1} of ${this._found.length} · ${clock(time)}`;
    this._player.showFound(time, row);
  }

  async _find(pattern) {
    this._count.textContent = "searching…";
    try {
      const { found } = await this._link.call("recording.find", { ...this._words, pattern });
      this._found = found;
      this._asked = pattern;
      this._at = -1;
      if (!found.length) this._count.textContent = "none";
      return found.length > 0;
    } catch (error) {
      this._count.textContent = error.message;
      return false;
    }
  }
}
