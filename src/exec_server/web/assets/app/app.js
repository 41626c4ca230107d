// The page: environments at the side, tabs in the middle, and the commands of both.

import { button, fill, h, icon, iconButton } from "./dom.js";
import { firstOf, pruned, saveLayouts, savedLayouts } from "./layout.js";
import { KeysRow } from "./keys_row.js";
import { failed, notice } from "./notices.js";
import { Sidebar } from "./sidebar.js";
import { signOut } from "./session.js";
import { Tabs } from "./tabs.js";
import { setTheme, themeButton } from "./theme.js";

// How long to wait before an environment is connected again, in milliseconds.
const FIRST_PAUSE = 1000;
const LAST_PAUSE = 30000;

const BANNERS = {
  connecting: "Connecting to the program…",
  away: "The connection to the program was lost. Reconnecting…",
  ended: "The program has ended. Start `exec-server web` again and open the URL that it prints.",
  "signed out": "You are signed out. Open the URL that the program prints.",
};

export class App {
  constructor(link) {
    this.link = link;
    this.places = new Map();
    this.chosen = null;
    this.uploads = null;
    this.keys = new KeysRow(() => this.currentPane);
    this.sidebar = new Sidebar(this);
    this.tabs = new Tabs({ onClose: (view) => this.closeView(view), onEmpty: () => this._drawEmpty(), onNew: () => this.newTerminal(), onChange: (view) => this._changed(view) });
    this._empty = h("div", { class: "welcome" });
    this._banner = h("div", { class: "banner", role: "alert", hidden: true });
    this._commands = this._allCommands();
    this._draw();
    link.on("welcome", (facts) => this._welcomed(facts));
    link.on("state", (state) => this._stateChanged(state));
    link.on("place", (place) => this._placeChanged(place));
    link.on("shown", (facts) => this._shownChanged(facts));
    link.on("gone", ({ id }) => this._shownGone(id));
    link.on("inputRefused", () => notice("The program does not read its input; what you typed was dropped.", { kind: "bad" }));
    addEventListener("keydown", (event) => this._key(event));
    addEventListener("pagehide", () => saveLayouts(this.tabs.all.filter((view) => view.panes).map((view) => view.layout), this.currentPane?.facts.id));
    addEventListener("beforeunload", (event) => this.tabs.all.some((view) => view.isChanged) && event.preventDefault());
  }

  _draw() {
    const menuButton = iconButton("menu", "Environments", () => document.body.classList.toggle("shows-side"), { class: "icon-button only-narrow" });
    const bar = h(
      "header",
      { class: "top" },
      menuButton,
      h("span", { class: "brand" }, "exec-server"),
      h("span", { class: "grow" }),
      h("button", { type: "button", class: "find", onclick: () => this.openPalette() }, icon("search"), h("span", {}, "Commands"), h("kbd", {}, "F1")),
      iconButton("keyboard", "Show or hide the row of keys", () => document.body.classList.toggle("has-keys")),
      themeButton(),
    );
    const main = h("main", { class: "main" }, this.tabs.bar, this._empty, this.tabs.area, this.keys.element);
    const shade = h("div", { class: "shade", onclick: () => this._hideSide() });
    fill(document.getElementById("app"), bar, this._banner, h("div", { class: "body" }, this.sidebar.element, shade, main));
    if (matchMedia("(pointer: coarse)").matches) document.body.classList.add("has-keys");
  }

  // The way out of a terminal for those who have no mouse, since it takes Tab itself.
  _goToSide() {
    document.body.classList.add("shows-side");
    this.sidebar.focus();
  }

  _hideSide() {
    document.body.classList.remove("shows-side");
  }

  // The program.

  async _welcomed(facts) {
    this.places = new Map(facts.places.map((place) => [place.id, place]));
    const isFirst = this.chosen === null;
    if (isFirst) this.chosen = (facts.places.find((place) => place.default) ?? facts.places[0])?.id ?? null;
    this.sidebar.draw();
    if (isFirst && !facts.shown.length) this._drawEmpty();
    try {
      await this._showAll(facts.shown);
    } catch (error) {
      failed(error);
    }
  }

  // xterm.js is most of the page. What needs no terminal works before it is there.
  async _terminalTab() {
    this._terminals ??= import("./terminal_tab.js");
    return (await this._terminals).TerminalTab;
  }

