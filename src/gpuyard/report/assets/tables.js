// Tables that sort by a column when its name is pressed.

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    sortRows(table.tBodies[0], column, head.dataset.kind, ascending);
  }));
}

function sortRows(body, column, kind, ascending) {
  const value = (row) => {
    const cell = row.cells[column];
    if (kind === "text") return cell.textContent;
    return cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
  };
  const rows = [...body.rows].map((row) => [value(row), row]);
  rows.sort(([a], [b]) => {
    if (kind === "text") return (ascending ? 1 : -1) * a.localeCompare(b, "en-US", { numeric: true });
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // what is unknown comes last
    return ascending ? a - b : b - a;
  });
  body.append(...rows.map(([, row]) => row));
}
