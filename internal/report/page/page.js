"use strict";
// Each drawing has areas with a title. The nearest one to the pointer is told in
// a box that works under a finger too, in place of the browser's own.
const tip = document.getElementById("tip");
const reach = 24; // how far from an area a pointer still means it, in pixels
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
	return Math.hypot(dx, dy) + inside / 1000; // of two that overlap, the middle that is nearer
}

function show(svg, event) {
	let best = null, near = reach;
	for (const area of svg.querySelectorAll("rect[data-text]")) {
		const d = distance(area.getBoundingClientRect(), event.clientX, event.clientY);
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

for (const svg of document.querySelectorAll("figure svg")) {
	for (const title of svg.querySelectorAll("rect > title")) {
		title.parentNode.dataset.text = title.textContent;
		title.remove();
	}
	svg.addEventListener("pointermove", event => show(svg, event));
	svg.addEventListener("pointerdown", event => show(svg, event));
	svg.addEventListener("pointerleave", hide);
}

// Paper cannot be unfolded.
let folded = [];
window.addEventListener("beforeprint", () => {
	folded = [...document.querySelectorAll("details:not([open])")];
	for (const d of folded) d.open = true;
});
window.addEventListener("afterprint", () => {
	for (const d of folded) d.open = false;
});
