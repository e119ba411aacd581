"use strict";
// What the pages do in the browser. Without it they show everything, and cannot acknowledge.
const root = document.documentElement;
root.classList.add("scripted");
root.classList.toggle("framed", window.top !== window.self);

// Airflow keeps the chosen colour mode in the local storage of the same origin; its frame's class follows it.
function colourMode() {
  let chosen = "";
  try {
    chosen = localStorage.getItem("theme") || "";
    if (window.parent !== window && window.parent.document) {
      const outer = window.parent.document.documentElement.classList;
      chosen = outer.contains("dark") ? "dark" : outer.contains("light") ? "light" : chosen;
    }
  } catch { /* another origin's frame, or no storage: the system's mode */ }
  root.style.colorScheme = chosen === "dark" || chosen === "light" ? chosen : "";
}
colourMode();
addEventListener("storage", colourMode);
try {
  if (window.parent !== window) {
    new MutationObserver(colourMode)
      .observe(window.parent.document.documentElement, { attributeFilter: ["class"] });
  }
} catch { /* another origin's frame */ }

// Airflow's frame is sandboxed: links out of it do nothing by themselves. One in Airflow's own document does: only ever
// to a page of this server, as a script's address (javascript:) would run there.
function openOutside(href, newTab) {
  if (new URL(href, location.href).origin !== location.origin) return;
  const outer = window.parent.document;
  const link = outer.createElement("a");
  link.href = href;
  if (newTab) { link.target = "_blank"; link.rel = "noopener"; }
  outer.body.append(link);
  link.click();
  link.remove();
}
function follow(event) {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || window.parent === window) return;
  const newTab = event.ctrlKey || event.metaKey || event.button === 1;
  if (link.target !== "_top" && !newTab) return;
  event.preventDefault();
  openOutside(link.href, newTab);
}
addEventListener("click", follow);
addEventListener("auxclick", (event) => { if (event.button === 1) follow(event); });

// ---------------------------------------------------------------- the map of nodes and days
function heatMap(map) {
  const readout = document.querySelector(".readout");
  const rows = [...map.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")].map((cell) => cell.firstElementChild));
  const tell = (cell) => { readout.textContent = cell?.title || readout.dataset.empty; };
  for (const cell of rows.flat()) cell.tabIndex = -1;
  const newest = rows[0]?.findLast((cell) => cell.href) || rows[0]?.[0];
  if (newest) newest.tabIndex = 0;
  map.addEventListener("mouseover", (event) => { const cell = event.target.closest("td > *"); if (cell) tell(cell); });
  map.addEventListener("mouseleave", () => tell(map.contains(document.activeElement) ? document.activeElement : null));
  map.addEventListener("focusin", (event) => {
    const cell = event.target.closest("td > *");
    if (!cell) return;
    map.querySelectorAll("td > [tabindex='0']").forEach((other) => { other.tabIndex = -1; });
    cell.tabIndex = 0;
    tell(cell);
  });
  map.addEventListener("keydown", (event) => {
    const y = rows.findIndex((row) => row.includes(event.target));
    if (y < 0) return;
    const x = rows[y].indexOf(event.target);
    const last = rows[y].length - 1;
    const to = {
      ArrowLeft: [y, x - 1], ArrowRight: [y, x + 1], ArrowUp: [y - 1, x], ArrowDown: [y + 1, x],
      Home: [y, 0], End: [y, last], PageUp: [Math.max(0, y - 10), x], PageDown: [Math.min(rows.length - 1, y + 10), x],
    }[event.key];
    const cell = to && rows[to[0]]?.[to[1]];
    if (!cell) return;
    event.preventDefault();
    cell.focus();
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}

// ---------------------------------------------------------------- tables
// A heading sorts the rows that are shown, and by a second click the other way round; unknown numbers come last.
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  for (const [column, head] of heads.entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      for (const other of heads) other.ariaSort = null;
      head.ariaSort = sign > 0 ? "ascending" : "descending";
      const rows = [...table.tBodies[0].rows];
      const number = (row) => row.cells[column].dataset.value;
      const text = (row) => row.cells[column].textContent.trim();
      const byNumber = rows.some(number);
      const known = rows.filter((row) => !byNumber || number(row));
      known.sort((a, b) => sign * (byNumber ? number(a) - number(b) : text(a).localeCompare(text(b), "en", { numeric: true })));
      table.tBodies[0].append(...known, ...rows.filter((row) => !known.includes(row)));
    });
  }
}

// ---------------------------------------------------------------- acknowledging
async function acknowledge(form) {
  const failure = form.querySelector(".failure");
  const button = form.querySelector("button.primary");
  const label = button.textContent;
  const reason = form.elements.reason.value.trim();
  if (!reason) { failure.textContent = "Say in one sentence why it may stay as it is."; form.elements.reason.focus(); return; }
  failure.textContent = "";
  button.disabled = true;
  button.textContent = "Saving…";
  try {
    const reply = await fetch(form.dataset.acknowledge, {
      method: "POST", credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-Trainbench": "1" }, body: JSON.stringify({ reason }),
    });
    if (reply.ok) { location.hash = ""; location.reload(); return; }
    const answer = await reply.json().catch(() => ({}));
    failure.textContent = answer.detail || `The server answered ${reply.status}: try again.`;
  } catch {
    failure.textContent = "The server did not answer: try again.";
  }
  button.disabled = false;
  button.textContent = label;
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".heat table").forEach(heatMap);
  document.querySelectorAll(".sorts").forEach(sortable);
  for (const wide of document.querySelectorAll(".heat, .chart")) wide.scrollLeft = wide.scrollWidth; // the newest day
  for (const form of document.querySelectorAll(".filters")) {
    form.addEventListener("change", () => { document.getElementById("main").ariaBusy = "true"; form.requestSubmit(); });
    form.addEventListener("formdata", (event) => { // what was not chosen stays out of the address
      for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
    });
  }
  for (const button of document.querySelectorAll("[data-opens]")) {
    const dialog = document.getElementById(button.dataset.opens);
    button.addEventListener("click", () => dialog.showModal());
    dialog.querySelector("[data-closes]").addEventListener("click", () => dialog.close());
    if (location.hash === "#acknowledge" && dialog.id === "acknowledge-dialog") {
      history.replaceState(null, "", location.pathname + location.search); // else the browser takes the focus there
      dialog.showModal();
    }
  }
  for (const form of document.querySelectorAll("[data-acknowledge]")) {
    form.addEventListener("submit", (event) => { event.preventDefault(); acknowledge(form); });
  }
});
addEventListener("pageshow", () => { document.getElementById("main")?.removeAttribute("aria-busy"); });
