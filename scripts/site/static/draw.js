// Draw the diagrams, which are text in the pages. Without mermaid.min.js the text stays.
if (window.mermaid) {
  const dark = document.body.dataset.theme === "dark" ||
    (document.body.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  mermaid.initialize({ startOnLoad: true, theme: dark ? "dark" : "neutral", securityLevel: "strict" });
}
