// Plays a recording, or what an open terminal has shown: a scrubber, speeds, marks, keys, search.

import { button, fill, h, icon, iconButton } from "./dom.js";
import { clock, harmless } from "./format.js";
import { failed, menu } from "./notices.js";
import { RecordedStream } from "./recorded_stream.js";
import { RecordingSearch } from "./recording_search.js";
import { fontSize, newTerminal } from "./terminal_screen.js";

const SPEEDS = [0.5, 1, 2, 4, 8, 16, 32];
const JUMP = 5;
// A longer pause is shortened to this many seconds.
const LONGEST_PAUSE = 1;
// A jump to a moment that was found shows the screen just after it.
const FOUND_AFTER = 0.06;
// Indexes make jumps in recordings of this size quick.
const LARGE = 2 * 1024 * 1024;
const EXPORTS = [["Asciicast (v3)", "v3"], ["Asciicast (v2)", "v2"], ["Text of all screens", "text"], ["Moving picture (GIF)", "gif"]];

export class RecordingPlayer {
  // words name a recording or an open terminal; onLive is called if the person wants to go back to it.
  constructor(app, words, { onLive = null } = {}) {
    this._app = app;
    this._words = { ...words };
    this._onLive = onLive;
    this._stream = new RecordedStream(app.link, this._words);
    this.time = 0;
    this.duration = 0;
    this.isPlaying = false;
    this._speed = 1;
    this._marks = [];
    this._wanted = null;
    this._make();
  }

  _make() {
    const { terminal, fit, stop } = newTerminal({ cursorBlink: false, disableStdin: true, scrollback: 1000 });
    this.terminal = terminal;
    this._fit = fit;
    this._stopTheme = stop;
    // A recording asks for nothing: neither for the clipboard nor for keys.
    terminal.parser.registerOscHandler(52, () => true);
    terminal.attachCustomKeyEventHandler(() => false);
    this.screen = h("div", { class: "screen replay" });
    this._play = iconButton("play", "Play (space)", () => this.toggle(), { class: "icon-button play" });
    this._slider = h("input", { type: "range", min: "0", max: "0", step: "any", value: "0", "aria-label": "Time", oninput: () => this.seek(Number(this._slider.value)) });
    this._ticks = h("div", { class: "ticks" });
    this._clock = h("span", { class: "clock" }, "0:00 / 0:00");
    this._mark = h("span", { class: "notes mark", role: "status" });
    this._speeds = h("select", { "aria-label": "Speed", title: "Speed (+ and -)", onchange: () => { this._speed = Number(this._speeds.value); } }, SPEEDS.map((each) => h("option", { value: String(each), selected: each === 1 }, `${each}×`)));
    this._skips = h("input", { type: "checkbox", checked: true });
    this.search = new RecordingSearch(this, this._app.link, this._words);
    const controls = h(
      "div",
      { class: "player-controls", role: "group", "aria-label": "Player" },
      this._play,
      this._clock,
      h("div", { class: "timeline" }, this._slider, this._ticks),
      this._speeds,
      h("label", { class: "check", title: "Shorten pauses" }, this._skips, "skip pauses"),
      iconButton("search", "Search in the recording (/)", () => this.search.show()),
      iconButton("download", "Download", (event) => this._download(event.currentTarget)),
      this._onLive && button("Back to live", () => this._onLive(), { class: "button small primary" }),
    );
    this.element = h("section", { class: "player", tabindex: "-1", "aria-label": "Recording" }, this.search.element, this.screen, this._mark, controls);
    this.element.addEventListener("keydown", (event) => this._key(event));
    this._observer = new ResizeObserver(() => this._scale());
  }

  // Called once the element is in the page. Without a moment it begins at the start.
  async start(at = 0, row = null) {
    this.terminal.open(this.screen);
    this._observer.observe(this.screen);
    try {
      await this._load();
      if (row === null) await this.seek(at ?? this.duration);
      else await this.showFound(at, row);
      if (this._facts.bytes > LARGE && this._words.name) this._app.link.call("recording.prepare", this._words).catch(() => {});
    } catch (error) {
      fill(this.screen, h("p", { class: "problem", role: "alert" }, error.message));
    }
    this.element.focus();
  }

  async _load() {
    this._facts = await this._stream.open();
    this.duration = this._facts.duration;
    this._marks = this._facts.marks;
    this._slider.max = String(this.duration);
    const place = (mark) => {
      const tick = h("button", { type: "button", class: "tick", tabindex: "-1", title: `${clock(mark.time)} ${harmless(mark.text)}`, "aria-label": `Mark at ${clock(mark.time)}: ${harmless(mark.text)}`, onclick: () => this.seek(mark.time) });
      tick.style.left = `${(100 * mark.time) / Math.max(this.duration, 0.001)}%`;
      return tick;
    };
    fill(this._ticks, this._marks.slice(0, 200).map(place));
  }

  // Moments.

  // Shows the screen of a moment. While one is fetched, only the last of the others is kept.
  async seek(time) {
    this._wanted = Math.min(this.duration, Math.max(0, time));
    this.time = this._wanted;
    this._draw();
    if (this._isSeeking) return;
    this._isSeeking = true;
    try {
      while (this._wanted !== null) {
        const wanted = this._wanted;
        const found = await this._stream.screen(wanted);
        if (this._wanted === wanted) this._wanted = null;
        if (found) await this._paint(found);
      }
    } catch (error) {
      this._wanted = null;
      this.pause();
      failed(error);
    } finally {
      this._isSeeking = false;
    }
  }

  _paint(found) {
    this.terminal.reset();
    this._resize(found.columns, found.rows);
    return new Promise((resolve) => this.terminal.write(found.screen, resolve));
  }

