// Makes elements. Texts of others only ever become text nodes: there is no way to pass HTML.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// Icons are drawn by us from fixed paths.
const PATHS = {
  terminal: "M4 5l5 5-5 5M11 16h6",
  folder: "M2 6a1 1 0 011-1h4l2 2h8a1 1 0 011 1v7a1 1 0 01-1 1H3a1 1 0 01-1-1z",
  file: "M5 2h7l4 4v12H5zM12 2v4h4",
  list: "M3 5h14M3 10h14M3 15h14",
  info: "M10 9v5M10 6v.5M10 2a8 8 0 100 16 8 8 0 000-16z",
  plus: "M10 4v12M4 10h12",
  close: "M5 5l10 10M15 5L5 15",
  search: "M9 3a6 6 0 100 12A6 6 0 009 3zM13.5 13.5L18 18",
  columns: "M3 4h14v12H3zM10 4v12",
  rows: "M3 4h14v12H3zM3 10h14",
  menu: "M3 5h14M3 10h14M3 15h14",
  sun: "M10 6a4 4 0 100 8 4 4 0 000-8zM10 1v2M10 17v2M1 10h2M17 10h2M3.6 3.6l1.4 1.4M15 15l1.4 1.4M3.6 16.4L5 15M15 5l1.4-1.4",
  moon: "M16 12A7 7 0 018 4a6.5 6.5 0 108 8z",
  auto: "M10 2a8 8 0 100 16 8 8 0 000-16zM10 2v16",
  more: "M10 4.2a.6.6 0 100 .1zM10 10a.6.6 0 100 .1zM10 15.8a.6.6 0 100 .1z",
  up: "M10 16V4M5 9l5-5 5 5",
  down: "M10 4v12M5 11l5 5 5-5",
  refresh: "M16 10a6 6 0 11-2-4.5M16 3v3h-3",
  keyboard: "M2 5h16v10H2zM5 8h.1M8 8h.1M11 8h.1M14 8h.1M6 12h8",
  left: "M12 4l-6 6 6 6",
  right: "M8 4l6 6-6 6",
  play: "M6 4l10 6-10 6z",
  pause: "M7 4v12M13 4v12",
  download: "M10 3v10M5 9l5 5 5-5M4 17h12",
  history: "M10 5v5l3 2M4 10a6 6 0 112 4.5M4 17v-3h3",
  film: "M3 4h14v12H3zM7 4v12M13 4v12M3 8h4M3 12h4M13 8h4M13 12h4",
  port: "M6 3v5a4 4 0 008 0V3M10 12v5M8 1v3M12 1v3",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export function iconButton(name, label, onclick, props = {}) {
  const more = { type: "button", "aria-label": label, title: label, onclick };
  return h("button", { class: "icon-button", ...more, ...props }, icon(name));
}

export function button(label, onclick, props = {}) {
  return h("button", { type: "button", class: "button", onclick, ...props }, label);
}
