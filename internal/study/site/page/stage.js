// The drawings of Watch: the matrices, the threads, the shared memory, the banks and the fragments.
import { h, plural } from "./dom.js";
import { Banks, cross, Grid } from "./grid.js";

const widest = 560; // pixels of the matrices
const lanes = 32;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

// unitOf returns the width of a cell of a grid in a space of some pixels.
const unitOf = (cols, space, most) => Math.max(3, Math.min(most, Math.floor(space / cols)));

// along returns the row or column of an element along K.
const along = (matrix, e, n, k) => matrix === "A" ? e % k : Math.floor(e / n);

// Stage draws a block. data is the result of "watch". choose is called with an element of C, and
// chooseBlock with a block.
export class Stage {
	constructor(matrices, inside, data, choose, chooseBlock) {
		for (const p of data.steps.flatMap(s => s.parts ?? [])) for (const list of ["threads", "elements", "words"]) p[list] ??= [];
		const m = data.a.length, k = data.b.length, n = data.b[0].length;
		Object.assign(this, { data, m, n, k, values: { A: data.a.flat(), B: data.b.flat() } });
		const unit = unitOf(k + n, widest, 44);
		this.A = new Grid("A", m, k, "a", unit);
		this.B = new Grid("B", k, n, "b", unit);
		this.C = new Grid("C", m, n, "c", unit);
		for (const name of ["A", "B"]) this[name].write(i => this.values[name][i]);
		this.C.svg.addEventListener("click", event => choose(this.C.at(event)));
		const [x, y, z] = data.block, all = x * y * z;
		this.flat = y * z > 1 ? x : lanes; // columns of the drawing of the threads
		const rows = Math.ceil(all / this.flat);
		const name = y * z > 1 ? `The block's ${x}×${y} threads, ${plural(Math.ceil(all / lanes), "warp")}` : `The block's ${plural(rows, "warp")} of 32 threads`;
		this.T = new Grid(name, rows, this.flat, "t", unitOf(this.flat, 440, this.flat > 8 ? 13 : 44)).fixed();
		const [across, down] = data.grid;
		this.G = new Grid(`The grid: ${across}×${down} blocks`, down, across, "t", unitOf(across, 200, 13)).fixed();
		this.G.paint({ now: [data.index[0] + across * data.index[1]] });
		this.G.svg.addEventListener("click", event => chooseBlock(this.G.at(event)));
		const right = [this.G.element, this.T.element];
		this.arrays = data.arrays.map(a => {
			const unit = a.cols <= 8 ? unitOf(a.cols, 200, 44) : a.cols <= 16 ? 12 : data.arrays.length > 2 ? 4 : 6;
			return { ...a, grid: new Grid(a.name, Math.ceil(a.words / a.cols), a.cols, a.matrix.toLowerCase() + " shared", unit, `${a.name} in shared memory`).fixed() };
		});
		if (this.arrays.length) {
			const wide = data.arrays.every(a => a.cols === lanes);
			right.push(h("div", {}, h("p", { class: "title" }, wide ? "Shared memory, a column for each bank" : "Tiles in shared memory"),
				h("div", { class: "arrays" }, this.arrays.map(a => a.grid.element))));
			this.banks = new Banks();
			right.push(this.banks.element);
		}
		this.products = data.steps.filter(s => s.op === "multiply" && s.parts[0].matrix && s.parts[1].matrix);
		if (this.products.length) right.push(this.fragments(this.products[0]));
		matrices.replaceChildren(cross(this.A, this.B, this.C));
		inside.replaceChildren(...right);
		this.prepare();
	}

	// prepare collects what does not depend on the step.
	prepare() {
		const { owner, steps } = this.data;
		this.moves = steps.flatMap((s, i) => s.op === "store" || s.op === "copy" ? [i] : []);
		this.writes = steps.flatMap((s, i) => s.op === "write" ? [i] : []);
		this.mine = owner.flatMap((t, e) => t >= 0 ? [e] : []);
		this.sums = new Map(); // the elements of each thread
		for (const e of this.mine) this.sums.set(owner[e], [...this.sums.get(owner[e]) ?? [], e]);
		this.single = [...this.sums.values()].every(list => list.length === 1);
		this.rows = new Set(this.mine.map(e => Math.floor(e / this.n)));
		this.cols = new Set(this.mine.map(e => e % this.n));
	}

