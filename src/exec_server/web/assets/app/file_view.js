// One file: a text that can be edited, or a picture.

import { button, fill, h } from "./dom.js";
import { bytes } from "./format.js";
import { ask, failed, notice } from "./notices.js";

export class FileView {
  constructor(app, { place, path, name, isPicture }) {
    this._app = app;
    this.kind = "file";
    this.place = place;
    this.path = path;
    this._name = name;
    this._isPicture = isPicture;
    this._version = null;
    this._saved = "";
    this.element = h("div", { class: "view file" });
    this._load();
  }

  shown() {
    this._text?.focus();
  }

  get isChanged() {
    return this._text !== undefined && this._text.value !== this._saved;
  }

  async _load() {
    const download = button("Download", () => this._app.download(this.place, this.path));
    const head = (...more) => h("header", { class: "view-head" }, h("span", { class: "path" }, this.path), h("span", { class: "grow" }), more, download);
    try {
      if (this._isPicture) {
        const url = await this._app.ticketUrl(this.place, this.path, true);
        fill(this.element, head(), h("div", { class: "picture" }, h("img", { src: url, alt: this._name })));
        return;
      }
      const found = await this._app.link.call("file.read", { place: this.place, path: this.path });
      this._version = found.version;
      this._saved = found.text;
      this._state = h("span", { class: "notes", role: "status" });
      this._save = button("Save", () => this.save(), { class: "button primary", disabled: true, title: "Save (Ctrl+S)" });
      this._text = h("textarea", { class: "editor", "aria-label": `Content of ${this._name}`, spellcheck: "false", autocapitalize: "off", wrap: "off", oninput: () => this._changed(), onkeydown: (event) => this._key(event) });
      this._text.value = found.text;
      fill(this.element, head(this._state, this._save), this._text);
      this._changed();
    } catch (error) {
      fill(this.element, head(), h("p", { class: "empty" }, error.message));
    }
  }

  _changed() {
    const isChanged = this.isChanged;
    this._save.disabled = !isChanged;
    this._state.textContent = isChanged ? "not saved" : bytes(new Blob([this._saved]).size);
    this._app.tabs.retitle(this, `${isChanged ? "● " : ""}${this._name}`, null);
  }

  _key(event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") this.save();
    else if (event.key === "Tab" && !event.shiftKey && !event.altKey && !event.ctrlKey) this._text.setRangeText("\t", this._text.selectionStart, this._text.selectionEnd, "end");
    else return;
    event.preventDefault();
    this._changed();
  }

  async save() {
    const text = this._text.value;
    try {
      const done = await this._app.link.call("file.write", { place: this.place, path: this.path, text, version: this._version });
      this._version = done.version;
      this._saved = text;
      this._changed();
      notice(`Saved ${this._name}`);
    } catch (error) {
      failed(error);
    }
  }

  async mayClose() {
    if (!this.isChanged) return true;
    return (await ask("Close without saving?", { text: `${this._name} has changes that are not saved.`, yes: "Discard changes", isDanger: true })) !== null;
  }

  dispose() {}
}
