// The environments, each with its state, and what can be opened on the chosen one.

import { fill, h, icon } from "./dom.js";

const STATES = {
  idle: ["idle", "not connected"],
  connecting: ["wait", "connecting…"],
  connected: ["good", "connected"],
  recovering: ["wait", "connection lost, reconnecting…"],
  failed: ["bad", "failed"],
};

export function placeState(place) {
  const [kind, text] = STATES[place.state] ?? ["idle", place.state];
  return { kind, text };
}

export class Sidebar {
  constructor(app) {
    this._app = app;
    this._list = h("ul", { class: "places" });
    this.element = h("nav", { class: "side", id: "side", "aria-label": "Environments" }, h("h2", {}, "Environments"), this._list, h("h2", { class: "next" }, "This machine"), h("button", { type: "button", class: "place-action", onclick: () => app.openRecordings() }, icon("film"), "Recordings"));
  }

  focus() {
    this.element.querySelector("[aria-current]")?.focus();
  }

  draw() {
    const app = this._app;
    const focused = document.activeElement?.dataset?.focus;
    fill(this._list, [...app.places.values()].map((place) => this._place(place, place.id === app.chosen)));
    if (focused) this._list.querySelector(`[data-focus="${focused}"]`)?.focus();
  }

  _place(place, isChosen) {
    const state = placeState(place);
    const choose = h(
      "button",
      { type: "button", class: "place", "data-focus": place.id, "aria-current": isChosen ? "true" : undefined, onclick: () => this._app.choose(place.id) },
      h("span", { class: `dot ${state.kind}`, "aria-hidden": "true" }),
      h("span", { class: "place-name" }, place.name),
      h("span", { class: "place-state" }, state.text),
    );
    if (!isChosen) return h("li", {}, choose);
    const open = (name, label, act) => h("button", { type: "button", class: "place-action", "data-focus": label, onclick: act }, icon(name), label);
    const id = place.id;
    return h(
      "li",
      {},
      choose,
      place.problem && h("p", { class: "problem" }, place.problem),
      h(
        "div",
        { class: "place-actions" },
        open("terminal", "New terminal", () => this._app.newTerminal(id)),
        open("list", "Processes", () => this._app.openProcesses(id)),
        open("folder", "Files", () => this._app.openFiles(id)),
        open("port", "Ports", () => this._app.openPorts(id)),
        open("info", "Overview", () => this._app.openOverview(id)),
      ),
    );
  }
}