	// fragments returns the drawing of an instruction of the tensor cores.
	fragments(product) {
		const [left, right] = product.parts;
		const turned = left.matrix === "B"; // the kernel computes the transpose
		const kinds = turned ? ["b", "a"] : ["a", "b"];
		const wide = Math.max(8, ...this.products.map(s => s.parts[2].elements.length / 16));
		this.F = { turned, a: new Grid(`${left.matrix}, 16×8`, 16, 8, kinds[0], 20), b: new Grid(`${right.matrix}, 8×${wide}`, 8, wide, kinds[1], 20), c: new Grid(`Sums, 16×${wide}`, 16, wide, "c", 20) };
		const { a, b, c } = this.F;
		for (const grid of [a, b, c]) grid.element.classList.add("fragment");
		return h("div", {}, h("p", { class: "title" }, right.threads.length ? "One instruction: the lane that holds each element in a register. Outlined is the lane of the chosen sum"
			: `One instruction: the lanes that hold ${left.matrix} and the sums. It reads ${right.matrix} from shared memory. Outlined is the lane of the chosen sum`), cross(a, b, c));
	}

	// terms returns the number of terms that the sum of an element has after some steps.
	terms(e, at) {
		let n = 0;
		for (let q = 0; q < this.k; q++) if (this.has(e, q, at)) n++;
		return n;
	}

	has(e, q, at) {
		const when = this.data.terms[e * this.k + q];
		return when > 0 && when <= at;
	}

	sum(e, at) {
		let total = 0;
		for (let q = 0; q < this.k; q++) if (this.has(e, q, at)) total += this.values.A[Math.floor(e / this.n) * this.k + q] * this.values.B[q * this.n + e % this.n];
		return total;
	}

	// contents returns the words of shared memory after some steps: [matrix, element].
	contents(at) {
		const words = new Map();
		for (const i of this.moves) {
			if (i >= at) break;
			for (const p of this.data.steps[i].parts) p.words.forEach((w, n) => words.set(w, [p.matrix, p.elements[n]]));
		}
		return words;
	}

	// draw shows the block after a number of steps. chosen is an element of C, and pair holds the
	// threads of a finding.
	draw(at, chosen, pair) {
		const { data, n, k } = this, s = data.steps[at - 1];
		const phase = s?.phase ?? 0, words = this.contents(at), written = new Set();
		for (const i of this.writes) if (i < at) data.steps[i].parts[0].elements.forEach(e => written.add(e));
		const now = { A: [], B: [], C: [] }, threads = new Set(), used = new Set();
		for (const p of s?.parts ?? []) {
			if (p.matrix) now[p.matrix].push(...p.elements.filter(e => e >= 0));
			p.threads.forEach(t => threads.add(t));
			p.words.forEach(w => used.add(w));
		}
		for (const name of ["A", "B"]) {
			const across = name === "A" ? e => this.rows.has(Math.floor(e / k)) : e => this.cols.has(e % n);
			const tile = [], full = [];
			if (s && phase >= 0) this.values[name].forEach((_, e) => across(e) && Math.floor(along(name, e, n, k) / data.depth) === phase && tile.push(e));
			for (const [matrix, e] of words.values()) if (matrix === name && e >= 0) full.push(e);
			this[name].paint({ full, tile, now: now[name] });
			this[name].mark("on", now[name]);
		}
		this.drawSums(at, chosen, written, now.C, s);
		this.drawThreads(at, chosen, s?.op === "barrier" && s.threads === this.count() ? null : threads, pair);
		this.drawShared(s, words, used);
		if (this.F) this.drawFragments(s, chosen, at);
	}

	count() {
		return this.data.block.reduce((a, b) => a * b);
	}

	// shades sorts items by the part of their terms that is added.
	shades(items, part) {
		const layers = { p0: [], p1: [], p2: [], p3: [] };
		for (const i of items) layers[`p${Math.min(Math.floor(part(i) * 3), 3)}`].push(i);
		return layers;
	}

	drawSums(at, chosen, written, now) {
		const done = this.mine.filter(e => written.has(e)), rest = this.mine.filter(e => !written.has(e));
		this.C.paint({ ...this.shades(rest, e => this.terms(e, at) / this.k), done, now, chosen: [chosen] });
		this.C.write(e => written.has(e) ? this.sum(e, at) : "");
		this.C.mark("on", done);
	}

	drawThreads(at, chosen, threads, pair) {
		const all = threads === null; // a barrier of the block
		const part = t => this.sums.get(t).reduce((sum, e) => sum + this.terms(e, at), 0) / this.k / this.sums.get(t).length;
		this.T.paint({ ...this.shades(this.sums.keys(), part), now: all ? Array(this.count()).keys() : threads, at: pair ? [pair[0]] : [],
			other: pair?.length > 1 ? [pair[1]] : [], chosen: [this.data.owner[chosen]] });
		if (this.single) this.T.write(t => this.sums.has(t) ? this.sum(this.sums.get(t)[0], at) : "");
		this.T.mark("on", all ? this.T.texts.keys() : threads);
	}

