/* The page's behaviour when scripts run: names under the pointer, parts of axes kept, and a table that sorts and
 * filters. The rows are those of html.lua: number, state, rank, value, y, parameters, places, time, seconds, error,
 * address, x in the history, where drawn (1 parallel, 2 slices); spans: row, slot, from, till. */
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("study").textContent), rows = data.rows;
  var SVG = "http://www.w3.org/2000/svg", names = data.names, tip = document.getElementById("tip");
  var chosen = -1, kept = null, ranges = {}, order = {column: 2, down: false}, page = data.page;
  document.documentElement.classList.add("js");

  function path(area, words) {
    var made = document.createElementNS(SVG, "path");
    made.setAttribute("class", words);
    area.querySelector("svg").appendChild(made);
    return made;
  }

  function dot(x, y) { return x === null || y === null ? "" : "M" + x + " " + (1000 - y) + "h0"; }

  // The corners of a row's line, below the axes of parameters that were not active.
  function points(row) {
    var list = [];
    row[6].concat([row[4]]).forEach(function (y, i) { list.push(i / names.length * 1000, y === null ? -60 : y); });
    return list;
  }

  function strand(row) {
    return points(row).reduce(function (text, value, i, all) {
      return i % 2 ? text : text + (i ? "L" : "M") + Math.round(value) + " " + (1000 - all[i + 1]);
    }, "");
  }

  function curve(row) {
    var found = data.curves.find(function (one) { return rows[one[0] - 1] === row; });
    if (!found) return "";
    for (var i = 0, text = ""; i < found[1].length; i += 2)
      text += (i ? "L" : "M") + found[1][i] + " " + (1000 - found[1][i + 1]);
    return text + (found[1].length === 2 ? "h0" : "");
  }

  function box(row) {
    var high = 1000 / data.slots;
    return data.spans.map(function (one) {
      if (rows[one[0] - 1] !== row) return "";
      return "M" + one[2] + " " + one[1] * high + "H" + Math.max(one[3], one[2] + 1) + "v" + high + "H" + one[2] + "z";
    }).join("");
  }

  // Of each kind of picture: the mark of a row, and how far it is from the pointer, in pixels.
  var kinds = {
    history: {mark: function (row) { return dot(row[11], row[4]); }, class: "dots"},
    slice: {mark: function (row, at) { return dot(row[6][at], row[4]); }, class: "dots"},
    parallel: {mark: strand, class: ""}, curves: {mark: curve, class: ""}, timeline: {mark: box, class: ""}
  };

  function between(x, y, x1, y1, x2, y2) {
    var dx = x2 - x1, dy = y2 - y1, along = dx || dy ? ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy) : 0;
    along = Math.max(0, Math.min(1, along));
    return Math.hypot(x - x1 - along * dx, y - y1 - along * dy);
  }

  // The distance to a line through points in thousandths, from below.
  function toLine(points, x, y, wide, high) {
    var least = Infinity;
    for (var i = 0; i < points.length; i += 2) {
      var j = Math.min(i + 2, points.length - 2);
      least = Math.min(least, between(x, y, points[i] * wide / 1000, high - points[i + 1] * high / 1000,
        points[j] * wide / 1000, high - points[j + 1] * high / 1000));
    }
    return least;
  }

  function isKept(row) { return !kept || kept.has(row); }

  function nearest(area, x, y) {
    var wide = area.clientWidth, high = area.clientHeight, kind = area.dataset.kind, at = area.dataset.at - 1;
    var least = kind === "timeline" ? 1 : 24, found = null;
    function take(row, distance) { if (distance < least && isKept(row)) { least = distance; found = row; } }
    if (kind === "curves") {
      data.curves.forEach(function (one) { take(rows[one[0] - 1], toLine(one[1], x, y, wide, high)); });
      return found;
    }
    if (kind === "timeline") {
      data.spans.forEach(function (one) {
        if (Math.floor(y / high * data.slots) !== one[1]) return;
        take(rows[one[0] - 1], Math.max(0, one[2] * wide / 1000 - x, x - one[3] * wide / 1000) / 4);
      });
      return found;
    }
    rows.forEach(function (row) {
      if (kind === "parallel") {
        if (!(row[12] & 1)) return;
        take(row, toLine(points(row), x, y, wide, high));
      } else {
        var px = kind === "history" ? row[11] : row[6][at];
        if (px === null || row[4] === null) return;
        take(row, Math.hypot(x - px * wide / 1000, y - high + row[4] * high / 1000));
      }
    });
    return found;
  }

  function tell(row, event) {
    var rank = row[2] ? ", rank " + row[2] : "", high;
    var lines = ["trial " + row[0] + ", " + (data.states[row[1]] || "?") + ": " + row[3] + rank];
    names.forEach(function (name, i) { if (row[5][i] !== "") lines.push(name + ": " + row[5][i]); });
    if (row[9]) lines.push(row[9]);
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    high = tip.offsetHeight;
    tip.style.top = Math.max(8, event.clientY + (event.clientY + 16 + high > innerHeight ? -high - 12 : 16)) + "px";
  }

  var areas = Array.prototype.map.call(document.querySelectorAll(".area[data-kind]"), function (area) {
    var kind = kinds[area.dataset.kind];
    return {area: area, kind: kind, kept: path(area, "kept " + kind.class), chosen: path(area, "chosen " + kind.class)};
  });

  function choose(index) {
    if (index === chosen) return;
    chosen = index;
    areas.forEach(function (one) {
      one.chosen.setAttribute("d", index < 0 ? "" : one.kind.mark(rows[index], one.area.dataset.at - 1));
    });
    document.querySelectorAll("#rows tr[data-index]").forEach(function (line) {
      line.classList.toggle("here", +line.dataset.index === index);
    });
  }

  function forget() { choose(-1); tip.hidden = true; }

  areas.forEach(function (one) {
    function look(event) {
      var place = one.area.getBoundingClientRect();
      var row = nearest(one.area, event.clientX - place.left, event.clientY - place.top);
      choose(row ? rows.indexOf(row) : -1);
      if (row) tell(row, event); else tip.hidden = true;
    }
    one.area.addEventListener("pointermove", look);
    one.area.addEventListener("pointerdown", look);
    one.area.addEventListener("pointerleave", function (event) { if (event.pointerType !== "touch") forget(); });
  });
  // A finger leaves with every tap; what it has chosen stays until the next one.
  document.addEventListener("pointerdown", function (event) { if (!event.target.closest(".area")) forget(); });

  // Parts of axes.
  function keep() {
    var axes = Object.keys(ranges);
    kept = axes.length ? new Set(rows.filter(function (row) {
      return axes.every(function (at) {
        var place = +at < names.length ? row[6][at] : row[4];
        return place !== null && place >= ranges[at][0] && place <= ranges[at][1];
      });
    })) : null;
    areas.forEach(function (one) {
      var parallel = one.area.dataset.kind === "parallel", at = one.area.dataset.at - 1;
      one.area.classList.toggle("brushed", kept !== null);
      one.kept.setAttribute("d", kept && one.area.dataset.kind !== "timeline" ? Array.from(kept).filter(function (row) {
        return row[12] & (parallel ? 1 : 2) || one.area.dataset.kind === "curves";
      }).map(function (row) { return one.kind.mark(row, at); }).join("") : "");
    });
    page = data.page;
    fill();
  }

  document.querySelectorAll(".axis").forEach(function (axis, at) {
    var brush = document.createElement("div"), part = document.createElement("i"), from = 0, drawing = false;
    brush.className = "brush";
    brush.append(part);
    axis.append(brush);
    function place(event) {
      var area = axis.parentNode.getBoundingClientRect();
      return Math.max(0, Math.min(1000, 1000 - (event.clientY - area.top) / area.height * 1000));
    }
    function show() {
      part.style.bottom = (ranges[at] ? ranges[at][0] / 10 : 0) + "%";
      part.style.height = (ranges[at] ? (ranges[at][1] - ranges[at][0]) / 10 : 0) + "%";
    }
    brush.addEventListener("pointerdown", function (event) {
      from = place(event);
      drawing = true;
      brush.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    brush.addEventListener("pointermove", function (event) {
      if (!drawing) return;
      var to = place(event);
      ranges[at] = [Math.min(from, to), Math.max(from, to)];
      show();
    });
    brush.addEventListener("pointerup", function (event) {
      drawing = false;
      if (Math.abs(place(event) - from) < 8) delete ranges[at];
      show();
      keep();
    });
  });

  // The table.
  var find = document.getElementById("find"), state = document.getElementById("state");
  var body = document.querySelector("#rows tbody"), heads = document.querySelectorAll("#rows thead th");
  var more = document.getElementById("more"), shown = document.getElementById("shown");
  data.states.forEach(function (name, i) {
    var option = document.createElement("option");
    option.value = String(i);
    option.textContent = name;
    if (rows.some(function (row) { return row[1] === i; })) state.append(option);
  });

  function keyOf(row, column) {
    var first = 3 + data.further, last = first + names.length;
    if (column === 0) return row[0];
    if (column === 1) return row[1];
    if (column === 2) return row[2] || (row[4] === null ? Infinity : 1e9 + row[1]);
    if (column < first) return row[13][column - 3][1] === null ? Infinity : row[13][column - 3][1];
    if (column < last) return row[6][column - first] === null ? Infinity : row[6][column - first];
    return column === last ? (row[8] === null ? Infinity : row[8]) : row[9] || "\uffff";
  }

  function cell(line, name, text, words) {
    var made = document.createElement(name);
    if (words) made.className = words;
    made.textContent = text;
    line.append(made);
    return made;
  }

  function link(text, address) {
    var made = document.createElement("a");
    made.href = address;
    made.textContent = text;
    return made;
  }

  function lineOf(row) {
    var line = document.createElement("tr"), index = rows.indexOf(row);
    line.dataset.index = String(index);
    if (index === chosen) line.className = "here";
    var head = cell(line, "th", row[10] ? "" : String(row[0]));
    head.scope = "row";
    if (row[10]) head.append(link(String(row[0]), row[10] + "/"));
    cell(line, "td", data.states[row[1]] || "?", "state " + (data.states[row[1]] || ""));
    cell(line, "td", row[3], "number");
    row[13].forEach(function (pair) { cell(line, "td", pair[0], "number"); });
    row[5].forEach(function (text) { cell(line, "td", text, "number"); });
    cell(line, "td", row[7], "number");
    var last = cell(line, "td", row[9] ? row[9] + " " : "", "error");
    if (row[10]) last.append(link("log", row[10] + "/log.txt"));
    line.addEventListener("pointerenter", function () { choose(index); });
    return line;
  }

  function fill() {
    var words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    var list = rows.filter(function (row) {
      if (!isKept(row) || (state.value !== "" && row[1] !== +state.value)) return false;
      var text = [row[0], data.states[row[1]], row[3], row[5].join(" "), row[9]].join(" ").toLowerCase();
      return words.every(function (word) { return text.indexOf(word) >= 0; });
    });
    var sign = order.down ? -1 : 1;
    list.sort(function (a, b) {
      var x = keyOf(a, order.column), y = keyOf(b, order.column);
      return x < y ? -sign : x > y ? sign : a[0] - b[0];
    });
    body.textContent = "";
    list.slice(0, page).forEach(function (row) { body.append(lineOf(row)); });
    more.hidden = list.length <= page;
    shown.textContent = list.length + " of " + rows.length;
    heads.forEach(function (head, i) {
      if (i === order.column) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  heads.forEach(function (head, i) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent || "note";
    head.textContent = "";
    head.append(button);
    button.addEventListener("click", function () {
      order = {column: i, down: order.column === i && !order.down};
      fill();
    });
  });
  function again() { page = data.page; fill(); }
  find.addEventListener("input", again);
  state.addEventListener("change", again);
  more.addEventListener("click", function () { page += data.page * 4; fill(); });
  document.querySelectorAll("[data-trial]").forEach(function (one) {
    one.addEventListener("click", function () { choose(one.dataset.trial - 1); });
  });
  fill();
})();
