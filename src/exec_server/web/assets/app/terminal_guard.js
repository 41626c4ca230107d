// What a program may not do with the person's browser: read the clipboard, write it unasked, open
// links that are no web pages, or have a question answered twice.

import { notice } from "./notices.js";

const MAX_CLIPBOARD = 1024 * 1024;

// OSC 52: a read is never answered; a write is asked about.
export function guardClipboard(terminal) {
  let dismiss = () => {};
  terminal.parser.registerOscHandler(52, (data) => {
    const text = clipboardText(data);
    if (text) {
      dismiss();
      dismiss = notice(`A program wants to copy ${text.length} characters to the clipboard.`, {
        actions: [["Copy", () => navigator.clipboard.writeText(text)], ["Ignore", () => {}]],
      });
    }
    return true;
  });
}

export function clipboardText(data) {
  const encoded = data.slice(data.indexOf(";") + 1);
  if (encoded === "?" || encoded.length > MAX_CLIPBOARD * 1.4) return null;
  try {
    const bytes = Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes).slice(0, MAX_CLIPBOARD);
  } catch {
    return null;
  }
}

export function openLink(event, text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    return;
  }
  if (url.protocol === "http:" || url.protocol === "https:") open(url.href, "_blank", "noopener,noreferrer");
}

// Questions of programs to the terminal. xterm.js answers them, in every window that shows them.
const QUERIES = [
  { final: "c" },
  { prefix: ">", final: "c" },
  { prefix: "=", final: "c" },
  { final: "n" },
  { prefix: "?", final: "n" },
  { intermediates: "$", final: "p" },
  { prefix: "?", intermediates: "$", final: "p" },
  { prefix: ">", final: "q" },
];

// While *isSilent* says so, questions are left to another window, or were answered long ago.
export function silenceQueries(terminal, isSilent) {
  for (const each of QUERIES) terminal.parser.registerCsiHandler(each, () => isSilent());
  terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, () => isSilent());
  for (const number of [4, 10, 11, 12]) {
    terminal.parser.registerOscHandler(number, (data) => data.includes("?") && isSilent());
  }
}
