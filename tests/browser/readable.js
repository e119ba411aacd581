// What a screen reader and a keyboard need, checked without the network: returns what is wrong, in words.
() => {
  const wrong = [];
  const inCharts = (element) => element.closest(".chart") !== null;
  const all = (what) => [...document.querySelectorAll(what)].filter((element) => !inCharts(element));
  const tell = (element, problem) => wrong.push(`${problem}: ${element.outerHTML.slice(0, 120)}`);

  if (!document.documentElement.lang) wrong.push("the page's language is not named");
  if (!document.title.trim()) wrong.push("the page has no title");
  for (const [what, wanted] of [["h1", 1], ["main", 1], ["body > header", 1]]) {
    if (all(what).length !== wanted) wrong.push(`${all(what).length} ${what} instead of ${wanted}`);
  }
  let level = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6").filter((heading) => !heading.closest("dialog"))) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) tell(heading, `a heading of level ${next} follows one of level ${level}`);
    level = next;
  }
  for (const field of all("input:not([type=hidden]), select, textarea")) {
    if (!field.labels.length && !field.ariaLabel) tell(field, "no label");
  }
  for (const element of all("a[href], button, summary")) {
    if (!element.textContent.trim() && !element.ariaLabel && !element.title) tell(element, "no name");
  }
  for (const image of all("img, svg")) {
    if (image.alt === undefined && image.ariaHidden !== "true" && !image.ariaLabel) tell(image, "neither named nor hidden");
  }
  for (const place of all("nav, form, [role=region], section[aria-labelledby], dialog")) {
    const labels = (place.getAttribute("aria-labelledby") || "").split(" ").filter(Boolean);
    if (labels.some((id) => !document.getElementById(id))) tell(place, "its label is not there");
    if (!labels.length && !place.ariaLabel && !place.closest("dialog")) tell(place, "no label");
  }
  for (const scrolled of all(".scroll")) {
    if (scrolled.tabIndex !== 0) tell(scrolled, "the keyboard cannot scroll it");
  }
  for (const head of all("table:not([role=presentation]) th")) if (!head.scope) tell(head, "a table's head without scope");
  for (const chart of document.querySelectorAll(".chart")) if (!chart.ariaLabel) tell(chart, "a chart without label");
  const ids = all("[id]").map((element) => element.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) wrong.push(`the id ${id} is there twice`);
  return wrong;
}
