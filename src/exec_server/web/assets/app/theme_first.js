// Runs before the first paint, so that a chosen theme does not flash.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* Without storage the system decides. */ }
