// Grids of cells. A grid is a drawing with one path for each layer of cells, so that a matrix of
// thousands of elements is as quick to draw as one of four.
import { h } from "./dom.js";

// path returns the outline of cells of a grid with a number of columns.
function path(cells, cols, pad) {
	const side = (1 - 2 * pad).toFixed(2);
	let d = "";
	for (const i of cells) d += `M${i % cols + pad} ${Math.floor(i / cols) + pad}h${side}v${side}h-${side}z`;
	return d;
}

// Grid is a drawing of rows × cols cells with a name above it. unit is the width of a cell in pixels
// where there is room, and kind selects the colors. A grid of wide cells shows texts.
export class Grid {
	constructor(name, rows, cols, kind, unit, label = name) {
		Object.assign(this, { rows, cols, unit, pad: unit < 8 ? 0 : unit < 14 ? 0.06 : 0.1, layers: new Map(), texts: [] });
		this.legible = unit >= 20;
		this.paths = h("g", {});
		this.words = h("g", { class: "words" });
		this.svg = h("svg", { viewBox: `0 0 ${cols} ${rows}`, class: `grid ${kind}${unit < 8 ? " fine" : ""}`, role: "img", "aria-label": `${label}, ${rows}×${cols}` },
			h("path", { class: "layer base", d: path(Array(rows * cols).keys(), cols, this.pad) }), this.paths, this.words);
		this.element = h("div", { class: "matrix m-" + kind }, name && h("p", { class: "title" }, name), this.svg);
	}

	// fixed gives the grid its own width, instead of that of its parent.
	fixed() {
		this.svg.style.width = `${this.cols * this.unit}px`;
		return this;
	}

	// paint draws the cells of each layer, from the lowest to the highest: {name: indices}.
	paint(layers) {
		for (const [name, cells] of Object.entries(layers)) {
			if (!this.layers.has(name)) {
				const layer = h("path", { class: "layer " + name });
				this.layers.set(name, layer);
				this.paths.append(layer);
			}
			this.layers.get(name).setAttribute("d", path(cells, this.cols, this.pad));
		}
	}

	// write shows the text of each cell that has one.
	write(textOf, always) {
		if (!this.legible && !always) return;
		if (!this.texts.length) {
			for (let i = 0; i < this.rows * this.cols; i++) {
				this.texts.push(h("text", { x: i % this.cols + 0.5, y: Math.floor(i / this.cols) + 0.5 }));
			}
			this.words.append(...this.texts);
		}
		this.texts.forEach((e, i) => {
			const text = String(textOf(i) ?? "");
			if (e.textContent !== text) e.textContent = text;
		});
	}

	// mark gives the texts of some cells a class.
	mark(name, cells) {
		const chosen = new Set(cells);
		this.texts.forEach((e, i) => e.classList.toggle(name, chosen.has(i)));
	}

	// at returns the index of the cell at the pointer.
	at(event) {
		const r = this.svg.getBoundingClientRect();
		const col = Math.floor((event.clientX - r.left) / r.width * this.cols), row = Math.floor((event.clientY - r.top) / r.height * this.rows);
		return Math.min(Math.max(row, 0), this.rows - 1) * this.cols + Math.min(Math.max(col, 0), this.cols - 1);
	}

	// place returns the rectangle of a cell in the page.
	place(i) {
		const r = this.svg.getBoundingClientRect(), width = r.width / this.cols, height = r.height / this.rows;
		return { left: r.left + scrollX + i % this.cols * width, top: r.top + scrollY + Math.floor(i / this.cols) * height, width, height };
	}
}

// cross returns the drawings of a product: B above C, and A to the left of C.
export function cross(a, b, c) {
	const box = h("div", { class: "cross" }, h("div"), b.element, a.element, c.element);
	box.style.gridTemplateColumns = `${a.cols}fr ${c.cols}fr`;
	const ratio = (a.cols + c.cols) / (b.rows + c.rows);
	box.style.width = `min(100%, ${(a.cols + c.cols) * a.unit + 14}px, ${ratio.toFixed(3)} * var(--room, 100rem))`;
	return box;
}

const banks = 32;

// Banks is a drawing of the lanes of a warp with lines to the banks that they use.
export class Banks {
	constructor() {
		const name = (y, text) => h("text", { x: 0, y, class: "s" }, text);
		this.lines = h("g", {});
		this.svg = h("svg", { viewBox: "0 -2 328 88", class: "wires", role: "img", "aria-label": "The lanes of the warp and the 32 banks of shared memory" },
			name(8, "lanes of the warp"), name(81, "banks"),
			h("g", { transform: "translate(4 14) scale(10)" }, h("path", { class: "base", d: path(Array(banks).keys(), banks, 0.1) })),
			h("g", { transform: "translate(4 58) scale(10)" }, h("path", { class: "base", d: path(Array(banks).keys(), banks, 0.1) })),
			this.lines);
		this.element = h("div", { class: "matrix" }, h("p", { class: "title" }, "Which lane uses which bank"), this.svg);
	}

	// paint draws the accesses of a step: lists of lanes and of words. A bank with more words than
	// most is one that needs further wavefronts.
	paint(lanes, words, kind, most) {
		const inBank = new Map();
		words.forEach(w => inBank.set(w % banks, (inBank.get(w % banks) ?? new Set()).add(w)));
		const bad = w => inBank.get(w % banks).size > most;
		const x = i => 9 + 10 * i;
		const wire = w => `M${x(lanes[w])} 23L${x(words[w] % banks)} 59`;
		const split = [[], []];
		lanes.forEach((_, i) => split[bad(words[i]) ? 1 : 0].push(i));
		const cell = (list, y, name) => h("g", { transform: `translate(4 ${y}) scale(10)` }, h("path", { class: name, d: path(new Set(list), banks, 0.1) }));
		this.lines.replaceChildren(
			h("path", { class: "wire " + kind, d: split[0].map(wire).join("") }), h("path", { class: "wire conflict", d: split[1].map(wire).join("") }),
			cell(lanes, 14, "now"), cell(split[0].map(i => words[i] % banks), 58, "now"), cell(split[1].map(i => words[i] % banks), 58, "conflict"),
			...[...inBank].filter(([, w]) => w.size > 1).map(([bank, w]) => h("text", { x: x(bank), y: 66.5, class: "count" }, String(w.size))));
	}
}
