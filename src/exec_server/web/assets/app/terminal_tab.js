// A tab of terminals: one, or several side by side.

import { h } from "./dom.js";
import { firstOf, layoutOf } from "./layout.js";
import { TerminalPane } from "./terminal_pane.js";

export class TerminalTab {
  constructor(app, facts) {
    this.app = app;
    this.kind = "terminal";
    this.panes = [];
    this.element = h("div", { class: "terminal-tab" });
    this.current = this._pane(facts);
    this.element.append(this.current.element);
  }

  _pane(facts) {
    const pane = new TerminalPane(this.app, facts);
    pane.onTitle = (title, state) => {
      if (pane === this.current) this.app.tabs.retitle(this, title, state);
    };
    pane.onFocus = () => {
      this.current = pane;
      for (const each of this.panes) each.element.classList.toggle("is-current", each === pane && this.panes.length > 1);
      pane.onTitle(pane.title, null);
    };
    this.panes.push(pane);
    return pane;
  }

  start() {
    return this.current.start();
  }

  shown() {
    for (const pane of this.panes) pane.fit();
    this.current.focus();
  }

  // Puts a new pane beside another one; direction is "row" or "column".
  async split(pane, facts, direction) {
    const made = this._pane(facts);
    const box = h("div", { class: `split ${direction}` });
    pane.element.replaceWith(box);
    box.append(pane.element, this._divider(box, direction), made.element);
    await made.start();
    made.focus();
  }

  get layout() {
    return layoutOf(this.element.firstElementChild);
  }

  // Splits a pane, which shows the first terminal of a layout, as the layout says.
  async restore(pane, layout, factsOf) {
    if (!Array.isArray(layout)) return;
    const [direction, share, first, second] = layout;
    await this.split(pane, factsOf(firstOf(second)), direction === "row" ? "row" : "column");
    const made = this.panes.at(-1);
    setShare(made.element.parentElement, share);
    await this.restore(pane, first, factsOf);
    await this.restore(made, second, factsOf);
  }

  _divider(box, direction) {
    const divider = h("div", { class: "divider", role: "separator", tabindex: "0", "aria-orientation": direction === "row" ? "vertical" : "horizontal", "aria-label": "Resize the panes", "aria-valuenow": "50", "aria-valuemin": "10", "aria-valuemax": "90" });
    const set = (share) => setShare(box, share);
    divider.addEventListener("pointerdown", (event) => {
      divider.setPointerCapture(event.pointerId);
      divider.onpointermove = (move) => {
        const area = box.getBoundingClientRect();
        const share = direction === "row" ? (move.clientX - area.left) / area.width : (move.clientY - area.top) / area.height;
        set(share);
      };
      divider.onpointerup = () => { divider.onpointermove = null; };
    });
    divider.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.05, ArrowUp: -0.05, ArrowRight: 0.05, ArrowDown: 0.05 }[event.key];
      if (!step) return;
      const now = Number(box.firstElementChild.style.flexGrow || 0.5);
      set(now + step);
      event.preventDefault();
    });
    return divider;
  }

  // Removes a pane; its neighbour takes the whole place. False if it was the last one.
  remove(pane) {
    const box = pane.element.parentElement;
    this.panes = this.panes.filter((each) => each !== pane);
    if (box?.classList.contains("split")) {
      const neighbour = box.firstElementChild === pane.element ? box.lastElementChild : box.firstElementChild;
      neighbour.style.flexGrow = box.style.flexGrow;
      box.replaceWith(neighbour);
    }
    pane.dispose();
    if (!this.panes.length) return false;
    this.panes[0].onFocus();
    this.shown();
    return true;
  }

  dispose() {
    for (const pane of this.panes) pane.dispose();
    this.element.remove();
  }
}

function setShare(box, share) {
  const bounded = Math.min(0.9, Math.max(0.1, Number(share) || 0.5));
  box.firstElementChild.style.flexGrow = String(bounded);
  box.lastElementChild.style.flexGrow = String(1 - bounded);
  box.querySelector(":scope > .divider").setAttribute("aria-valuenow", String(Math.round(100 * bounded)));
}
