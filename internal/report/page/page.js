"use strict";
// Drawings have areas with a title. The title of the area nearest to the pointer is shown in a box,
// instead of the browser's tooltip, so that it also works for touch.
const tip = document.getElementById("tip");
const reach = 24; // the largest distance from the pointer to an area, in pixels
let shown = null;

function hide() {
	if (shown) shown.classList.remove("at");
	shown = null;
	tip.hidden = true;
}

function distance(box, x, y) {
	const dx = Math.max(box.left - x, x - box.right, 0);
	const dy = Math.max(box.top - y, y - box.bottom, 0);
	const inside = Math.hypot(x - (box.left + box.right) / 2, y - (box.top + box.bottom) / 2);
	return Math.hypot(dx, dy) + inside / 1000; // of two overlapping areas, the one with the nearer center wins
}

function show(svg, event) {
	let best = null, near = reach;
	for (const area of svg.querySelectorAll(".spot")) {
		const box = area.getBoundingClientRect();
		if (box.width === 0) continue; // hidden by the legend
		const d = distance(box, event.clientX, event.clientY);
		if (d < near) [best, near] = [area, d];
	}
	if (best === shown) return;
	hide();
	if (!best) return;
	shown = best;
	best.classList.add("at");
	tip.textContent = best.dataset.text;
	tip.hidden = false;
	const box = best.getBoundingClientRect(), edge = 8;
	const width = document.documentElement.clientWidth;
	const left = Math.min(Math.max(box.left + box.width / 2 - tip.offsetWidth / 2, edge), width - tip.offsetWidth - edge);
	const above = box.top - tip.offsetHeight - edge;
	tip.style.left = left + window.scrollX + "px";
	tip.style.top = (above > 0 ? above : box.bottom + edge) + window.scrollY + "px";
}

for (const svg of document.querySelectorAll(".figure > svg")) {
	for (const title of svg.querySelectorAll(".spot > title")) {
		title.parentNode.dataset.text = title.textContent;
		title.remove();
	}
	svg.addEventListener("pointermove", event => show(svg, event));
	svg.addEventListener("pointerdown", event => show(svg, event));
	svg.addEventListener("pointerleave", hide);
}

// A table heading sorts its column: numbers by value, words alphabetically, empty cells last.
function sort(th) {
	const body = th.closest("table").tBodies[0], at = th.cellIndex;
	const down = th.getAttribute("aria-sort") === "ascending";
	for (const other of th.parentNode.cells) other.removeAttribute("aria-sort");
	th.setAttribute("aria-sort", down ? "descending" : "ascending");
	const compare = (a, b) => {
		const x = a.cells[at], y = b.cells[at];
		if (!x.textContent || !y.textContent) return !x.textContent - !y.textContent;
		const order = x.dataset.v && y.dataset.v ? x.dataset.v - y.dataset.v
			: x.textContent.localeCompare(y.textContent, "en", { numeric: true });
		return down ? -order : order;
	};
	body.append(...[...body.rows].sort(compare));
}

for (const th of document.querySelectorAll("thead th")) {
	const button = document.createElement("button");
	button.type = "button";
	button.textContent = th.textContent;
	button.title = "Sort by " + th.textContent;
	button.addEventListener("click", () => sort(th));
	th.replaceChildren(button);
}

// All tables are printed, even closed ones.
let folded = [];
window.addEventListener("beforeprint", () => {
	folded = [...document.querySelectorAll("details:not([open])")];
	for (const d of folded) d.open = true;
});
window.addEventListener("afterprint", () => {
	for (const d of folded) d.open = false;
});
