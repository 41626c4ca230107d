// The recordings of this machine: the list, a search in all of them, and one that is played.

import { fill, h, iconButton } from "./dom.js";
import { bytes, clock, harmless, moment } from "./format.js";
import { ask, failed, menu } from "./notices.js";
import { RecordingPlayer } from "./recording_player.js";

export class RecordingsView {
  constructor(app) {
    this._app = app;
    this.kind = "recordings";
    this.place = null;
    this._body = h("tbody");
    this._empty = h("p", { class: "empty", role: "status" });
    this._heads = h("tr");
    this._pattern = h("input", { type: "search", name: "pattern", placeholder: "Find text in all recordings (regular expression)", "aria-label": "Find in all recordings", spellcheck: "false", autocomplete: "off", oninput: () => this._pattern.value || this.refresh() });
    this._anyCase = h("input", { type: "checkbox", checked: true });
    const form = h("form", { class: "run", onsubmit: (event) => { event.preventDefault(); this._find(); } }, this._pattern, h("label", { class: "check" }, this._anyCase, "any case"), h("button", { type: "submit", class: "button primary" }, "Find"));
    this.element = h(
      "div",
      { class: "view recordings" },
      h("header", { class: "view-head" }, h("h1", {}, "Recordings"), h("span", { class: "grow" }), iconButton("refresh", "Refresh", () => this.refresh())),
      form,
      h("table", { class: "rows" }, h("thead", {}, this._heads), this._body),
      this._empty,
    );
  }

  shown() {
    if (!this._pattern.value) this.refresh();
  }

  dispose() {}

  async refresh() {
    this._pattern.value = "";
    try {
      const listed = await this._app.link.call("recording.list");
      this._table(["Recording", "Started", "Size", ""], listed.map((each) => this._row(each)));
      this._empty.textContent = listed.length ? "" : "There are no recordings on this machine. `exec-server web --record` and `exec-server shell --record` make some.";
    } catch (error) {
      this._empty.textContent = error.message;
    }
  }

  _table(heads, rows) {
    fill(this._heads, heads.map((text) => h("th", { scope: "col" }, text)));
    fill(this._body, rows);
  }

  _row(facts) {
    const name = h("button", { type: "button", class: "link", onclick: () => this._app.openRecording(facts.name) }, harmless(facts.command ?? facts.name, 200));
    const notes = [facts.name, `${facts.columns}×${facts.rows}`, facts.owner && harmless(facts.owner)].filter(Boolean).join(" · ");
    return h(
      "tr",
      {},
      h("td", { class: "command" }, name, h("div", { class: "notes" }, notes)),
      h("td", { class: "when" }, moment(facts.startedAt)),
      h("td", { class: "number" }, bytes(facts.bytes)),
      h("td", { class: "actions" }, iconButton("more", `Actions for ${facts.name}`, (event) => this._more(event.currentTarget, facts))),
    );
  }

  _more(anchor, facts) {
    menu(anchor, [
      ["Play", () => this._app.openRecording(facts.name)],
      ["Copy the name", () => navigator.clipboard.writeText(facts.name).catch(failed)],
      ["Delete", () => this._remove(facts), true],
    ]);
  }

  async _remove(facts) {
    const sure = await ask("Delete the recording?", { text: `${facts.name} This cannot be undone.`, yes: "Delete", isDanger: true });
    if (sure) this._app.link.call("recording.remove", { name: facts.name }).then(() => this.refresh(), failed);
  }

  async _find() {
    const pattern = this._pattern.value;
    if (!pattern) return this.refresh();
    this._empty.textContent = "Searching… The first search in a recording takes longer.";
    try {
      const { found, problems, more } = await this._app.link.call("recording.find", { pattern, ignoreCase: this._anyCase.checked });
      if (pattern !== this._pattern.value) return;
      this._table(["Text", "Recording", "Time", "Row"], found.map((each) => this._foundRow(each)));
      const words = [`${found.length}${more ? " or more" : ""} found`, problems.length && `${problems.length} recordings cannot be read`];
      this._empty.textContent = `${words.filter(Boolean).join(", ")}.`;
    } catch (error) {
      this._empty.textContent = error.message;
    }
  }

  _foundRow({ name, time, row, text }) {
    return h(
      "tr",
      {},
      h("td", { class: "command" }, h("button", { type: "button", class: "link", onclick: () => this._app.openRecording(name, { time, row }) }, harmless(text, 300) || "(empty)")),
      h("td", { class: "notes" }, name),
      h("td", { class: "number" }, clock(time)),
      h("td", { class: "number" }, String(row)),
    );
  }
}

// One recording in a tab.
export class RecordingView {
  // found is a moment and a row to begin with.
  constructor(app, name, found) {
    this.kind = "recording";
    this.place = null;
    this.name = name;
    this._found = found;
    this.player = new RecordingPlayer(app, { name });
    this.element = h("div", { class: "terminal-tab" }, this.player.element);
  }

  shown() {
    if (!this._isStarted) {
      this._isStarted = true;
      const isPlayed = !this._found;
      this.player.start(this._found?.time, this._found?.row).then(() => isPlayed && this.player.play());
    } else this.player.focus();
  }

  dispose() {
    this.player.dispose();
  }
}
