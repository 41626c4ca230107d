// Short notices in a corner, and questions in dialogs.

import { button, h, iconButton } from "./dom.js";

const SHOWN_FOR = 6000;

export function notice(text, { kind = "info", actions = [], stays = false } = {}) {
  const close = () => element.remove();
  const element = h(
    "div",
    { class: `notice ${kind}` },
    h("span", {}, text),
    actions.map(([label, act]) => button(label, () => { close(); act(); }, { class: "button small" })),
    iconButton("close", "Dismiss", close),
  );
  const list = document.getElementById("notices");
  list.append(element);
  while (list.children.length > 5) list.firstChild.remove();
  if (!stays && !actions.length) setTimeout(close, SHOWN_FOR);
  return close;
}

export function failed(error) {
  notice(error.message, { kind: "bad" });
}

// Resolves with the values of the fields, or null if the person changes their mind.
export function ask(title, { text = "", fields = [], yes = "OK", isDanger = false } = {}) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) =>
      h("input", { type: field.type ?? "text", name: field.name, value: field.value ?? "", checked: field.checked === true, placeholder: field.placeholder ?? "", autocomplete: "off", spellcheck: "false" }),
    );
    const rows = fields.map((field, at) =>
      field.type === "checkbox"
        ? h("label", { class: "check" }, inputs[at], field.label)
        : h("label", { class: "field" }, h("span", {}, field.label), inputs[at]),
    );
    const done = (value) => {
      dialog.close();
      dialog.remove();
      resolve(value);
    };
    const accept = () =>
      done(Object.fromEntries(inputs.map((input) => [input.name, input.type === "checkbox" ? input.checked : input.value])));
    const form = h(
      "form",
      { method: "dialog", onsubmit: (event) => { event.preventDefault(); accept(); } },
      h("h2", {}, title),
      text && h("p", {}, text),
      rows,
      h("div", { class: "buttons" }, button("Cancel", () => done(null)), h("button", { class: `button ${isDanger ? "danger" : "primary"}`, type: "submit" }, yes)),
    );
    const dialog = h("dialog", { "aria-label": title, oncancel: (event) => { event.preventDefault(); done(null); } }, form);
    document.body.append(dialog);
    dialog.showModal();
    const first = inputs.find((input) => input.type !== "checkbox");
    if (first) first.select();
  });
}

// A small menu below a button; entries are [label, act, isDanger].
export function menu(anchor, entries) {
  document.querySelector(".menu")?.remove();
  const close = () => {
    element.remove();
    document.removeEventListener("pointerdown", outside, true);
    anchor.focus();
  };
  const outside = (event) => {
    if (!element.contains(event.target)) close();
  };
  const items = entries.map(([label, act, isDanger]) =>
    h("button", { type: "button", role: "menuitem", class: isDanger ? "danger" : "", onclick: () => { close(); act(); } }, label),
  );
  const element = h("div", { class: "menu", role: "menu", onkeydown: (event) => move(event) }, items);
  const move = (event) => {
    const at = items.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) items[(at + step + items.length) % items.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  document.body.append(element);
  const box = anchor.getBoundingClientRect();
  const left = Math.min(box.left, innerWidth - element.offsetWidth - 8);
  const below = box.bottom + 4;
  const top = below + element.offsetHeight < innerHeight ? below : Math.max(8, box.top - element.offsetHeight - 4);
  element.style.left = `${Math.max(8, left)}px`;
  element.style.top = `${top}px`;
  document.addEventListener("pointerdown", outside, true);
  items[0]?.focus();
}
