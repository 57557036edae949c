// What the theme leaves out for screen readers and keyboards: a name for the search dialog, focus for what scrolls.
document$.subscribe(() => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  for (const bar of document.querySelectorAll(".md-code__nav")) bar.setAttribute("role", "presentation");
});