	drawShared(s, words, used) {
		for (const a of this.arrays) {
			const full = [], now = [];
			for (const [w, [matrix, e]] of words) if (w >= a.first && w < a.first + a.words && matrix === a.matrix && e >= 0) full.push(w - a.first);
			for (const w of used) {
				const matrix = words.get(w)?.[0] ?? s.parts[0].matrix;
				if (w >= a.first && w < a.first + a.words && (!matrix || matrix === a.matrix)) now.push(w - a.first);
			}
			a.grid.paint({ full, now });
			a.grid.write(i => {
				const [matrix, e] = words.get(a.first + i) ?? [];
				return e === undefined ? "" : e < 0 ? 0 : this.values[matrix]?.[e];
			});
			a.grid.mark("on", now);
		}
		const p = s?.parts?.find(p => p.words.length && p.threads.length === p.words.length);
		if (this.banks) this.banks.paint((p?.threads ?? []).map(t => t % lanes), p?.words ?? [], (p?.matrix ?? "").toLowerCase(), s?.ideal || Infinity);
	}

	// drawFragments shows the operands of the last instruction up to a step, with the lanes.
	drawFragments(s, chosen, at) {
		const past = new Set(this.data.steps.slice(0, at)), last = this.products.findLast(p => past.has(p)) ?? this.products[0];
		const { turned } = this.F, lane = this.data.owner[chosen] % lanes;
		// The rows and columns of the instruction are those of the matrices, in order.
		const across = (matrix, e) => matrix === "A" ? Math.floor(e / this.k) : e % this.n;
		const order = list => new Map([...new Set(list)].sort((x, y) => x - y).map((v, i) => [v, i]));
		const [a, b, c] = last.parts, valid = p => p.elements.map((e, i) => [e, p.threads[i]]).filter(([e]) => e >= 0);
		const rows = order(valid(a).map(([e]) => across(a.matrix, e))), cols = order(valid(b).map(([e]) => across(b.matrix, e)));
		const ks = order([...valid(a).map(([e]) => along(a.matrix, e, this.n, this.k)), ...valid(b).map(([e]) => along(b.matrix, e, this.n, this.k))]);
		const draw = (grid, list) => {
			const of = new Map(list), held = list.filter(([, t]) => t !== undefined);
			grid.paint({ full: of.keys(), now: s === last ? of.keys() : [], chosen: held.filter(([, t]) => t % lanes === lane).map(([i]) => i) });
			grid.write(i => of.get(i) === undefined ? "" : of.get(i) % lanes, true);
		};
		draw(this.F.a, valid(a).map(([e, t]) => [rows.get(across(a.matrix, e)) * 8 + ks.get(along(a.matrix, e, this.n, this.k)), t]));
		draw(this.F.b, valid(b).map(([e, t]) => [ks.get(along(b.matrix, e, this.n, this.k)) * this.F.b.cols + cols.get(across(b.matrix, e)), t]));
		draw(this.F.c, valid(c).map(([e, t]) => {
			const [row, col] = [Math.floor(e / this.n), e % this.n];
			return [turned ? rows.get(col) * this.F.c.cols + cols.get(row) : rows.get(row) * this.F.c.cols + cols.get(col), t];
		}));
	}

	// fly shows the elements of a step on their way.
	fly(s) {
		if (calm.matches) return;
		for (const p of s.parts ?? []) {
			if (!p.matrix || s.op === "multiply") continue;
			const most = 64, apart = Math.ceil(p.elements.length / most);
			for (let i = 0; i < p.elements.length; i += apart) {
				const e = p.elements[i], thread = this.T.place(p.threads[i] ?? p.threads[0]);
				if (e < 0) continue;
				const cell = this[p.matrix].place(e), array = this.arrays.find(a => a.matrix === p.matrix && p.words[i] >= a.first && p.words[i] < a.first + a.words);
				const slot = array?.grid.place(p.words[i] - array.first);
				const [from, to] = { load: [cell, thread], store: [thread, slot], copy: [cell, slot], read: [slot, thread], write: [slot ?? thread, cell] }[s.op] ?? [];
				if (from && to) this.flight(from, to, p.matrix, e);
			}
		}
	}

	flight(from, to, matrix, e) {
		const box = h("div", { class: "flying " + matrix.toLowerCase(), "aria-hidden": "true" }, this[matrix].legible ? String(this.values[matrix]?.[e] ?? "") : "");
		for (const side in from) box.style[side] = `${from[side]}px`;
		document.body.append(box);
		box.animate([{}, { transform: `translate(${to.left - from.left}px, ${to.top - from.top}px)`, opacity: 0.4 }], { duration: 500, easing: "ease-in-out" })
			.finished.finally(() => box.remove());
	}
}
