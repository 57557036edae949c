// What the theme leaves out for screen readers and keyboards: a name for the search dialog, one landmark for each
// navigation with all its levels, no headers without a text, focus for what scrolls.
document$.subscribe(() => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  for (const level of document.querySelectorAll(".md-nav .md-nav")) {
    for (const name of ["aria-label", "aria-labelledby", "aria-expanded"]) level.removeAttribute(name);
    level.setAttribute("role", "presentation");
  }
  for (const cell of document.querySelectorAll("th:empty")) cell.replaceWith(document.createElement("td"));
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  for (const bar of document.querySelectorAll(".md-code__nav")) bar.setAttribute("role", "presentation");
});
