// One block of a tiny product, warp instruction by warp instruction.
import { call } from "./engine.js";
import { announce, byID, h, plural, sliders } from "./dom.js";
import { failure } from "./ladder.js";
import { listing } from "./listing.js";

const banks = 32;
const largest = 8; // side of a matrix that stays legible on a phone
const kernels = ["naive", "tiled-2", "tiled-8"];
const calm = matchMedia("(prefers-reduced-motion: reduce)");

// phasesOf numbers the steps by phase: a tile along K, or one k for a kernel without barriers.
function phasesOf(steps) {
	const tiled = steps.some(s => s.op === "barrier");
	let phase = 0, read = false;
	return steps.map(s => {
		if (!tiled && s.op === "load") phase = s.lanes[0].matrix === "A" ? s.lanes[0].col : s.lanes[0].row;
		const mine = phase;
		if (s.op === "read") read = true;
		if (s.op === "barrier" && read) [phase, read] = [phase + 1, false];
		return s.op === "write" ? -1 : mine; // the write follows all phases
	});
}

// stateAt returns the contents of shared memory and the terms of each thread after a number of steps.
function stateAt(steps, count) {
	const multiplies = steps.some(s => s.op === "read") ? "read" : "load";
	const shared = new Map(), seen = new Map(), written = new Set();
	for (const s of steps.slice(0, count)) {
		for (const l of s.lanes ?? []) {
			if (s.op === "store") shared.set(`${l.shared}:${l.slot}`, l);
			if (s.op === "write") written.add(`${l.row}:${l.col}`);
			if (s.op === multiplies && l.matrix) {
				const mine = seen.get(l.thread) ?? { A: new Set(), B: new Set() };
				mine[l.matrix].add(l.matrix === "A" ? l.col : l.row);
				seen.set(l.thread, mine);
			}
		}
	}
	return { shared, written, terms: (thread, k) => seen.get(thread)?.A.has(k) && seen.get(thread)?.B.has(k) };
}

function describe(s, threads) {
	const who = `Warp ${s.warp}: ${plural(new Set(s.lanes?.map(l => l.thread)).size, "thread")}`;
	const passes = () => `${plural(s.wavefronts, "wavefront")}${s.wavefronts > s.ideal ? `, ${s.ideal} without bank conflicts` : ""}`;
	switch (s.op) {
	case "load": return `${who} load${s.lanes.length === 1 ? "s" : ""} from ${s.lanes[0].matrix} in global memory: ${plural(s.sectors, "sector")} of 32 bytes.`;
	case "store": return `${who} store to ${s.lanes[0].shared} in shared memory: ${passes()}.`;
	case "read": {
		const words = new Set(s.lanes.map(l => l.slot)).size;
		const share = words < s.lanes.length ? " Threads that want the same word share it." : "";
		return `${who} read ${plural(words, "word")} of ${s.lanes[0].shared}: ${passes()}.${share}`;
	}
	case "write": return `${who} write their sums to C: ${plural(s.sectors, "sector")}.`;
	}
	return `Barrier: all ${threads} threads of the block have arrived, and go on together.`;
}

// grid returns a matrix of cells, with a name above it, and the cells by index.
function grid(name, rows, cols, kind) {
	const cells = [];
	const box = h("div", { class: "grid " + kind, role: "img", "aria-label": `${name}, ${rows}×${cols}` });
	box.style.gridTemplateColumns = `repeat(${cols}, minmax(0, ${cols === banks ? "1fr" : cols > largest ? "24px" : "44px"}))`;
	for (let i = 0; i < rows * cols; i++) cells.push(h("div", { class: "cell" }));
	box.append(...cells);
	return [h("div", { class: "matrix m-" + kind }, h("h4", {}, name), box), cells];
}

