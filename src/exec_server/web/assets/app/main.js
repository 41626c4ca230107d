// Begins: signs in, or asks for a token, and shows the page.

import { App } from "./app.js";
import { fill, h } from "./dom.js";
import { Link } from "./link.js";
import { sessionState, signIn, takeLinkSecret } from "./session.js";

function say(title, ...parts) {
  fill(document.getElementById("app"), h("div", { class: "sign-in" }, h("h1", {}, title), parts));
}

function askForToken(problem = "") {
  const input = h("input", { type: "password", name: "token", "aria-label": "Token", autocomplete: "current-password", required: true });
  const submit = async (event) => {
    event.preventDefault();
    try {
      await signIn(input.value.trim());
      begin();
    } catch (error) {
      askForToken(error.message);
    }
  };
  say(
    "exec-server",
    h("p", {}, "Sign in with the token of an admin among the principals."),
    problem && h("p", { class: "problem", role: "alert" }, problem),
    h("form", { onsubmit: submit }, input, h("button", { class: "button primary", type: "submit" }, "Sign in")),
  );
  input.focus();
}

function begin() {
  const link = new Link();
  window.exec = new App(link);
  link.on("state", (state) => state === "signed out" && start());
  link.open();
}

async function start() {
  const secret = takeLinkSecret();
  let problem = "";
  try {
    if (secret) {
      const isIn = await signIn(secret).then(() => true, (error) => { problem = error.message; });
      if (isIn) return begin();
    }
    const state = await sessionState();
    if (state.signedIn) begin();
    else if (state.wantsToken) askForToken();
    else say("Not signed in", problem && h("p", { class: "problem", role: "alert" }, problem), h("p", {}, "Open the URL that `exec-server web` prints. Each URL lets one browser in, once."));
  } catch (error) {
    say("The program is not reachable", h("p", { class: "problem", role: "alert" }, error.message), h("p", {}, "Start `exec-server web` again and open the URL that it prints."));
  }
}

// A new link that is opened in this tab changes only what is behind the #.
addEventListener("hashchange", () => location.hash.startsWith("#token=") && location.reload());

start();
