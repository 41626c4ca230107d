// All commands by name: type, choose, Enter.

import { fill, h } from "./dom.js";

export function openPalette(commands) {
  if (document.querySelector("dialog.palette")) return;
  let found = commands;
  let at = 0;
  const list = h("ul", { role: "listbox", id: "palette-list", "aria-label": "Commands" });
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  const run = (command) => {
    close();
    command.act();
  };
  const draw = () => {
    fill(list, found.slice(0, 50).map((command, index) => h("li", { role: "option", id: `palette-${index}`, "aria-selected": String(index === at), onclick: () => run(command) }, h("span", {}, command.label), command.keys && h("kbd", {}, command.keys))));
    input.setAttribute("aria-activedescendant", found.length ? `palette-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  };
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = commands.filter((command) => words.every((word) => command.label.toLowerCase().includes(word)));
    at = 0;
    draw();
  };
  const key = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      at = (at + step + found.length) % found.length;
      draw();
    } else if (event.key === "Enter" && found[at]) run(found[at]);
    else return;
    event.preventDefault();
  };
  const input = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Command", placeholder: "Type a command", autocomplete: "off", oninput: filter, onkeydown: key });
  const dialog = h("dialog", { class: "palette", "aria-label": "Commands", oncancel: (event) => { event.preventDefault(); close(); }, onclick: (event) => event.target === dialog && close() }, input, list);
  document.body.append(dialog);
  dialog.showModal();
  draw();
}
