// Uploads: in pieces, with progress; each can be paused and continued, also after a lost connection.

import { button, fill, h, iconButton } from "./dom.js";
import { bytes, seconds } from "./format.js";
import { ask } from "./notices.js";
import { keyHeaders } from "./session.js";

const RETRY = 1500;

// Files that were dropped, with those in folders; each has the path below the place of the drop.
export async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  const found = [];
  for (const entry of entries) await collect(entry, "", found);
  return found;
}

async function collect(entry, folder, found) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    file.below = folder + file.name;
    found.push(file);
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return;
    for (const each of some) await collect(each, `${folder}${entry.name}/`, found);
  }
}

export class Uploads {
  constructor(link) {
    this._link = link;
    this._list = h("ul");
    this.element = h("section", { class: "uploads", hidden: true, "aria-label": "Uploads" }, h("header", {}, h("h2", {}, "Uploads"), h("span", { class: "grow" }), iconButton("close", "Hide", () => this._hide())), this._list);
    this._queue = Promise.resolve();
    this._folders = new Set();
  }

  _hide() {
    for (const item of [...this._list.children]) if (item.dataset.over) item.remove();
    this.element.hidden = true;
  }

  add(place, folder, files, onDone) {
    for (const file of files) {
      const upload = new Upload(this._link, { place, folder, file, makeFolders: (path) => this._makeFolders(place, folder, path) });
      this._list.append(upload.element);
      this._queue = this._queue.then(() => upload.run()).then(onDone);
    }
    if (files.length) this.element.hidden = false;
  }

  async _makeFolders(place, folder, below) {
    const parts = below.split("/").slice(0, -1);
    let path = folder;
    for (const part of parts) {
      path = `${path.replace(/\/$/, "")}/${part}`;
      if (this._folders.has(`${place} ${path}`)) continue;
      // It may exist; if it does not, the upload says so.
      await this._link.call("file.makeFolder", { place, path }).catch(() => {});
      this._folders.add(`${place} ${path}`);
    }
  }
}

class Upload {
  constructor(link, { place, folder, file, makeFolders }) {
    this._link = link;
    this._file = file;
    this._makeFolders = makeFolders;
    this._below = file.below ?? file.name;
    this._words = { place, path: `${folder.replace(/\/$/, "")}/${this._below}`, size: file.size, stamp: file.lastModified };
    this._isPaused = false;
    this._isDropped = false;
    this._bar = h("progress", { max: 1, value: 0, "aria-label": `Upload of ${this._below}` });
    this._state = h("span", { class: "notes" }, "waiting");
    this._buttons = h("span", { class: "upload-buttons" });
    this.element = h("li", {}, h("div", { class: "upload-name" }, this._below, this._buttons), this._bar, this._state);
    this._drawButtons();
  }

  _drawButtons() {
    const pause = button(this._isPaused ? "Continue" : "Pause", () => { this._isPaused = !this._isPaused; this._drawButtons(); this._wake?.(); }, { class: "button small" });
    const drop = iconButton("close", "Cancel", () => { this._isDropped = true; this._stop?.abort(); this._wake?.(); });
    fill(this._buttons, !this.element?.dataset.over && [pause, drop]);
  }

  async run() {
    try {
      await this._makeFolders(this._below);
      if (await this._send()) {
        await this._link.call("upload.finish", this._words);
        this._over(`done, ${bytes(this._file.size)}`, "good");
        return;
      }
      await this._link.call("upload.drop", this._words).catch(() => {});
      this._over("cancelled", "idle");
    } catch (error) {
      this._over(error.message, "bad");
    }
  }

  _over(text, kind) {
    this.element.dataset.over = kind;
    this._state.textContent = text;
    this._drawButtons();
  }

  // False if it was cancelled.
  async _send() {
    let overwrite = false;
    for (;;) {
      try {
        const { part, offset, piece } = await this._link.call("upload.begin", { ...this._words, overwrite });
        return await this._pieces(part, offset, piece);
      } catch (error) {
        if (this._isDropped) return false;
        if (/exists already/.test(error.message)) {
          if (!(await ask("Replace the file?", { text: `“${this._below}” exists already.`, yes: "Replace", isDanger: true }))) return false;
          overwrite = true;
        } else if (error.isFinal || this._link.state === "signed out") throw error;
        else {
          overwrite = true;
          this._state.textContent = `interrupted, continuing… (${error.message})`;
          await new Promise((resolve) => { this._wake = resolve; setTimeout(resolve, RETRY); });
          if (this._isDropped) return false;
        }
      }
    }
  }

  async _pieces(part, offset, piece) {
    const begun = performance.now();
    const first = offset;
    while (offset < this._file.size) {
      while (this._isPaused && !this._isDropped) {
        this._state.textContent = `paused at ${bytes(offset)}`;
        await new Promise((resolve) => { this._wake = resolve; });
      }
      if (this._isDropped) return false;
      const start = offset;
      const show = (sent) => this._progress(start + sent, start + sent - first, performance.now() - begun);
      offset = await this._put(part, start, this._file.slice(start, start + piece), show);
      show(offset - start);
    }
    return true;
  }

  _progress(offset, sent, milliseconds) {
    this._bar.value = offset / this._file.size;
    const rate = sent / Math.max(0.001, milliseconds / 1000);
    const left = (this._file.size - offset) / Math.max(1, rate);
    this._state.textContent = `${bytes(offset)} of ${bytes(this._file.size)} · ${bytes(rate)}/s · ${seconds(left)} left`;
  }

  // Sends one piece; fetch() does not say how much of a body was sent.
  _put(part, offset, blob, onProgress) {
    const query = new URLSearchParams({ path: part, offset: String(offset) });
    const request = new XMLHttpRequest();
    this._stop = request;
    request.open("PUT", `/upload/${this._words.place}?${query}`);
    for (const [name, value] of Object.entries(keyHeaders())) request.setRequestHeader(name, value);
    request.responseType = "json";
    request.upload.onprogress = (event) => onProgress(event.loaded);
    return new Promise((resolve, reject) => {
      request.onload = () => (request.status === 200 ? resolve(request.response.offset) : reject(refusal(request)));
      request.onerror = () => reject(new Error("the connection was lost"));
      request.onabort = () => reject(new Error("cancelled"));
      request.send(blob);
    });
  }
}

// What the server refuses is not repeated; a lost connection and a moved end are.
function refusal(request) {
  const text = request.response?.error ?? "the upload was refused";
  const isFinal = ![409, 502, 503].includes(request.status) || /denied|No space|read-only/i.test(text);
  return Object.assign(new Error(text), { isFinal });
}
