// How the panes of a tab are arranged, so that a reload shows them as they were.
// A layout is the id of a terminal, or [direction, share of the first, first, second].

const KEY = "layout";

export function layoutOf(element) {
  if (!element.classList.contains("split")) return element.dataset.shown;
  const [first, , second] = element.children;
  const direction = element.classList.contains("row") ? "row" : "column";
  return [direction, Number(first.style.flexGrow) || 0.5, layoutOf(first), layoutOf(second)];
}

// What is left of a layout if only some terminals are still there; null if none is.
export function pruned(layout, isThere) {
  if (!Array.isArray(layout)) return isThere(layout) ? layout : null;
  const [direction, share, ...parts] = layout;
  const [first, second] = parts.map((part) => pruned(part, isThere));
  return first && second ? [direction, share, first, second] : (first ?? second);
}

export function firstOf(layout) {
  return Array.isArray(layout) ? firstOf(layout[2]) : layout;
}

// current is a terminal of the tab that is shown.
export function saveLayouts(layouts, current) {
  sessionStorage.setItem(KEY, JSON.stringify({ layouts, current }));
}

export function savedLayouts() {
  try {
    const { layouts, current } = JSON.parse(sessionStorage.getItem(KEY));
    return { layouts: Array.isArray(layouts) ? layouts : [], current };
  } catch {
    return { layouts: [], current: null };
  }
}
