// Dark, light, or as the system says; and the colours of terminals, taken from the same styles.

import { iconButton } from "./dom.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of listeners) listener();
}

system.addEventListener("change", tell);

export function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

export function setTheme(name) {
  if (name === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("theme");
  } else {
    document.documentElement.dataset.theme = name;
    localStorage.setItem("theme", name);
  }
  tell();
}

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const ICONS = { auto: "auto", light: "sun", dark: "moon" };
const WORDS = { auto: "as the system", light: "light", dark: "dark" };

export function themeButton() {
  const make = () => {
    const now = theme();
    return iconButton(ICONS[now], `Theme: ${WORDS[now]}`, () => setTheme(NEXT[theme()]));
  };
  let shown = make();
  onTheme(() => {
    const next = make();
    const hadFocus = document.activeElement === shown;
    shown.replaceWith(next);
    shown = next;
    if (hadFocus) next.focus();
  });
  return shown;
}

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

export function terminalColours() {
  const styles = getComputedStyle(document.documentElement);
  const colour = (name) => styles.getPropertyValue(`--${name}`).trim();
  const found = {
    background: colour("terminal"),
    foreground: colour("terminal-text"),
    cursor: colour("accent"),
    cursorAccent: colour("terminal"),
    selectionBackground: colour("selection"),
  };
  for (const name of NAMES) {
    found[name] = colour(`ansi-${name}`);
    found[`bright${name[0].toUpperCase()}${name.slice(1)}`] = colour(`ansi-bright-${name}`);
  }
  return found;
}
