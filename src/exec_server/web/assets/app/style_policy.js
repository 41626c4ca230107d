// xterm.js sets styles in two ways that our content policy refuses: <style> elements and style
// attributes. Both have a form that the policy allows, because no markup is involved: sheets that a
// script constructs, and properties of `element.style`. This module must be imported before xterm.js.

const plainSet = Element.prototype.setAttribute;
Element.prototype.setAttribute = function setAttribute(name, value) {
  if (name === "style" && this.style) this.style.cssText = value;
  else plainSet.call(this, name, value);
};

const plainCreate = document.createElement.bind(document);
document.createElement = (tag, options) => (tag === "style" ? styleElement() : plainCreate(tag, options));

// An element whose text becomes a constructed sheet; removing the element removes the sheet.
function styleElement() {
  const element = plainCreate("span");
  const sheet = new CSSStyleSheet();
  let text = "";
  element.hidden = true;
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", {
    get: () => text,
    set: (value) => {
      text = value;
      sheet.replaceSync(value);
    },
  });
  element.remove = () => {
    Element.prototype.remove.call(element);
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
  };
  return element;
}
