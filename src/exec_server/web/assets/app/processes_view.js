// The processes and jobs of an environment: state, usage, why they ended, and signals.

import { button, fill, h, iconButton } from "./dom.js";
import { ago, commandLine, endWords, moment, processState, usageWords } from "./format.js";
import { ask, failed, menu } from "./notices.js";

const EVERY = 2000;
// The server's code for a session that another program holds.
const ATTACHED = -32010;

export class ProcessesView {
  constructor(app, id) {
    this._app = app;
    this.kind = "processes";
    this.place = id;
    this._listed = [];
    this._body = h("tbody");
    this._empty = h("p", { class: "empty" });
    this._line = h("input", { type: "text", name: "line", placeholder: "Run a command, for example: make test", "aria-label": "Command", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
    this._keeps = h("input", { type: "checkbox" });
    const form = h("form", { class: "run", onsubmit: (event) => { event.preventDefault(); this._run(); } }, this._line, h("label", { class: "check", title: "It outlives this page and the server" }, this._keeps, "durable"), h("button", { type: "submit", class: "button primary" }, "Run"));
    const heads = ["State", "Command", "Started", "Used", ""];
    const table = h("table", { class: "rows" }, h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), this._body);
    this.element = h("div", { class: "view processes" }, h("header", { class: "view-head" }, h("h1", {}, "Processes"), h("span", { class: "grow" }), iconButton("refresh", "Refresh", () => this.refresh())), form, table, this._empty);
    this._timer = setInterval(() => this._isVisible && this.refresh(), EVERY);
  }

  get _isVisible() {
    return !document.hidden && this._app.tabs.current === this;
  }

  shown() {
    this.refresh();
  }

  async refresh() {
    if (this._isAsking) return;
    this._isAsking = true;
    try {
      this._listed = await this._app.link.call("process.list", { place: this.place });
      this._empty.textContent = this._listed.length ? "" : "No processes. Terminals and commands that you start appear here.";
    } catch (error) {
      this._empty.textContent = error.message;
    } finally {
      this._isAsking = false;
    }
    this._draw();
  }

  _draw() {
    const text = JSON.stringify(this._listed);
    if (text === this._drawnText && this._drawnAt > Date.now() - 10000) return;
    if (this._body.contains(document.activeElement) && text === this._drawnText) return;
    this._drawnText = text;
    this._drawnAt = Date.now();
    fill(this._body, this._listed.map((facts) => this._row(facts)));
  }

  _row(facts) {
    const state = processState(facts);
    const notes = [facts.name, facts.durable && "durable", facts.terminal && "terminal", facts.pid && `pid ${facts.pid}`, facts.sessionId && facts.attached && "attached elsewhere"].filter(Boolean);
    return h(
      "tr",
      {},
      h("td", { "data-label": "State" }, h("span", { class: `chip ${state.kind}` }, state.text)),
      h("td", { class: "command", "data-label": "Command" }, h("button", { type: "button", class: "link", onclick: () => this._open(facts) }, commandLine(facts.argv)), h("div", { class: "notes" }, notes.join(" · ")), facts.end && facts.end.cause !== "exited" && h("div", { class: "notes" }, endWords(facts.end))),
      h("td", { "data-label": "Started", title: moment(facts.startedAt) }, ago(facts.startedAt)),
      h("td", { "data-label": "Used" }, usageWords(facts.usage)),
      h("td", { class: "actions" }, iconButton("more", `Actions for ${commandLine(facts.argv)}`, (event) => this._more(event.currentTarget, facts))),
    );
  }

  _more(anchor, facts) {
    const words = { place: this.place, process: facts.processId, session: facts.sessionId };
    const call = (name, more) => () => this._app.link.call(name, { ...words, ...more }).then(() => this.refresh(), failed);
    const entries = [[facts.sessionId && this._canWatch ? "Watch" : "Show output", () => this._open(facts)]];
    if (facts.sessionId && facts.durable && this._canWatch && !facts.shown) entries.push(["Take over its session", () => this._open(facts, true)]);
    const isOwn = !facts.sessionId || facts.shown;
    if (facts.state === "running" && isOwn) {
      const id = facts.shown ?? undefined;
      entries.push(["Interrupt (SIGINT)", call("process.signal", { id, signal: "SIGINT" })], ["Ask to end (SIGTERM)", call("process.signal", { id, signal: "SIGTERM" })], ["Hang up (SIGHUP)", call("process.signal", { id, signal: "SIGHUP" })], ["Kill (SIGKILL)", call("process.signal", { id, signal: "SIGKILL" }), true]);
    }
    if (facts.durable && facts.state !== "running") entries.push(["Forget it and its output", call("process.prune"), true]);
    menu(anchor, entries);
  }

  get _canWatch() {
    return this._app.places.get(this.place)?.info?.capabilities?.includes("processWatch");
  }

  async _open(facts, take = false) {
    if (facts.sessionId && this._canWatch && !take) return this._watch(facts);
    const words = { place: this.place, process: facts.processId, session: facts.sessionId, take, columns: 80, rows: 24 };
    try {
      this._app.openShown(await this._app.link.call("process.attach", words));
    } catch (error) {
      if (error.code !== ATTACHED || take) return failed(error);
      const answer = await ask("Another program follows this job", { text: "It can be taken from there; that program loses it, and the job runs on.", yes: "Take it" });
      if (answer) await this._open(facts, true);
    }
  }

  // Looks on; the keyboard can be taken then.
  async _watch(facts) {
    const words = { place: this.place, process: facts.processId, session: facts.sessionId, name: facts.name, columns: 80, rows: 24 };
    try {
      this._app.openShown(await this._app.link.call("process.watch", words));
    } catch (error) {
      failed(error);
    }
  }

  async _run() {
    const line = this._line.value.trim();
    if (!line) return this._line.focus();
    try {
      const words = { place: this.place, line, terminal: false, durable: this._keeps.checked, columns: 80, rows: 24 };
      this._app.openShown(await this._app.link.call("process.start", words));
      this._line.value = "";
    } catch (error) {
      failed(error);
    }
  }

  dispose() {
    clearInterval(this._timer);
  }
}