  // After a reload the terminals are there again; after a lost connection they continue.
  async _showAll(listed) {
    const open = new Map(this.panes.map((pane) => [pane.facts.id, pane]));
    await this._terminalTab();
    const missing = new Map(listed.filter((facts) => !open.has(facts.id)).map((facts) => [facts.id, facts]));
    const { layouts, current } = savedLayouts();
    for (const saved of layouts) await this._restore(pruned(saved, (id) => missing.has(id)), missing);
    for (const facts of missing.values()) await this.openShown(facts);
    const before = !open.size && this.tabs.all.find((view) => view.panes?.some((pane) => pane.facts.id === current));
    if (before) this.tabs.show(before);
    await Promise.all([...open.values()].map((pane) => pane.follow()));
  }

  async _restore(layout, missing) {
    if (!layout) return;
    const tab = await this.openShown(missing.get(firstOf(layout)));
    await tab.restore(tab.current, layout, (id) => missing.get(id));
    for (const pane of tab.panes) missing.delete(pane.facts.id);
  }

  _stateChanged(state) {
    this._banner.hidden = state === "open";
    this._banner.textContent = BANNERS[state] ?? "";
    document.body.classList.toggle("is-away", state !== "open");
  }

  _placeChanged(place) {
    const before = this.places.get(place.id);
    this.places.set(place.id, place);
    const isLost = place.state === "failed" && ["connected", "recovering"].includes(before?.state);
    if (isLost) this._connectAgain(place.id, FIRST_PAUSE);
    this.sidebar.draw();
    for (const pane of this.panes) if (pane.facts.place === place.id) pane.placeChanged();
    for (const view of this.tabs.all) if (view.kind === "overview" && view.place === place.id) view.draw();
    if (!this.tabs.all.length) this._drawEmpty();
  }

  // A server that was started again has lost the session, but a new one can be made.
  _connectAgain(id, pause) {
    setTimeout(() => {
      if (this.places.get(id)?.state !== "failed") return;
      this.link.call("place.connect", { place: id }).catch(() => this._connectAgain(id, Math.min(2 * pause, LAST_PAUSE)));
    }, pause);
  }

  _shownChanged(facts) {
    for (const pane of this.panes) if (pane.facts.id === facts.id) pane.update(facts);
  }

  _shownGone(id) {
    for (const pane of this.panes) if (pane.facts.id === id) this._removePane(pane);
  }

  // Views.

  get panes() {
    return this.tabs.all.flatMap((view) => view.panes ?? []);
  }

  get currentPane() {
    return this.tabs.current?.current ?? null;
  }

  choose(id) {
    this.chosen = id;
    this.sidebar.draw();
    const place = this.places.get(id);
    if (place.state === "idle" || place.state === "failed") this.link.call("place.connect", { place: id }).catch(() => {});
    if (!this.tabs.all.length) this._drawEmpty();
  }

  async newTerminal(id = this.chosen, cwd = undefined) {
    this._hideSide();
    await this._open({ place: id, terminal: true, cwd }, (facts) => this.openShown(facts));
  }

  async _open(words, then) {
    if (!words.place) return;
    this.chosen = words.place;
    this.sidebar.draw();
    try {
      then(await this.link.call("process.start", { columns: 80, rows: 24, ...words }));
    } catch (error) {
      failed(error);
    }
  }

  async openShown(facts) {
    const TerminalTab = await this._terminalTab();
    const pane = this.panes.find((each) => each.facts.id === facts.id);
    if (pane) {
      const there = this.tabs.all.find((view) => view.panes?.includes(pane));
      this.tabs.show(there);
      return there;
    }
    this._showEmpty(false);
    const tab = new TerminalTab(this, facts);
    this.tabs.add(tab, tab.current.title, facts.terminal ? "terminal" : "play");
    tab.start().then(() => tab.current.onTitle(tab.current.title, null));
    tab.current.focus();
    return tab;
  }

  async split(pane, direction) {
    const tab = this.tabs.all.find((view) => view.panes?.includes(pane));
    await this._open({ place: pane.facts.place, terminal: true }, (facts) => tab.split(pane, facts, direction));
  }

  async _openView(kind, id, load, title, iconName) {
    this._hideSide();
    this.chosen = id;
    this.sidebar.draw();
    const there = this.tabs.all.find((view) => view.kind === kind && view.place === id);
    if (there) return this.tabs.show(there);
    const view = await load();
    this._showEmpty(false);
    this.tabs.add(view, title, iconName);
  }

