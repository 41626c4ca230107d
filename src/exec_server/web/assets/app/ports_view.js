// Ports of an environment: those that its processes listen on, and those that are open here.

import { button, fill, h, iconButton } from "./dom.js";
import { harmless } from "./format.js";
import { failed, notice } from "./notices.js";

const EVERY = 3000;

export class PortsView {
  constructor(app, id) {
    this._app = app;
    this.kind = "ports";
    this.place = id;
    this._ports = h("tbody");
    this._doors = h("tbody");
    this._empty = h("p", { class: "empty", role: "status" });
    this._noDoors = h("p", { class: "empty" });
    this._number = h("input", { type: "number", min: "1", max: "65535", required: true, placeholder: "Port there, for example 3000", "aria-label": "Port" });
    const form = h("form", { class: "run", onsubmit: (event) => { event.preventDefault(); this._open("port.preview", Number(this._number.value)); } }, this._number, h("button", { type: "submit", class: "button primary" }, "Open preview"), button("Forward", () => this._number.reportValidity() && this._open("port.forward", Number(this._number.value))));
    this.element = h(
      "div",
      { class: "view ports" },
      h("header", { class: "view-head" }, h("h1", {}, "Ports"), h("span", { class: "grow" }), iconButton("refresh", "Refresh", () => this.refresh())),
      form,
      h("h2", {}, "Open on this machine"),
      table(["Port there", "Here", ""], this._doors, "Open on this machine"),
      this._noDoors,
      h("h2", {}, "Your processes listen on"),
      table(["Port", "Program", "Address", ""], this._ports, "Ports of processes"),
      this._empty,
    );
    this._timer = setInterval(() => this._isVisible && this.refresh(), EVERY);
  }

  get _isVisible() {
    return !document.hidden && this._app.tabs.current === this;
  }

  shown() {
    this.refresh();
  }

  dispose() {
    clearInterval(this._timer);
  }

  async refresh() {
    try {
      const found = await this._app.link.call("port.list", { place: this.place });
      this._draw(found);
    } catch (error) {
      this._empty.textContent = error.message;
    }
  }

  _draw(found) {
    const text = JSON.stringify(found);
    if (text === this._drawnText) return;
    this._drawnText = text;
    fill(this._doors, found.doors.map((door) => this._door(door)), found.elsewhere.map((each) => this._elsewhere(each)), found.streams.filter((each) => each.kind === "listener").map((each) => this._listener(each)));
    this._noDoors.textContent = this._doors.children.length ? "" : found.canOpen ? "Nothing yet. A preview has an address of its own, for web pages; a forward is a port of this machine for any program." : "Ports are opened on the machine that serves this page; use `exec-server port` on your own.";
    fill(this._ports, found.ports.map((port) => this._port(port, found)));
    this._empty.textContent = found.ports.length ? "" : found.isKnown ? "No process of yours listens on a port." : "This server cannot say which ports are in use.";
  }

  _port(port, found) {
    const isOpen = found.doors.some((door) => door.port === port.port && door.url);
    return h(
      "tr",
      {},
      h("td", { class: "number" }, String(port.port)),
      h("td", { class: "command" }, harmless(port.command ?? ""), h("div", { class: "notes" }, `pid ${port.pid}`)),
      h("td", { class: "notes" }, port.addresses.join(", ")),
      h("td", { class: "actions wide" }, found.canOpen && !isOpen && button("Open preview", () => this._open("port.preview", port.port), { class: "button small", "aria-label": `Open a preview of port ${port.port}` }), found.canOpen && button("Forward", () => this._open("port.forward", port.port), { class: "button small", "aria-label": `Forward port ${port.port}` })),
    );
  }

  _door(door) {
    const here = door.url ? h("a", { class: "link", href: door.url, target: "_blank", rel: "noopener noreferrer" }, door.url) : h("span", { class: "path" }, door.listen);
    return h("tr", {}, h("td", { class: "number" }, String(door.port)), h("td", {}, here, door.problem && h("div", { class: "problem" }, harmless(door.problem, 200))), h("td", { class: "actions" }, iconButton("close", `Close port ${door.port}`, () => this._call("port.close", { id: door.id }))));
  }

  _elsewhere(each) {
    return h("tr", {}, h("td", { class: "number" }, harmless(each.to ?? "")), h("td", {}, h("span", { class: "path" }, harmless(each.url ?? each.listen, 200)), h("div", { class: "notes" }, `${each.kind}, by exec-server port, pid ${each.pid}`)), h("td"));
  }

  _listener(each) {
    return h("tr", {}, h("td", { class: "number" }, harmless(each.address)), h("td", { class: "notes" }, "listens there, and leads to the machine of a client"), h("td"));
  }

  async _open(name, port) {
    const words = name === "port.forward" ? { port, listen: 0 } : { port };
    const door = await this._call(name, words);
    if (door?.url) notice(`Port ${port} has an address of its own.`, { actions: [["Open it", () => open(door.url, "_blank", "noopener,noreferrer")]] });
  }

  async _call(name, words) {
    try {
      const result = await this._app.link.call(name, { place: this.place, ...words });
      await this.refresh();
      return result;
    } catch (error) {
      failed(error);
      return null;
    }
  }
}

function table(heads, body, label) {
  return h("table", { class: "rows", "aria-label": label }, h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), body);
}
