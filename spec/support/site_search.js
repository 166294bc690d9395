// The search of the site without a browser: node site_search.js INDEX.HTML WORDS... prints a line of names for each.
"use strict";
const fs = require("fs");
const page = fs.readFileSync(process.argv[2], "utf8");

function element() {
  return {
    classList: {add() {}, remove() {}, toggle() {}}, dataset: {}, children: [], listeners: {},
    append(...items) { this.children.push(...items); },
    addEventListener(name, listener) { this.listeners[name] = listener; },
    querySelectorAll() { return []; }, scrollIntoView() {}, contains() { return true; }, blur() {}, focus() {},
  };
}

const names = /<script type="application\/json" id="names">([^]*?)<\/script>/.exec(page)[1];
const places = {names: {textContent: names}, search: element(), found: element(), menu: element()};
global.location = {hash: ""};
global.scrollTo = global.addEventListener = () => {};
global.document = {
  getElementById: (id) => places[id], documentElement: element(), body: element(), querySelector: element,
  querySelectorAll: () => [], createElement: element, addEventListener() {},
};
const scripts = page.match(/<script>([^]*?)<\/script>/);
new Function(scripts[1])();

for (const words of process.argv.slice(3)) {
  places.search.value = words;
  places.found.children = [];
  places.search.listeners.input();
  console.log(places.found.children.slice(0, 5).map((item) => item.children[0].children[0].textContent).join(" "));
}
