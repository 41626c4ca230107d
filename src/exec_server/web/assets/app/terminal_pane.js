// One terminal or the output of one command: xterm.js, its bytes, its size and its bar.

import { button, fill, h, iconButton } from "./dom.js";
import { commandLine, defaultTitle, endWords, harmless, processState, usageWords } from "./format.js";
import { failed, menu, notice } from "./notices.js";
import { guardClipboard, silenceQueries } from "./terminal_guard.js";
import { newTerminal } from "./terminal_screen.js";
import { askAboutPaste, TerminalSearch } from "./terminal_search.js";

const RESIZE_PAUSE = 80;
// Acknowledgements are sent for so many bytes together, or when everything is drawn.
const ACKNOWLEDGE = 32 * 1024;
const PIECE = 64 * 1024;
const encoder = new TextEncoder();

export class TerminalPane {
  constructor(app, facts) {
    this.app = app;
    this.facts = facts;
    this.title = defaultTitle(facts);
    this.onTitle = () => {};
    this.onFocus = () => {};
    this._channel = null;
    this._undrawn = 0;
    this._unsaid = 0;
    this._isReplaying = false;
    this._isSizedElsewhere = false;
    this._resizeTimer = 0;
    this._make();
  }

  _make() {
    const isTerminal = this.facts.terminal;
    const made = newTerminal({ convertEol: !isTerminal, cursorBlink: isTerminal, disableStdin: !isTerminal });
    this.terminal = made.terminal;
    this._fit = made.fit;
    this._stopTheme = made.stop;
    guardClipboard(this.terminal);
    silenceQueries(this.terminal, () => this._isReplaying || this._isSizedElsewhere || document.hidden || !this._drives);
    this.search = new TerminalSearch(this);
    this.screen = h("div", { class: "screen" });
    this._state = h("span", { class: "chip" });
    this._name = h("span", { class: "pane-name" });
    this._report = h("div", { class: "report", hidden: true });
    this._elsewhere = h("button", { type: "button", class: "elsewhere", hidden: true, onclick: () => this._takeSize() }, "Sized by another window. Use the size of this one");
    this.bar = h(
      "div",
      { class: "pane-bar" },
      this._name,
      this._state,
      h("span", { class: "grow" }),
      iconButton("search", "Search (Ctrl+Shift+F)", () => this.search.show()),
      this.facts.history && iconButton("history", "Go back (Alt+Shift+H)", () => this.goBack()),
      iconButton("columns", "Split right (Alt+Shift+D)", () => this.app.split(this, "row")),
      iconButton("rows", "Split down (Alt+Shift+S)", () => this.app.split(this, "column")),
      iconButton("more", "More", (event) => this._more(event.currentTarget)),
      iconButton("close", "Close (Alt+Shift+W)", () => this.app.closePane(this)),
    );
    this._control = h("div", { class: "control", hidden: true });
    this.element = h("section", { class: "pane", "aria-label": "Terminal", "data-shown": this.facts.id }, this.bar, this.search.element, this._control, this._elsewhere, this.screen, this._report);
    this.element.addEventListener("focusin", () => this._focused());
    this.terminal.attachCustomKeyEventHandler((event) => this._key(event));
    this.terminal.onData((text) => this._typed(text));
    this.terminal.onBinary((text) => this._send(Uint8Array.from(text, (each) => each.charCodeAt(0))));
    this.terminal.onTitleChange((text) => this._setTitle(text));
    this._observer = new ResizeObserver(() => this._resizeSoon());
    this._showFacts();
  }

  // Called once the element is in the page.
  async start() {
    this.terminal.open(this.screen);
    // A mouse click on the screen must not lose the keys.
    this.terminal.textarea.setAttribute("aria-label", `Terminal: ${this.title}`);
    this._observer.observe(this.screen);
    this.fit();
    await this.follow();
  }

  async follow() {
    this._channel = null;
    this._undrawn = this._unsaid = 0;
    try {
      const { channel, facts } = await this.app.link.follow(this.facts.id, (bytes, isFrame) => this._receive(bytes, isFrame));
      this._channel = channel;
      this.update(facts);
      if (!this._isSizedElsewhere) this._sendSize();
    } catch (error) {
      if (this.app.link.state === "open") {
        this.facts = { ...this.facts, state: "left", problem: error.message };
        this._showFacts();
      }
    }
  }

