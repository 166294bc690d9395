// One page is shown at a time, chosen by the address's hash; names are searched in a list made with the site.
(function () {
  "use strict";
  var names = JSON.parse(document.getElementById("names").textContent);
  var field = document.getElementById("search"), found = document.getElementById("found"), chosen = -1;
  document.documentElement.classList.add("js");

  function show() {
    var id = decodeURIComponent(location.hash.slice(1));
    var target = id && document.getElementById(id);
    var page = target ? target.closest(".page") : document.querySelector(".page");
    document.querySelectorAll(".page.shown").forEach(function (other) { other.classList.remove("shown"); });
    page.classList.add("shown");
    document.querySelectorAll("nav a").forEach(function (link) {
      var current = link.getAttribute("href") === "#" + page.id;
      link.classList.toggle("current", current);
      if (current) link.scrollIntoView({block: "nearest"});
    });
    document.title = page.dataset.title + " - accelhost";
    document.body.classList.remove("open");
    if (target && target !== page) target.scrollIntoView(); else scrollTo(0, 0);
  }

  function lastOf(name) {
    return name.slice(Math.max(name.lastIndexOf("."), name.lastIndexOf(":")) + 1);
  }

  // The part of a word that its other forms share: "clipping" and "clip".
  function stem(word) {
    var found = /^(.{4,}?)(ping|ting|ning|ing|es|ed|s)$/.exec(word);
    return found ? found[1] : word;
  }

  // Count differing letters, at most 3: added, missing, other, swapped.
  function distance(a, b) {
    if (Math.abs(a.length - b.length) > 2) return 3;
    var before = [], row = [], last, i, j;
    for (j = 0; j <= b.length; j++) row[j] = j;
    for (i = 1; i <= a.length; i++) {
      last = before; before = row; row = [i];
      for (j = 1; j <= b.length; j++) {
        row[j] = Math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
          row[j] = Math.min(row[j], last[j - 2] + 1);
      }
    }
    return row[b.length];
  }

  // Names whose last part is spelt nearly so.
  function nearest(word) {
    var rows = [], most = word.length > 4 ? 2 : 1;
    names.forEach(function (row) {
      var far = distance(lastOf(row[0].toLowerCase()), lastOf(word));
      if (far <= most) rows.push([far, row[0].length, row]);
    });
    return rows.sort(function (a, b) { return a[0] - b[0] || a[1] - b[1]; });
  }

  // The lower the better: the name itself, its last part, the beginning of that, somewhere in the name, all words
  // in the name, in name and text.
  function rank(row, word) {
    var name = row[0].toLowerCase(), last = lastOf(name);
    var whole = (name + " " + row[2].toLowerCase()).replace(/-/g, " ");
    if (name === word) return 0;
    if (last === word) return 1;
    if (last.indexOf(word) === 0) return 2;
    if (name.indexOf(word) >= 0) return 3;
    var parts = word.split(/[\s_]+/).map(stem);
    if (!parts.every(function (part) { return whole.indexOf(part) >= 0; })) return -1;
    return 4 - 0.9 * parts.filter(function (part) { return name.indexOf(part) >= 0; }).length / parts.length;
  }

  function ranked(word) {
    var rows = [];
    names.forEach(function (row) {
      var place = rank(row, word);
      // Absent names are after those that exist.
      if (place >= 0) rows.push([place + (/^(torch|accelerate)\./.test(row[0]) ? 0.5 : 0), row[0].length, row]);
    });
    return rows.sort(function (a, b) { return a[0] - b[0] || a[1] - b[1]; });
  }

  // Of several words the rows with some, those with rare words first.
  function partly(query) {
    var parts = query.split(/[\s_]+/).map(stem), rows = [];
    if (parts.length < 2) return rows;
    var texts = names.map(function (row) { return (row[0] + " " + row[2]).toLowerCase().replace(/-/g, " "); });
    var weights = parts.map(function (part) {
      var count = texts.filter(function (text) { return text.indexOf(part) >= 0; }).length;
      return count ? Math.log(names.length / count) : 0;
    });
    names.forEach(function (row, i) {
      var weight = 0;
      parts.forEach(function (part, p) {
        if (texts[i].indexOf(part) >= 0) weight += weights[p] * (row[0].toLowerCase().indexOf(part) >= 0 ? 1.1 : 1);
      });
      if (weight > 0) rows.push([-weight, row[0].length, row]);
    });
    return rows.sort(function (a, b) { return a[0] - b[0] || a[1] - b[1]; });
  }

  // List the functions with an argument of this name.
  function takers(word) {
    var rows = [];
    document.querySelectorAll("pre.signature").forEach(function (signature) {
      if (!(" " + signature.textContent.replace(/[(),]/g, " ") + " ").includes(" " + word + " ")) return;
      var name = signature.textContent.split("(")[0];
      rows.push([5, name.length, [name, name, "takes " + word]]);
    });
    return rows;
  }

  function search() {
    var word = field.value.trim().toLowerCase().replace(/^(torch|accelhost)\./, "").replace(/^f\./, "functional.")
      .replace(/^utils\.data\./, "data.");
    var rows = [];
    if (word) {
      rows = ranked(word);
      // x.view is somebody's view.
      if (!rows.length && lastOf(word)) rows = ranked(lastOf(word));
      if (!rows.length || rows[0][0] >= 3) rows = rows.concat(takers(word));
      if (!rows.length) rows = nearest(word);
      if (!rows.length) rows = partly(word);
    }
    found.textContent = "";
    chosen = rows.length ? 0 : -1;
    rows.slice(0, 30).forEach(function (entry, i) {
      var item = document.createElement("li"), link = document.createElement("a");
      var name = document.createElement("b"), text = document.createElement("small");
      name.textContent = entry[2][0];
      text.textContent = entry[2][2];
      link.href = "#" + entry[2][1];
      if (i === 0) link.className = "chosen";
      link.append(name, text);
      item.append(link);
      found.append(item);
    });
    if (word && !rows.length) found.textContent = "Nothing is called " + word + ".";
    found.hidden = !word;
  }

  function close() {
    field.value = "";
    found.hidden = true;
    field.blur();
  }

  field.addEventListener("input", search);
  field.addEventListener("keydown", function (event) {
    var links = found.querySelectorAll("a");
    if (event.key === "Escape") close();
    if (event.key === "Enter" && links[chosen]) { location.hash = links[chosen].getAttribute("href"); close(); }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (links[chosen]) links[chosen].className = "";
      chosen = Math.max(0, Math.min(links.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      if (links[chosen]) { links[chosen].className = "chosen"; links[chosen].scrollIntoView({block: "nearest"}); }
    }
  });
  found.addEventListener("click", function () { setTimeout(close); });
  document.addEventListener("click", function (event) {
    if (!found.contains(event.target) && event.target !== field) found.hidden = true;
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && document.activeElement !== field) { event.preventDefault(); field.focus(); }
  });
  document.getElementById("menu").addEventListener("click", function () { document.body.classList.toggle("open"); });
  addEventListener("hashchange", show);
  show();
})();
