-- The look of the page, light and dark. Colours are told apart without hue: strength goes with rank, and what has
-- another meaning has another lightness or a word beside it (hues by Okabe and Ito).
return [==[
:root {
  --back: #fff; --text: #1f2328; --soft: #59636e; --line: #d8dee4; --tint: #f5f7f9; --link: #0a5fb4; --mark: #e8f1fb;
  --q0: #0b4f8a; --q1: #2f7ab5; --q2: #5a92c0; --q3: #82accf; --q4: #a9c3da;
  --best: #d55e00; --faint: #8f99a3; --chosen: #111;
  --complete: #0072b2; --pruned: #8b959f; --running: #009e73; --paused: #e69f00; --waiting: #c9d0d7; --failed: #c0396b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171a; --text: #e4e7ea; --soft: #9aa4ae; --line: #30363d; --tint: #1d2126; --link: #6cb2ff; --mark:
    #1d2f45;
    --q0: #b9dcff; --q1: #7db8ea; --q2: #5a92c4; --q3: #4d7ba4; --q4: #42627f;
    --best: #ff9d5c; --faint: #6c7681; --chosen: #fff;
    --complete: #56a8e0; --pruned: #6c7681; --running: #2fc79a; --paused: #e6b450; --waiting: #3d454d; --failed:
    #f07ba5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 72rem; padding: 0 1.25rem 4rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif;
}
header { display: flex; flex-wrap: wrap; gap: 0 1rem; align-items: baseline; margin-top: 1.2rem; }
header p, .note, .name, .keys { color: var(--soft); font-size: .85rem; }
h1 { margin: 0; font-size: 1.7rem; overflow-wrap: anywhere; }
h2 { margin: 2.4rem 0 .4rem; padding-bottom: .25rem; font-size: 1.2rem; border-bottom: 1px solid var(--line); }
h3 { margin: .4rem 0; font-size: .9rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; }
a { color: var(--link); text-decoration: none; }
a:hover, p a { text-decoration: underline; }
code, pre, .params td, td.number {
  font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: .85em;
}
pre { padding: .6rem .8rem; overflow-x: auto; background: var(--tint); border-radius: 6px; }
.best strong { font-size: 1.5rem; }
.command { overflow-wrap: anywhere; }
.facts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .2rem 1.5rem; margin: 1rem 0;
}
.facts div { display: flex; gap: .6rem; }
dt { color: var(--soft); min-width: 5.8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: .88rem; }
th { text-align: left; font-weight: 600; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: baseline; }
.params th { font-weight: 400; color: var(--soft); }
.wide { overflow-x: auto; }
.plot { margin: .5rem 0; display: grid; grid-template: "name name" "y inner" ". under" / auto minmax(0, 1fr); }
.name { grid-area: name; }
.under { grid-area: under; text-align: right; }
.inner { grid-area: inner; }
.area { position: relative; border: 1px solid var(--line); border-width: 0 0 1px 1px; }
.area svg { display: block; width: 100%; height: 100%; overflow: visible; }
.x, .y { position: relative; font-size: .75rem; color: var(--soft); white-space: nowrap; }
.x { height: 1.4rem; }
.y { grid-area: y; margin-bottom: 1.4rem; }
.x span, .y span, .axis span, .axis b { position: absolute; overflow: hidden; text-overflow: ellipsis; }
.x span { transform: translateX(-50%); top: .15rem; }
.x .first { transform: none; }
.x .last { transform: translateX(-100%); }
.y span { right: .4rem; max-width: 100%; transform: translateY(50%); line-height: 1.2; }
path { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-width: 1px; }
.grid, .stem { stroke: var(--line); }
.stem { stroke: var(--soft); }
.dots { stroke-linecap: round; stroke-width: 6px; }
.dots.done { stroke: var(--q1); }
.dots.faint { stroke: var(--faint); stroke-width: 4px; }
.dots.best { stroke: var(--best); stroke-width: 11px; }
.so-far { stroke: var(--best); stroke-width: 2px; }
.q0 { stroke: var(--q0); } .q1 { stroke: var(--q1); } .q2 { stroke: var(--q2); } .q3 { stroke: var(--q3); }
.q4 { stroke: var(--q4); }
.strand { stroke-opacity: .75; }
.strand.faint { stroke: var(--faint); stroke-opacity: .4; }
.strand.best { stroke: var(--best); stroke-width: 3px; stroke-opacity: 1; }
.brushed .strand { stroke-opacity: .12; }
.curve { stroke: var(--faint); stroke-opacity: .7; stroke-linecap: round; }
.curve.done { stroke: var(--q1); }
.curve.failed { stroke: var(--failed); stroke-dasharray: 4 3; }
.curve.best { stroke: var(--best); stroke-width: 2.5px; stroke-opacity: 1; }
.area .kept { stroke: var(--q0); stroke-opacity: .9; }
.area .kept.dots { stroke: var(--chosen); stroke-width: 7px; }
.area .chosen { stroke: var(--chosen); stroke-width: 2.5px; stroke-opacity: 1; }
.area .chosen.dots { stroke-width: 10px; }
.box { stroke: none; }
path.complete { fill: var(--complete); } path.pruned { fill: var(--pruned); } path.running { fill: var(--running); }
path.paused { fill: var(--paused); } path.waiting { fill: var(--waiting); } path.failed { fill: var(--failed); }
path.curve.failed { fill: none; }
.key { margin-right: 1rem; white-space: nowrap; }
.key::before {
  content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .35em; vertical-align: -.05em;
}
.key.complete::before { background: var(--complete); } .key.pruned::before { background: var(--pruned); }
.key.running::before { background: var(--running); } .key.paused::before { background: var(--paused); }
.key.waiting::before { background: var(--waiting); } .key.failed::before { background: var(--failed); }
.parallel { padding: 3rem 5rem 2.2rem .5rem; }
.parallel .area { height: 20rem; border: 0; }
.axis { position: absolute; top: 0; bottom: 0; width: 0; }
.axis small { display: block; font-weight: 400; overflow: hidden; text-overflow: ellipsis; }
.axis b { bottom: calc(100% + .6rem); left: 0; max-width: 6.6rem; font-size: .8rem; white-space: nowrap; }
.axis span {
  left: .2rem; padding: 0 .15rem; transform: translateY(50%); font-size: .72rem; line-height: 1.1; white-space: nowrap;
  background: var(--back); opacity: .85; border-radius: 2px; pointer-events: none;
}
.brush {
  position: absolute; top: 0; bottom: 0; width: 2.2rem; margin-left: -1.1rem; cursor: ns-resize; touch-action: none;
}
.brush i { position: absolute; left: .7rem; right: .7rem; background: var(--best); opacity: .35; border-radius: 3px; }
.bars { width: 100%; }
.bars th, .bars td { vertical-align: middle; }
.bars th {
  width: 1%; font-weight: 400; white-space: nowrap; max-width: 40vw; overflow: hidden; text-overflow: ellipsis;
}
.bars thead th { font-size: .8rem; color: var(--soft); }
.bars .number { width: 1%; padding: .25rem 0 .25rem .8rem; text-align: right; white-space: nowrap; }
.bars .bar { width: 100%; padding-right: 0; }
.bar i { display: block; height: 1em; min-width: 1px; background: var(--q1); border-radius: 0 3px 3px 0; }
.slices { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: .5rem 1.5rem; }
.slice { min-width: 0; }
#rows { min-width: 100%; }
#rows th, #rows td { white-space: nowrap; }
#rows thead button { all: unset; cursor: pointer; font-weight: 600; }
#rows thead button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
#rows [aria-sort] button::after { content: " ↑"; }
#rows [aria-sort=descending] button::after { content: " ↓"; }
#rows tr.here { background: var(--mark); }
#rows td.error { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }
td.failed { color: var(--failed); }
td.pruned, td.waiting { color: var(--soft); }
.tools { display: flex; flex-wrap: wrap; gap: .5rem 1rem; margin: .6rem 0; font-size: .9rem; align-items: center; }
.tools input, .tools select, #more {
  padding: .35rem .6rem; font: inherit; color: inherit; background: var(--tint); border: 1px solid var(--line);
  border-radius: 6px; max-width: 60vw;
}
#more { margin-top: .6rem; }
.script { display: none; }
.js .script { display: block; }
.js .tools { display: flex; }
.js .plain, .js [hidden] { display: none; }
#tip {
  position: fixed; z-index: 2; max-width: min(20rem, 80vw); padding: .4rem .6rem; font-size: .8rem; pointer-events:
    none;
  background: var(--back); color: var(--text); border: 1px solid var(--soft); border-radius: 6px; white-space: pre-line;
  overflow-wrap: anywhere; box-shadow: 0 4px 16px rgb(0 0 0 / .2);
}
#tip[hidden] { display: none; }
@media (max-width: 600px) {
  body { padding: 0 .8rem 3rem; }
  .x .spare { display: none; }
  .facts { grid-template-columns: 1fr; }
}
@media print { .script, #tip { display: none !important; } section { break-inside: avoid; } }
]==]
