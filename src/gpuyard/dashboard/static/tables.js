// Tables whose rows keep their places: what changes is written into the row that is there, what is new waits for a press.

import { element } from "/static/drawing.js";

/**
 * A table of rows by key.
 * columns: [{ name, text(row) -> string | Node, kind?: "number" | "wide" }]; the first one is the row's name.
 */
export class SteadyTable {
  constructor(home, label, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.more = element("button", { type: "button", class: "more" });
    this.more.hidden = true;
    this.more.addEventListener("click", () => this.admit());
    const heads = columns.map((column) => element("th", { scope: "col", "data-kind": column.kind === "number" ? "number" : "text" }, column.name));
    this.body = element("tbody");
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), this.body);
    home.append(this.more, element("div", { class: "scroll steady", tabindex: "0", role: "region", "aria-label": label }, table));
    this.waiting = [];
  }

  /** Take rows in their order; those that are gone stay, and are marked. */
  update(rows) {
    const first = this.rows.size === 0;
    const there = new Set(rows.map((row) => row.key));
    this.waiting = rows.filter((row) => !this.rows.has(row.key));
    for (const row of rows) if (this.rows.has(row.key)) this.fill(this.rows.get(row.key), row);
    for (const [key, line] of this.rows) line.classList.toggle("gone", !there.has(key));
    if (first) this.admit();
    this.more.hidden = this.waiting.length === 0;
    this.more.textContent = `${this.waiting.length} new: show`;
  }

  /** Put the rows that are new before the others. */
  admit() {
    const lines = this.waiting.map((row) => {
      const line = element("tr", {}, ...this.columns.map((column, index) =>
        element(index ? "td" : "th", index ? (column.kind ? { class: column.kind } : {}) : { scope: "row" })));
      this.rows.set(row.key, line);
      this.fill(line, row);
      return line;
    });
    this.body.prepend(...lines);
    this.waiting = [];
    this.more.hidden = true;
  }

  fill(line, row) {
    this.columns.forEach((column, index) => {
      const made = column.text(row);
      const text = made === null || made === undefined ? "" : made;
      const cell = line.cells[index];
      if (typeof text === "string" ? cell.textContent !== text || cell.firstElementChild : !cell.firstElementChild || cell.firstElementChild.outerHTML !== text.outerHTML) {
        cell.replaceChildren(text);
      }
    });
  }
}