  async _connected(id) {
    await this.link.call("place.connect", { place: id });
    return this.places.get(id);
  }

  openProcesses(id) {
    this._connected(id).then((place) => this._openView("processes", id, async () => new (await import("./processes_view.js")).ProcessesView(this, id), `Processes · ${place.name}`, "list"), failed);
  }

  openFiles(id) {
    this._connected(id).then((place) => {
      const start = place.info?.home ?? place.info?.cwd ?? "/";
      this._openView("files", id, () => this._filesView(id, start), "Files", "folder");
    }, failed);
  }

  async _filesView(id, start) {
    const [{ FilesView }, { Uploads }] = await Promise.all([import("./files_view.js"), import("./uploads.js")]);
    if (this.uploads === null) {
      this.uploads = new Uploads(this.link);
      document.getElementById("app").append(this.uploads.element);
    }
    return new FilesView(this, id, start);
  }

  openPorts(id) {
    this._connected(id).then((place) => this._openView("ports", id, async () => new (await import("./ports_view.js")).PortsView(this, id), `Ports · ${place.name}`, "port"), failed);
  }

  async openRecordings() {
    const { RecordingsView } = await import("./recordings_view.js");
    this._openOnce((view) => view.kind === "recordings", () => new RecordingsView(this), "Recordings", "film");
  }

  async openRecording(name, found = null) {
    const { RecordingView } = await import("./recordings_view.js");
    const there = this.tabs.all.find((view) => view.kind === "recording" && view.name === name);
    if (there && found) there.player.showFound(found.time, found.row);
    this._openOnce((view) => view === there, () => new RecordingView(this, name, found), name, "play");
  }

  _openOnce(isIt, make, title, iconName) {
    this._hideSide();
    const there = this.tabs.all.find(isIt);
    if (there) return this.tabs.show(there);
    this._showEmpty(false);
    this.tabs.add(make(), title, iconName);
  }

  openOverview(id) {
    this._openView("overview", id, async () => new (await import("./overview_view.js")).OverviewView(this, id), this.places.get(id).name, "info");
  }

  async openFile(place, path, name, isPicture) {
    const there = this.tabs.all.find((view) => view.kind === "file" && view.place === place && view.path === path);
    if (there) return this.tabs.show(there);
    const { FileView } = await import("./file_view.js");
    this.tabs.add(new FileView(this, { place, path, name, isPicture }), name, "file");
  }

  async ticketUrl(place, path, isPicture = false) {
    const { ticket } = await this.link.call("file.ticket", { place, path, picture: isPicture });
    return `/download/${ticket}/${encodeURIComponent(path.split("/").at(-1))}`;
  }

  async download(place, path) {
    try {
      this.save(await this.ticketUrl(place, path), path.split("/").at(-1));
    } catch (error) {
      failed(error);
    }
  }

  // Lets the browser download what the program offers.
  save(href, name) {
    const link = h("a", { href, download: name });
    document.body.append(link);
    link.click();
    link.remove();
  }

  // Closing.

  async closeView(view) {
    if (view.mayClose && !(await view.mayClose())) return;
    if (view.panes) for (const pane of [...view.panes]) this.closePane(pane);
    else this.tabs.remove(view);
  }

  closePane(pane) {
    if (this.link.state === "open" && pane.facts.state !== "left") this.link.call("shown.close", { id: pane.facts.id }).catch(() => {});
    this._removePane(pane);
  }

  _removePane(pane) {
    const tab = this.tabs.all.find((view) => view.panes?.includes(pane));
    if (tab && !tab.remove(pane)) this.tabs.remove(tab);
  }

  _changed(view) {
    const place = this.places.get(view.place ?? view.current?.facts?.place);
    document.title = `${view.tab.name.textContent} – ${place?.name ?? "exec-server"}`;
    document.body.classList.toggle("is-terminal", view.kind === "terminal");
  }

  _showEmpty(isShown) {
    this._empty.hidden = !isShown;
    this.tabs.area.hidden = isShown;
  }

