// The strip of tabs, and the area below it.

import { h, icon, iconButton } from "./dom.js";

let lastId = 0;

export class Tabs {
  constructor({ onClose, onEmpty, onNew, onChange }) {
    this._onClose = onClose;
    this._onEmpty = onEmpty;
    this._onChange = onChange;
    this.all = [];
    this.current = null;
    this._strip = h("div", { class: "strip", role: "tablist", "aria-label": "Open tabs", onkeydown: (event) => this._key(event) });
    const add = iconButton("plus", "New terminal (Alt+Shift+T)", onNew);
    this.bar = h("div", { class: "tab-bar" }, this._strip, add);
    this.area = h("div", { class: "area" });
  }

  // A view has kind, element, shown() and dispose().
  add(view, title, iconName) {
    const id = `tab-${++lastId}`;
    const name = h("span", { class: "tab-name" }, title);
    const close = h("span", { class: "tab-close", title: "Close (Delete)", "aria-hidden": "true", onclick: (event) => { event.stopPropagation(); this._onClose(view); } }, icon("close"));
    const dot = h("span", { class: "dot", hidden: true });
    const handle = h("button", { type: "button", role: "tab", id, class: "tab", "aria-controls": `${id}-panel`, onclick: () => this.show(view), onauxclick: (event) => event.button === 1 && this._onClose(view) }, icon(iconName), dot, name, close);
    const panel = h("div", { role: "tabpanel", id: `${id}-panel`, "aria-labelledby": id, class: "panel", hidden: true }, view.element);
    Object.assign(view, { tab: { handle, panel, name, dot } });
    this.all.push(view);
    this._strip.append(handle);
    this.area.append(panel);
    this.show(view);
  }

  show(view) {
    this.current = view;
    for (const each of this.all) {
      const isCurrent = each === view;
      each.tab.panel.hidden = !isCurrent;
      each.tab.handle.setAttribute("aria-selected", String(isCurrent));
      each.tab.handle.tabIndex = isCurrent ? 0 : -1;
    }
    view.tab.handle.scrollIntoView({ block: "nearest", inline: "nearest" });
    view.shown();
    this._onChange(view);
  }

  retitle(view, title, state) {
    if (!view.tab) return;
    view.tab.name.textContent = title;
    view.tab.handle.title = title;
    if (state) {
      view.tab.dot.hidden = state.kind === "good";
      view.tab.dot.className = `dot ${state.kind}`;
      view.tab.dot.title = state.text;
    }
    if (view === this.current) this._onChange(view);
  }

  remove(view) {
    const at = this.all.indexOf(view);
    if (at < 0) return;
    this.all.splice(at, 1);
    view.tab.handle.remove();
    view.tab.panel.remove();
    view.dispose();
    if (this.current !== view) return;
    this.current = null;
    const next = this.all[Math.min(at, this.all.length - 1)];
    if (next) this.show(next);
    else this._onEmpty();
  }

  step(count) {
    if (!this.all.length) return;
    const at = this.all.indexOf(this.current);
    this.show(this.all[(at + count + this.all.length) % this.all.length]);
  }

  _key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      const at = this.all.findIndex((view) => view.tab.handle === document.activeElement);
      const next = this.all[(at + step + this.all.length) % this.all.length];
      next?.tab.handle.focus();
    } else if (event.key === "Delete") {
      const view = this.all.find((each) => each.tab.handle === document.activeElement);
      if (view) this._onClose(view);
    } else return;
    event.preventDefault();
  }
}