  // Output. It counts as drawn when xterm.js has parsed it.

  _receive(bytes, isFrame) {
    if (isFrame) {
      this._isReplaying = true;
      this.terminal.reset();
    }
    const channel = this._channel;
    this._undrawn += bytes.length;
    this.terminal.write(bytes, () => {
      if (isFrame) this._isReplaying = false;
      this._drawn(channel, bytes.length);
    });
  }

  _drawn(channel, count) {
    if (channel !== null && channel !== this._channel) return;
    this._undrawn -= count;
    this._unsaid += count;
    if (this._channel !== null && (this._unsaid >= ACKNOWLEDGE || this._undrawn <= 0)) {
      this.app.link.drawn(this._channel, this._unsaid);
      this._unsaid = 0;
    }
  }

  // Input.

  _typed(text) {
    // A frame asks nothing, so what comes while one is drawn was typed by the person.
    this._send(encoder.encode(this.app.keys.apply(text)));
  }

  _send(bytes) {
    if (this._channel === null || this.facts.state !== "running" || !this._drives) return;
    for (let at = 0; at < bytes.length; at += PIECE) this.app.link.type(this._channel, bytes.subarray(at, at + PIECE));
  }

  typeText(text) {
    this._send(encoder.encode(text));
    this.focus();
  }

  async paste(text) {
    if (!text || !(await askAboutPaste(text, this.terminal.modes.bracketedPasteMode))) return;
    this.terminal.paste(text);
    this.focus();
  }

  async pasteClipboard() {
    try {
      await this.paste(await navigator.clipboard.readText());
    } catch {
      notice("The browser does not let the page read the clipboard; use its own menu to paste.");
    }
  }

  async copy() {
    const text = this.terminal.getSelection();
    if (text) await navigator.clipboard.writeText(text).catch(failed);
  }

  _key(event) {
    if (event.type !== "keydown") return true;
    const both = event.ctrlKey && event.shiftKey && !event.altKey;
    if (both && event.code === "KeyC") this.copy();
    else if (both && event.code === "KeyV") this.pasteClipboard();
    else if (both && event.code === "KeyF") this.search.show();
    else if (this.app.isShortcut(event)) return false;
    else return true;
    event.preventDefault();
    return false;
  }

  // Size. Only one window gives a terminal its size; the others show it in that size.

  fit() {
    if (this._isSizedElsewhere || !this._drives || !this.screen.offsetWidth) return;
    const size = this._fit.proposeDimensions();
    if (size && size.cols > 1 && size.rows > 0) this.terminal.resize(Math.min(size.cols, 1000), Math.min(size.rows, 1000));
  }

  _resizeSoon() {
    clearTimeout(this._resizeTimer);
    this._resizeTimer = setTimeout(() => {
      this.fit();
      if (!this._isSizedElsewhere) this._sendSize();
    }, RESIZE_PAUSE);
  }

  _sendSize() {
    const { cols, rows } = this.terminal;
    const isKnown = cols === this.facts.columns && rows === this.facts.rows;
    if (isKnown || !this._drives || !this.screen.offsetWidth || document.hidden || !this.facts.terminal || this.facts.state !== "running") return;
    this.facts = { ...this.facts, columns: cols, rows };
    this.app.link.call("shown.resize", { id: this.facts.id, columns: cols, rows }).catch(() => {});
  }

  _takeSize() {
    this._isSizedElsewhere = false;
    this._elsewhere.hidden = true;
    this.fit();
    this._sendSize();
    this.focus();
  }

  _focused() {
    this.onFocus();
    if (this._isSizedElsewhere && document.hasFocus()) this._takeSize();
  }

  // Facts.

  update(facts) {
    const hasTaken = facts.drives && this.facts.drives === false;
    const isOther = facts.terminal && (facts.columns !== this.facts.columns || facts.rows !== this.facts.rows);
    this.facts = facts;
    if (!this._drives && facts.terminal) {
      // Those who look on see the terminal in the size that its driver gives it.
      this.terminal.resize(facts.columns, facts.rows);
    } else if (hasTaken) {
      this._takeSize();
    } else if (isOther && !(document.hasFocus() && this.element.contains(document.activeElement))) {
      this._isSizedElsewhere = true;
      this._elsewhere.hidden = false;
      this.terminal.resize(facts.columns, facts.rows);
    }
    this._showFacts();
  }