  // Goes to a moment that was found, and selects the row there.
  async showFound(time, row) {
    this.pause();
    await this.seek(Math.min(this.duration, time + FOUND_AFTER));
    const at = this.terminal.buffer.active.baseY + row - 1;
    this.terminal.selectLines(at, at);
  }

  _show([, code, data]) {
    if (code === "o") this.terminal.write(data);
    else if (code === "r") {
      const [columns, rows] = data.split("x").map(Number);
      if (columns > 0 && rows > 0) this._resize(Math.min(columns, 1000), Math.min(rows, 1000));
    }
  }

  _resize(columns, rows) {
    if (columns !== this.terminal.cols || rows !== this.terminal.rows) {
      this.terminal.resize(columns, rows);
      this._scale();
    }
  }

  // The recorded size is kept; the type is made so small or large that it fits.
  _scale() {
    const size = this.screen.offsetWidth && this._fit.proposeDimensions();
    if (!size?.cols || !size?.rows) return;
    const now = this.terminal.options.fontSize;
    const best = Math.floor(2 * now * Math.min(size.cols / this.terminal.cols, size.rows / this.terminal.rows)) / 2;
    this.terminal.options.fontSize = Math.min(Math.max(best, 5), Math.max(fontSize(), 14));
  }

  // Playing.

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  async play() {
    if (this.time >= this.duration) await this.seek(0);
    this.isPlaying = true;
    this._last = performance.now();
    this._frame = requestAnimationFrame((now) => this._tick(now));
    this._draw();
  }

  pause() {
    this.isPlaying = false;
    cancelAnimationFrame(this._frame);
    this._draw();
  }

  _tick(now) {
    if (!this.isPlaying) return;
    const passed = Math.min(0.25, (now - this._last) / 1000) * this._speed;
    this._last = now;
    if (!this._isSeeking) this._advance(passed);
    if (this.isPlaying) this._frame = requestAnimationFrame((next) => this._tick(next));
  }

  _advance(passed) {
    const next = this._stream.next;
    if (next === null && !this._stream.isAtEnd) {
      // Nothing is shown before it is there.
      this._stream.take(this.time);
      return;
    }
    let time = this.time + passed;
    if (this._skips.checked && next !== null && next - time > LONGEST_PAUSE * this._speed) time = next - LONGEST_PAUSE * this._speed;
    this.time = Math.min(time, this.duration);
    for (const event of this._stream.take(this.time)) this._show(event);
    if (this.time >= this.duration && this._stream.next === null) this.pause();
    this._draw();
  }

  async _step() {
    this.pause();
    const event = await this._stream.step();
    if (!event) return;
    this.time = event[0];
    this._show(event);
    this._draw();
  }

  _jumpToMark(direction) {
    const found = direction > 0 ? this._marks.find((mark) => mark.time > this.time + 0.01) : this._marks.findLast((mark) => mark.time < this.time - 0.5);
    if (found) this.seek(found.time);
  }

  _changeSpeed(step) {
    const at = Math.min(SPEEDS.length - 1, Math.max(0, SPEEDS.indexOf(this._speed) + step));
    this._speed = SPEEDS[at];
    this._speeds.value = String(this._speed);
  }

  _draw() {
    const label = this.isPlaying ? "Pause (space)" : "Play (space)";
    if (this._play.title !== label) {
      this._play.title = label;
      this._play.setAttribute("aria-label", label);
      fill(this._play, icon(this.isPlaying ? "pause" : "play"));
    }
    const text = `${clock(this.time)} / ${clock(this.duration)}`;
    if (this._clock.textContent !== text) this._clock.textContent = text;
    this._slider.value = String(this.time);
    this._slider.setAttribute("aria-valuetext", text);
    const mark = this._marks.findLast((each) => each.time <= this.time);
    const words = mark ? harmless(mark.text) : "";
    if (this._mark.textContent !== words) this._mark.textContent = words;
  }

  // The same keys as those of `exec-server replay`.
  _key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input[type=search], select")) return;
    if (event.key === " " && event.target.matches("button, input[type=checkbox]")) return;
    const act = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.seek(this.time - JUMP),
      ArrowRight: () => this.seek(this.time + JUMP),
      Home: () => this.seek(0),
      End: () => this.seek(this.duration),
      g: () => this.seek(0),
      G: () => this.seek(this.duration),
      ".": () => this._step(),
      "[": () => this._jumpToMark(-1),
      "]": () => this._jumpToMark(1),
      "+": () => this._changeSpeed(1),
      "-": () => this._changeSpeed(-1),
      "/": () => this.search.show(),
      n: () => this.search.step(1),
      N: () => this.search.step(-1),
      Escape: () => this._onLive?.(),
    }[event.key] ?? (/^\d$/.test(event.key) ? () => this.seek((Number(event.key) / 10) * this.duration) : null);
    if (!act) return;
    act();
    event.preventDefault();
    event.stopPropagation();
  }

  _download(anchor) {
    const get = (format, at) => async () => {
      try {
        const { ticket, name } = await this._app.link.call("recording.ticket", { ...this._words, format, at });
        this._app.save(`/download/${ticket}/${encodeURIComponent(name)}`, name);
      } catch (error) {
        failed(error);
      }
    };
    menu(anchor, [...EXPORTS.map(([label, format]) => [label, get(format)]), ["Picture of this moment (SVG)", get("svg", this.time)]]);
  }

  focus() {
    this.element.focus();
  }

  fit() {
    this._scale();
  }

  dispose() {
    this.pause();
    this._observer.disconnect();
    this._stopTheme();
    this.terminal.dispose();
    this.element.remove();
  }
}
