// The files of an environment: browse, view, upload, download, rename, remove.

import { button, fill, h, icon, iconButton } from "./dom.js";
import { bytes, moment } from "./format.js";
import { ask, failed, menu } from "./notices.js";
import { droppedFiles } from "./uploads.js";

const PICTURE = /\.(png|jpe?g|gif|webp)$/i;

export function join(folder, name) {
  return folder.endsWith("/") ? folder + name : `${folder}/${name}`;
}

export class FilesView {
  constructor(app, id, path) {
    this._app = app;
    this.kind = "files";
    this.place = id;
    this.path = path;
    this._entries = [];
    this._crumbs = h("nav", { class: "crumbs", "aria-label": "Path" });
    this._filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter by name", oninput: () => this._draw() });
    this._picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => this._picked() });
    this._body = h("tbody", { onkeydown: (event) => this._key(event) });
    this._empty = h("p", { class: "empty" });
    const tools = [
      this._filter,
      button("Upload", () => this._picker.click(), { class: "button" }),
      iconButton("plus", "New", (event) => menu(event.currentTarget, [["New file", () => this._newFile()], ["New folder", () => this._newFolder()]])),
      iconButton("refresh", "Refresh", () => this.go(this.path)),
    ];
    const heads = ["Name", "Size", "Changed", ""];
    this.element = h(
      "div",
      { class: "view files" },
      h("header", { class: "view-head" }, this._crumbs, h("span", { class: "grow" }), tools, this._picker),
      h("table", { class: "rows" }, h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), this._body),
      this._empty,
    );
    this._acceptDrops();
    this._ready = this.go(path);
  }

  shown() {}

  dispose() {}

  async go(path) {
    this._empty.textContent = "Reading…";
    const turn = (this._turn = (this._turn ?? 0) + 1);
    try {
      const found = await this._app.link.call("file.list", { place: this.place, path });
      // The answer to an earlier question may come later.
      if (turn !== this._turn) return;
      this.path = found.path;
      this._entries = found.entries;
      this._hidden = found.hidden;
      this._filter.value = "";
      this._draw();
      this._drawCrumbs();
      this._app.tabs.retitle(this, this.path.split("/").at(-1) || "/", null);
    } catch (error) {
      if (turn !== this._turn) return;
      this._empty.textContent = error.message;
      if (this._entries.length) failed(error);
    }
  }

  _drawCrumbs() {
    const parts = this.path.split("/").filter(Boolean);
    const links = parts.map((part, at) => [h("span", { class: "slash" }, "/"), button(part, () => this.go(`/${parts.slice(0, at + 1).join("/")}`), { class: "link", "aria-current": at === parts.length - 1 ? "page" : undefined })]);
    fill(this._crumbs, button("/", () => this.go("/"), { class: "link", "aria-label": "Root" }), links.flat().slice(1));
  }

  _draw() {
    const wanted = this._filter.value.toLowerCase();
    const entries = this._entries.filter((entry) => entry.name.toLowerCase().includes(wanted));
    fill(this._body, this.path !== "/" && !wanted && this._up(), entries.map((entry) => this._row(entry)));
    this._empty.textContent = entries.length ? (this._hidden ? `${this._hidden} more entries are not shown.` : "") : wanted ? "No name matches." : "This folder is empty. Drop files here to upload them.";
  }

  _up() {
    const parent = this.path.slice(0, this.path.lastIndexOf("/")) || "/";
    return h("tr", {}, h("td", { class: "name" }, h("button", { type: "button", class: "link entry", onclick: () => this.go(parent) }, icon("left"), "..")), h("td"), h("td"), h("td"));
  }

  _row(entry) {
    return h(
      "tr",
      {},
      h("td", { class: "name" }, h("button", { type: "button", class: "link entry", onclick: () => this._open(entry) }, icon(entry.folder ? "folder" : "file"), h("span", {}, entry.name), entry.link && h("span", { class: "notes" }, " link"))),
      h("td", { class: "number" }, bytes(entry.size)),
      h("td", { class: "when" }, moment(entry.modified)),
      h("td", { class: "actions" }, iconButton("more", `Actions for ${entry.name}`, (event) => this._more(event.currentTarget, entry))),
    );
  }

  _open(entry) {
    if (entry.folder) this.go(entry.path);
    else if (entry.file) this._app.openFile(this.place, entry.path, entry.name, PICTURE.test(entry.name));
  }

  _more(anchor, entry) {
    const entries = [["Open", () => this._open(entry)]];
    if (entry.file) entries.push(["Download", () => this._app.download(this.place, entry.path)]);
    if (entry.folder) entries.push(["Terminal here", () => this._app.newTerminal(this.place, entry.path)]);
    entries.push(["Rename", () => this._rename(entry)], ["Copy path", () => navigator.clipboard.writeText(entry.path).catch(failed)], ["Delete", () => this._remove(entry), true]);
    menu(anchor, entries);
  }

  async _act(name, words) {
    try {
      await this._app.link.call(name, { place: this.place, ...words });
      await this.go(this.path);
    } catch (error) {
      failed(error);
    }
  }

  async _newFolder() {
    const given = await ask("New folder", { fields: [{ name: "name", label: "Name" }], yes: "Create" });
    if (given?.name) await this._act("file.makeFolder", { path: join(this.path, given.name) });
  }

  async _newFile() {
    const given = await ask("New file", { fields: [{ name: "name", label: "Name" }], yes: "Create" });
    if (!given?.name) return;
    const path = join(this.path, given.name);
    await this._act("file.write", { path, text: "" });
    this._app.openFile(this.place, path, given.name, false);
  }

  async _rename(entry) {
    const given = await ask("Rename", { fields: [{ name: "name", label: "New name", value: entry.name }], yes: "Rename" });
    if (given?.name && given.name !== entry.name) await this._act("file.rename", { path: entry.path, to: join(this.path, given.name) });
  }

  async _remove(entry) {
    const text = entry.folder && !entry.link ? "The folder is deleted with everything in it." : "The file is deleted.";
    const sure = await ask(`Delete “${entry.name}”?`, { text: `${text} This cannot be undone.`, yes: "Delete", isDanger: true });
    if (sure) await this._act("file.remove", { path: entry.path, recursive: entry.folder && !entry.link });
  }

  // Keys in the list: arrows move, Enter opens, Backspace goes up.
  _key(event) {
    const links = [...this._body.querySelectorAll(".entry")];
    const at = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && at >= 0) links[Math.min(links.length - 1, Math.max(0, at + step))].focus();
    else if (event.key === "Backspace") this.go(this.path.slice(0, this.path.lastIndexOf("/")) || "/");
    else return;
    event.preventDefault();
  }

  // Uploads.

  _picked() {
    this._app.uploads.add(this.place, this.path, [...this._picker.files], () => this.go(this.path));
    this._picker.value = "";
  }

  _acceptDrops() {
    const over = (isOver) => this.element.classList.toggle("is-over", isOver);
    this.element.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      over(true);
    });
    this.element.addEventListener("dragleave", (event) => {
      if (!this.element.contains(event.relatedTarget)) over(false);
    });
    this.element.addEventListener("drop", async (event) => {
      event.preventDefault();
      over(false);
      const files = await droppedFiles(event.dataTransfer);
      this._app.uploads.add(this.place, this.path, files, () => this.go(this.path));
    });
  }
}
