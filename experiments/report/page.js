/* page.js - Makes the page of a report answer: sorts tables, marks series, opens details. */
"use strict";
(function () {
  // ---- sorting: a head's button sorts its column, again turns it round -------------------------
  function key(row, column, number) {
    var cell = row.cells[column];
    if (!number) return cell.textContent;
    return parseFloat(cell.hasAttribute("data-key") ? cell.dataset.key : cell.textContent);
  }
  function sort(head) {
    var table = head.closest("table"), column = head.cellIndex;
    var number = head.classList.contains("n");
    var down = head.getAttribute("aria-sort") === "ascending";
    var rows = Array.prototype.map.call(table.tBodies[0].rows, function (row, place) {
      return { row: row, place: place, key: key(row, column, number) };
    });
    rows.sort(function (a, b) {
      var order;
      if (number && (isNaN(a.key) || isNaN(b.key)))
        return isNaN(a.key) - isNaN(b.key) || a.place - b.place; // what has no value stays last
      order = number ? (a.key > b.key) - (a.key < b.key)
                     : a.key.localeCompare(b.key, "en", { numeric: true });
      return (down ? -order : order) || a.place - b.place;
    });
    rows.forEach(function (r) { table.tBodies[0].appendChild(r.row); });
    table.querySelectorAll("thead th").forEach(function (th) {
      th.setAttribute("aria-sort", th !== head ? "none" : down ? "descending" : "ascending");
    });
  }
  document.querySelectorAll("thead th button").forEach(function (button) {
    button.addEventListener("click", function () { sort(button.parentNode); });
  });

  // ---- legends: chosen series stand out in every figure ----------------------------------------
  var chosen = new Set(), style = document.head.appendChild(document.createElement("style"));
  function show() {
    var rules = "";
    chosen.forEach(function (k) { rules += "figure svg .s" + k + "{opacity:1}"; });
    style.textContent = rules && "figure svg .s{opacity:.08}" + rules;
    document.querySelectorAll("[data-series]").forEach(function (button) {
      button.setAttribute("aria-pressed", String(chosen.has(button.dataset.series)));
    });
  }
  document.querySelectorAll("[data-series]").forEach(function (button) {
    button.addEventListener("click", function () {
      if (!chosen.delete(button.dataset.series)) chosen.add(button.dataset.series);
      show();
    });
  });

  // ---- a link into closed details opens them; print shows all ----------------------------------
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (d) {
      if (!d.open) { d.open = true; d.dataset.closed = "1"; }
    });
  });
  window.addEventListener("afterprint", function () {
    document.querySelectorAll("details[data-closed]").forEach(function (d) {
      d.open = false; delete d.dataset.closed;
    });
  });
})();