  _drawEmpty() {
    const place = this.places.get(this.chosen);
    document.title = "exec-server";
    document.body.classList.remove("is-terminal");
    this._showEmpty(true);
    if (!place) return;
    fill(
      this._empty,
      h("h1", {}, place.name),
      h("p", { class: "where" }, place.where),
      place.problem && h("p", { class: "problem", role: "alert" }, place.problem),
      h(
        "div",
        { class: "cards" },
        button("New terminal", () => this.newTerminal(place.id), { class: "button primary" }),
        button("Processes", () => this.openProcesses(place.id)),
        button("Files", () => this.openFiles(place.id)),
        button("Ports", () => this.openPorts(place.id)),
        button("Overview", () => this.openOverview(place.id)),
      ),
      h("p", { class: "hint" }, h("kbd", {}, "F1"), " shows all commands, ", h("kbd", {}, "Alt+Shift+T"), " opens a terminal."),
    );
  }

  // Commands and their keys.

  _allCommands() {
    const pane = (act) => () => this.currentPane && act(this.currentPane);
    return [
      { label: "New terminal", keys: "Alt+Shift+T", code: "KeyT", act: () => this.newTerminal() },
      { label: "Split right", keys: "Alt+Shift+D", code: "KeyD", act: pane((each) => this.split(each, "row")) },
      { label: "Split down", keys: "Alt+Shift+S", code: "KeyS", act: pane((each) => this.split(each, "column")) },
      { label: "Close the terminal or tab", keys: "Alt+Shift+W", code: "KeyW", act: () => this._closeCurrent() },
      { label: "Next tab", keys: "Alt+Shift+→", code: "ArrowRight", act: () => this.tabs.step(1) },
      { label: "Previous tab", keys: "Alt+Shift+←", code: "ArrowLeft", act: () => this.tabs.step(-1) },
      { label: "Next pane", keys: "Alt+Shift+N", code: "KeyN", act: () => this._nextPane() },
      { label: "Processes", keys: "Alt+Shift+P", code: "KeyP", act: () => this.openProcesses(this.chosen) },
      { label: "Files", keys: "Alt+Shift+F", code: "KeyF", act: () => this.openFiles(this.chosen) },
      { label: "Ports", keys: "Alt+Shift+O", code: "KeyO", act: () => this.openPorts(this.chosen) },
      { label: "Recordings", keys: "Alt+Shift+R", code: "KeyR", act: () => this.openRecordings() },
      { label: "Go back in the terminal", keys: "Alt+Shift+H", code: "KeyH", act: pane((each) => each.goBack()) },
      { label: "Go to the environments", keys: "Alt+Shift+E", code: "KeyE", act: () => this._goToSide() },
      { label: "Overview of the environment", act: () => this.openOverview(this.chosen) },
      { label: "Search in the terminal", keys: "Ctrl+Shift+F", act: pane((each) => each.search.show()) },
      { label: "Copy", keys: "Ctrl+Shift+C", act: pane((each) => each.copy()) },
      { label: "Paste", keys: "Ctrl+Shift+V", act: pane((each) => each.pasteClipboard()) },
      { label: "Theme: dark", act: () => setTheme("dark") },
      { label: "Theme: light", act: () => setTheme("light") },
      { label: "Theme: as the system", act: () => setTheme("auto") },
      { label: "Screen reader mode of terminals on or off", act: () => this._toggleReader() },
      { label: "Sign out of this browser", act: () => signOut().catch(failed) },
    ];
  }

  async openPalette() {
    const { openPalette } = await import("./palette.js");
    const places = [...this.places.values()].map((place) => ({ label: `Environment: ${place.name}`, act: () => this.choose(place.id) }));
    openPalette([...this._commands, ...places]);
  }

  _toggleReader() {
    const isOn = localStorage.getItem("screenReader") !== "yes";
    localStorage.setItem("screenReader", isOn ? "yes" : "no");
    for (const pane of this.panes) pane.terminal.options.screenReaderMode = isOn;
  }

  _nextPane() {
    const panes = this.tabs.current?.panes ?? [];
    const at = panes.indexOf(this.currentPane);
    panes[(at + 1) % panes.length]?.focus();
  }

  _closeCurrent() {
    if (this.currentPane) this.closePane(this.currentPane);
    else if (this.tabs.current) this.closeView(this.tabs.current);
  }

  _command(event) {
    if (event.key === "F1") return { act: () => this.openPalette() };
    if (!event.altKey || !event.shiftKey || event.ctrlKey || event.metaKey) return null;
    return this._commands.find((command) => command.code === event.code) ?? null;
  }

  isShortcut(event) {
    return this._command(event) !== null;
  }

  _key(event) {
    const command = document.querySelector("dialog[open]") ? null : this._command(event);
    if (!command) return;
    event.preventDefault();
    command.act();
  }
}
