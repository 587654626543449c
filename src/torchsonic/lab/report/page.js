"use strict";
for (const button of document.querySelectorAll("button[data-csv]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.csv);
    } catch { // pages from another machine without https have no clipboard of their own
      const area = document.body.appendChild(document.createElement("textarea"));
      area.value = button.dataset.csv;
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy as CSV"; }, 1500);
  });
}
const unfold = (part) => { if (part instanceof HTMLDetailsElement) part.open = true; };
addEventListener("hashchange", () => unfold(document.getElementById(location.hash.slice(1))));
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(unfold));