export function watch(contents, remember) {
	const state = { rung: "tiled-2", m: 4, n: 4, k: 4, block: 0 };
	const form = byID("watch-form"), stage = byID("stage"), timeline = byID("timeline");
	const buttons = Object.fromEntries([...document.querySelectorAll("[data-go]")].map(b => [b.dataset.go, b]));
	let data, steps, phases, owner, cells, mark, timer, at = 0, element;

	form.elements.rung.append(...kernels.map(id => h("option", { value: id }, contents.rungs.find(r => r.id === id).name)));
	form.elements.rung.addEventListener("change", () => load({ rung: form.elements.rung.value, block: 0 }));
	form.elements.block.addEventListener("change", () => load({ block: Number(form.elements.block.value) }));
	form.addEventListener("submit", event => event.preventDefault());
	const set = sliders(byID("watch-sizes"), largest, { m: 4, n: 4, k: 4 }, s => load({ ...s, block: 0 }));

	async function load(next) {
		pause();
		Object.assign(state, next);
		form.elements.rung.value = state.rung;
		set({ m: state.m, n: state.n, k: state.k });
		remember(state);
		try {
			data = await call("watch", { ...state, gpu: "h200" });
		} catch (error) {
			stage.replaceChildren(failure(error));
			return;
		}
		state.block = Math.min(state.block, data.trace.blocks.length - 1);
		const names = data.trace.blocks.map((b, i) => h("option", { value: i }, `(${b.index[0]}, ${b.index[1]})`));
		form.elements.block.replaceChildren(...names);
		form.elements.block.value = state.block;
		const block = data.trace.blocks[state.block];
		steps = block.steps;
		phases = phasesOf(steps);
		owner = new Map();
		for (const phase of block.phases) {
			for (const s of phase.sums) owner.set(`${s.row}:${s.col}`, s.thread[0] + data.block[0] * s.thread[1]);
		}
		element = [...owner.keys()][0];
		build();
		listing(byID("watch-ptx"), { go: [], ptx: data.listing.ptx });
		go(0);
	}

	function build() {
		const { m, n, k } = state, side = data.tile, tiled = steps.some(s => s.op === "store");
		const [boxA, A] = grid("A", m, k, "a"), [boxB, B] = grid("B", k, n, "b"), [boxC, C] = grid("C", m, n, "c");
		const [boxT, T] = grid(`Threads of the block with their sums, ${plural(Math.ceil(data.block[0] * data.block[1] / 32), "warp")}`, data.block[1], data.block[0], "t");
		const right = [boxT];
		cells = { A, B, C, T };
		if (tiled) {
			const [as, As] = grid("As, shared", side, side, "a"), [bs, Bs] = grid("Bs, shared", side, side, "b");
			const [bank, banksOf] = grid("The 32 banks of shared memory, and the words taken from each", 1, banks, "bank");
			Object.assign(cells, { As, Bs, banks: banksOf });
			right.push(h("div", { class: "pair" }, as, bs), bank);
		}
		data.trace.a.flat().forEach((v, i) => (A[i].textContent = v));
		data.trace.b.flat().forEach((v, i) => (B[i].textContent = v));
		C.forEach((c, i) => {
			const key = `${Math.floor(i / n)}:${i % n}`;
			if (owner.has(key)) c.addEventListener("click", () => { element = key; draw(); });
			else c.classList.add("outside");
		});
		const cross = h("div", { class: "cross" }, h("div"), boxB, boxA, boxC);
		cross.style.gridTemplateColumns = `${k}fr ${n}fr`;
		stage.replaceChildren(cross, h("div", { class: "inside" }, right));
		const scale = h("input", { type: "range", min: 0, max: steps.length, value: 0, "aria-label": "Step", oninput: () => go(Number(scale.value)) });
		timeline.replaceChildren(h("div", { class: "ticks", "aria-hidden": "true" }, steps.map((s, i) => h("span", {
			class: `tick ${s.op} ${i > 0 && phases[i] !== phases[i - 1] ? "first" : ""}`, title: s.op, onclick: () => go(i + 1),
		}))), scale, h("p", { class: "legend", "aria-hidden": "true" }, [["load", "load"], ["store", "store to shared"], ["barrier", "barrier"], ["read", "read and multiply"], ["write", "write C"]]
			.map(([kind, name]) => h("span", { class: "key " + kind }, name))));
		cells.scale = scale;
		cells.ticks = [...timeline.querySelectorAll(".tick")];
	}

	const cellOf = (l, op) => ({
		A: () => cells.A[l.row * state.k + l.col], B: () => cells.B[l.row * state.n + l.col], C: () => cells.C[l.row * state.n + l.col],
	}[l.matrix]?.());
	const slotOf = l => cells[l.shared]?.[l.slot];

	// fly shows a value that moves from one cell to another.
	function fly(from, to, kind) {
		if (!from || !to || calm.matches) return;
		const [a, b] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
		const e = h("div", { class: "flying " + kind, "aria-hidden": "true" }, from.textContent);
		Object.assign(e.style, { left: `${a.left + scrollX}px`, top: `${a.top + scrollY}px`, width: `${a.width}px`, height: `${a.height}px` });
		document.body.append(e);
		e.animate([{}, { transform: `translate(${b.left - a.left}px, ${b.top - a.top}px)`, opacity: 0.4 }], { duration: 500, easing: "ease-in-out" })
			.finished.finally(() => e.remove());
	}

	function go(to) {
		const forward = to === at + 1;
		at = Math.min(Math.max(to, 0), steps.length);
		draw();
		const s = steps[at - 1];
		if (!forward || !s) return;
		for (const l of (s.lanes ?? []).slice(0, 64)) {
			const kind = l.matrix.toLowerCase(), thread = cells.T[l.thread];
			if (s.op === "load") fly(cellOf(l), thread, kind);
			if (s.op === "store") fly(cellOf(l), slotOf(l), kind);
			if (s.op === "read") fly(slotOf(l), thread, kind);
			if (s.op === "write") fly(thread, cellOf(l), kind);
		}
	}

	function draw() {
		const s = steps[at - 1], now = stateAt(steps, at), { n, k } = state;
		const phase = s && phases[at - 1] >= 0 ? phases[at - 1] : -1;
		for (const list of [cells.A, cells.B, cells.C, cells.T, cells.As, cells.Bs, cells.banks]) {
			for (const c of list ?? []) c.classList.remove("now", "full", "chosen", "conflict", "tile", "done");
		}
		const depth = cells.As ? data.tile : 1, first = data.trace.blocks[state.block].index;
		cells.A.forEach((c, i) => c.classList.toggle("tile", phase >= 0 && Math.floor((i % k) / depth) === phase &&
			Math.floor(Math.floor(i / k) / data.tile) === first[1]));
		cells.B.forEach((c, i) => c.classList.toggle("tile", phase >= 0 && Math.floor(Math.floor(i / n) / depth) === phase &&
			Math.floor((i % n) / data.tile) === first[0]));
		for (const [name, list] of [["As", cells.As], ["Bs", cells.Bs]]) {
			(list ?? []).forEach((c, i) => {
				const l = now.shared.get(`${name}:${i}`);
				c.textContent = !l ? "" : l.matrix === "" ? "0" : data.trace[l.matrix.toLowerCase()][l.row][l.col];
				c.classList.toggle("full", Boolean(l));
			});
		}
		const sumOf = key => {
			const [r, c] = key.split(":").map(Number), terms = [];
			for (let q = 0; q < k; q++) if (now.terms(owner.get(key), q)) terms.push(data.trace.a[r][q] * data.trace.b[q][c]);
			return terms;
		};
		cells.C.forEach((c, i) => {
			const key = `${Math.floor(i / n)}:${i % n}`;
			if (!owner.has(key)) return;
			const terms = sumOf(key), thread = cells.T[owner.get(key)];
			const total = terms.reduce((a, b) => a + b, 0);
			thread.textContent = total;
			thread.classList.toggle("chosen", key === element);
			c.textContent = now.written.has(key) ? total : "";
			c.classList.toggle("done", now.written.has(key));
			c.classList.toggle("chosen", key === element);
		});
		const words = new Map();
		for (const l of s?.lanes ?? []) {
			cells.T[l.thread]?.classList.add("now");
			if (s.op !== "read") cellOf(l)?.classList.add("now");
			if (l.shared) {
				slotOf(l)?.classList.add("now");
				words.set(l.bank, (words.get(l.bank) ?? new Set()).add(l.slot));
			}
		}
		(cells.banks ?? []).forEach((c, i) => {
			const count = words.get(i)?.size ?? 0;
			c.textContent = count || "";
			c.classList.toggle("now", count === 1);
			c.classList.toggle("conflict", count > 1);
		});
		if (s?.op === "barrier") for (const c of cells.T) c.classList.add("now");
		cells.scale.value = at;
		cells.scale.setAttribute("aria-valuetext", s ? `Step ${at} of ${steps.length}` : "Before the first step");
		cells.ticks.forEach((t, i) => t.classList.toggle("past", i < at));
		const threads = data.block[0] * data.block[1];
		const text = s ? `${at} of ${steps.length}${phase >= 0 ? `, phase ${phase}` : ""}. ${describe(s, threads)}`
			: `The block computes ${plural(owner.size, "element")} of C with ${plural(threads, "thread")}. Step forward, or play.`;
		byID("caption").textContent = text;
		announce(text);
		formula(sumOf, now);
		show(s);
	}

	function formula(sumOf, now) {
		const [r, c] = element.split(":").map(Number), parts = [];
		for (let q = 0; q < state.k; q++) {
			parts.push(q ? " + " : "", h("span", { class: now.terms(owner.get(element), q) ? "term done" : "term" },
				h("span", { class: "of-a" }, String(data.trace.a[r][q])), "·", h("span", { class: "of-b" }, String(data.trace.b[q][c]))));
		}
		const done = sumOf(element), total = done.reduce((a, b) => a + b, 0);
		byID("formula").replaceChildren(h("p", {}, `C[${r}][${c}] = `, parts),
			h("p", { class: "total" }, done.length === 0 ? "0" : String(total), h("small", {}, ` after ${done.length} of ${plural(state.k, "term")}`)),
			h("p", { class: "note" }, "Select another element in C."));
	}

	// show marks the line of the instruction.
	function show(s) {
		const box = byID("watch-ptx").querySelector(".code");
		box.querySelector(".marked")?.classList.remove("marked");
		const lines = box.querySelectorAll(".line"), line = lines[(s?.line ?? 1) - 1];
		if (s) line.classList.add("marked");
		box.scrollTo({ top: line.offsetTop - box.clientHeight / 3 });
	}

	function pause() {
		clearInterval(timer);
		timer = undefined;
		buttons.play.textContent = "Play";
	}
	function play() {
		if (timer) return pause();
		if (at === steps.length) go(0);
		buttons.play.textContent = "Pause";
		timer = setInterval(() => at < steps.length ? go(at + 1) : pause(), 900);
	}
	const phaseStart = i => {
		while (i > 0 && phases[i - 1] === phases[i]) i--;
		return i;
	};
	const phaseEnd = i => {
		while (i < steps.length - 1 && phases[i + 1] === phases[i]) i++;
		return i + 1;
	};
	const moves = {
		first: () => go(0), last: () => go(steps.length), back: () => go(at - 1), next: () => go(at + 1),
		"phase-back": () => go(at ? phaseStart(at - 1) : 0), "phase-next": () => go(at < steps.length ? phaseEnd(at) : at),
	};
	const keys = { ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last", PageUp: "phase-back", PageDown: "phase-next", " ": "play" };
	const move = name => {
		if (!steps) return;
		if (name === "play") return play();
		pause();
		moves[name]();
	};
	for (const name in buttons) buttons[name].addEventListener("click", () => move(name));
	addEventListener("keydown", event => {
		const name = keys[event.key];
		if (!name || byID("watch").hidden || event.target.closest("input, select, button, .code, a")) return;
		event.preventDefault();
		move(name);
	});
	addEventListener("hashchange", pause);

	return query => {
		const next = {};
		if (kernels.includes(query.rung)) next.rung = query.rung;
		for (const side of ["m", "n", "k"]) if (query[side] >= 1 && query[side] <= largest) next[side] = Number(query[side]);
		if (query.block >= 0) next.block = Number(query.block);
		load(next);
	};
}