  get _drives() {
    return this.facts.drives !== false;
  }

  // Who drives, if the process is shared, and how to take the input or give it back.
  _showControl() {
    const { watched, people = [], person, state } = this.facts;
    const driver = people.find((each) => each.drives);
    const act = (name) => () => this.app.link.call(name, { id: this.facts.id }).catch(failed);
    const others = people.filter((each) => !each.drives && each.connected && each.name !== person).map((each) => harmless(each.name || each.kind, 30));
    this._control.hidden = state !== "running" || (this._drives && !watched && people.length < 2);
    if (this._control.hidden) return;
    const who = driver ? `${harmless(driver.name || driver.principal, 30)} (${driver.kind})` : "Another participant";
    const words = this._drives ? "You drive." : `Watching. ${who} drives.`;
    fill(
      this._control,
      h("span", { role: "status" }, words, others.length > 0 && h("span", { class: "notes" }, ` Also here: ${others.join(", ")}`)),
      h("span", { class: "grow" }),
      this._drives ? watched && button("Give back", act("shown.giveBack"), { class: "button small" }) : button("Take the keyboard", act("shown.take"), { class: "button small primary" }),
    );
  }

  _setTitle(text) {
    this.title = harmless(text) || defaultTitle(this.facts);
    this._showFacts();
  }

  // The connection to its server was lost, or is back.
  placeChanged() {
    this._showFacts();
  }

  _showFacts() {
    const facts = this.facts;
    const state = processState(facts);
    this._name.textContent = harmless(this.title, 120);
    this._name.title = commandLine(facts.argv);
    const isAway = facts.state === "running" && this.app.places.get(facts.place)?.state === "recovering";
    this._state.textContent = isAway ? "reconnecting…" : state.text;
    this._state.className = `chip ${isAway ? "wait" : state.kind}`;
    this._state.hidden = facts.state === "running" && facts.terminal && !isAway;
    const words = [facts.problem, endWords(facts.end), usageWords(facts.usage)].filter(Boolean);
    this._report.hidden = facts.state === "running" || facts.state === "starting";
    this._report.textContent = [state.text, ...words].join(" — ");
    this._report.className = `report ${state.kind}`;
    if (facts.state !== "running") this.terminal.options.cursorBlink = false;
    this.terminal.options.disableStdin = !facts.terminal || !this._drives;
    this._showControl();
    this.onTitle(harmless(this.title, 40), state);
  }

  _more(anchor) {
    const signal = (name) => () => this.app.link.call("process.signal", { id: this.facts.id, place: this.facts.place, process: this.facts.processId, signal: name }).catch(failed);
    const entries = [
      ["Copy selection", () => this.copy()],
      ["Paste", () => this.pasteClipboard()],
      ["Clear", () => this.terminal.clear()],
      ["Larger text", () => this._zoom(1)],
      ["Smaller text", () => this._zoom(-1)],
    ];
    if (this.facts.state === "running") {
      entries.push(["Interrupt (SIGINT)", signal("SIGINT")], ["Ask to end (SIGTERM)", signal("SIGTERM")], ["Kill (SIGKILL)", signal("SIGKILL"), true]);
    }
    menu(anchor, entries);
  }

  // Plays what this terminal has shown, in the place of its screen, until the person wants it back.
  async goBack() {
    if (this._player || !this.facts.history) return;
    const { RecordingPlayer } = await import("./recording_player.js");
    this._player = new RecordingPlayer(this.app, { id: this.facts.id }, { onLive: () => this._goLive() });
    this.screen.after(this._player.element);
    this.element.classList.add("is-back");
    await this._player.start(null);
  }

  _goLive() {
    this._player?.dispose();
    this._player = null;
    this.element.classList.remove("is-back");
    this.fit();
    this.focus();
  }

  _zoom(step) {
    const size = Math.min(32, Math.max(8, this.terminal.options.fontSize + step));
    localStorage.setItem("fontSize", String(size));
    this.terminal.options.fontSize = size;
    this._resizeSoon();
  }

  focus() {
    (this._player ?? this.terminal).focus();
  }

  dispose() {
    if (this._channel !== null) this.app.link.unfollow(this._channel);
    this._channel = null;
    clearTimeout(this._resizeTimer);
    this._player?.dispose();
    this._observer.disconnect();
    this._stopTheme();
    this.terminal.dispose();
    this.element.remove();
  }
}
