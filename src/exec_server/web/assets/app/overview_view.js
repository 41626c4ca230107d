// The facts about an environment, and its connection.

import { button, fill, h } from "./dom.js";
import { failed } from "./notices.js";
import { placeState } from "./sidebar.js";

const KINDS = { local: "this machine", websocket: "a server", program: "a program, for example ssh", rendezvous: "through a registry", url: "a URL" };

export class OverviewView {
  constructor(app, id) {
    this._app = app;
    this.kind = "overview";
    this.place = id;
    this.element = h("div", { class: "view overview" });
    this.draw();
  }

  draw() {
    const place = this._app.places.get(this.place);
    const state = placeState(place);
    const info = place.info ?? {};
    const call = (name) => () => this._app.link.call(name, { place: this.place }).catch(failed);
    const isOn = ["connected", "recovering"].includes(place.state);
    const facts = [
      ["Kind", KINDS[place.kind] ?? place.kind],
      ["Where", place.where],
      ["System", info.system],
      ["Release of the server", info.version],
      ["You are", info.principal],
      ["Shell", info.shell],
      ["Directory", info.cwd],
      ["Home", info.home],
      ["Sandbox", info.sandbox],
    ].filter(([, value]) => value);
    fill(
      this.element,
      h("header", { class: "view-head" }, h("h1", {}, place.name), h("span", { class: `chip ${state.kind}` }, state.text), h("span", { class: "grow" }), isOn ? button("Disconnect", call("place.disconnect")) : button("Connect", call("place.connect"), { class: "button primary", disabled: place.state === "connecting" })),
      place.problem && h("p", { class: "problem", role: "alert" }, place.problem),
      h(
        "div",
        { class: "cards" },
        button("New terminal", () => this._app.newTerminal(this.place), { class: "button primary" }),
        button("Processes", () => this._app.openProcesses(this.place)),
        button("Files", () => this._app.openFiles(this.place)),
        button("Ports", () => this._app.openPorts(this.place)),
      ),
      h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      info.capabilities && h("details", {}, h("summary", {}, `${info.capabilities.length} capabilities`), h("p", { class: "capabilities" }, info.capabilities.join(", "))),
    );
  }

  shown() {
    this.draw();
  }

  dispose() {}
}
