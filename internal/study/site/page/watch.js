// One block of a small product, warp instruction by warp instruction.
import { call } from "./engine.js";
import { any, listOf, oneOf, read, whole } from "./address.js";
import { announce, byID, h, number, plural, sliders, threadName } from "./dom.js";
import { failure } from "./ladder.js";
import { kinds, listing } from "./listing.js";
import { Stage } from "./stage.js";

// kindOf holds the kind of instruction of each step, which selects its color.
const kindOf = { load: "global", write: "global", copy: "global", store: "shared", read: "shared", fma: "math", multiply: "math", barrier: "sync", wait: "sync", arrive: "sync" };

// edited is a kernel that the reader has changed, for an address with edited=1.
let edited;

// linkToThreads returns a link from a finding to Watch. The address selects the block, and the lines
// and the threads of the finding. request is that of the run, block is the number of threads in x, y
// and z.
export function linkToThreads(finding, request, grid, block) {
	const places = [finding.at, finding.other].filter(Boolean);
	const linear = (p, dim) => p.X + dim[0] * (p.Y + dim[1] * p.Z);
	const { rung, mistake, m, n, k, ptx } = request;
	const query = new URLSearchParams({
		rung, ...mistake ? { mistake } : {}, m, n, k, block: linear(finding.at.block, grid),
		threads: places.map(p => linear(p.thread, block)), lines: places.map(p => p.line), ...ptx ? { edited: 1 } : {},
	});
	return h("a", { class: "watch-link", href: `#watch?${query}`, onclick: () => (edited = ptx) }, places.length < 2 ? "Watch the thread" : linear(places[0].thread, block) === linear(places[1].thread, block) ? "Watch both accesses" : "Watch the two threads");
}

// describe explains a step in words.
function describe(s, opcode) {
	const p = s.parts?.[0], lanes = new Set(p?.threads).size;
	const who = `Warp ${s.warp}: ${plural(lanes, "thread")}`, verb = (one, many) => lanes === 1 ? one : many;
	const passes = `${plural(s.wavefronts ?? 0, "wavefront")}${s.wavefronts > s.ideal ? `, but ${s.ideal} without bank conflicts` : ""}`;
	const sectors = plural(s.sectors ?? 0, "sector") + " of 32 bytes";
	switch (s.op) {
	case "load": return `${who} ${verb("loads", "load")} from ${p.matrix} in global memory: ${sectors}.`;
	case "store": return `${who} ${verb("stores", "store")} ${p.matrix ? `elements of ${p.matrix}` : "zeros"} to shared memory: ${passes}.`;
	case "copy":
		if (!p.matrix) return `${who} ${verb("fills", "fill")} ${plural(p.elements.length, "word")} of shared memory with zeros, because the matrix ends here.`;
		return `${who} ${verb("starts", "start")} to copy ${plural(p.elements.length, "element")} of ${p.matrix} from global to shared memory` +
			`${lanes === 1 && p.elements.length > 4 ? " (TMA)" : ", past the registers"}: ${sectors}.`;
	case "read": {
		const words = new Set(p.words).size;
		return `${who} ${verb("reads", "read")} ${plural(words, "word")} of ${p.matrix || "zeros"} in shared memory: ${passes}.` +
			(words < p.words.length ? " Threads that want the same word share it." : "");
	}
	case "fma": return `${who} ${verb("multiplies an element of A by one of B, and adds to its sum", "multiply an element of A by one of B each, and add to their sums")}.`;
	case "multiply": {
		const [a, b, c] = s.parts;
		return `Warp ${s.warp}: one instruction of the tensor cores multiplies ${plural(a.elements.length, "element")} of ${a.matrix} in registers by ` +
			`${plural(b.elements.length, "element")} of ${b.matrix} in ${b.threads.length ? "registers" : "shared memory"}, and adds to ${plural(c.elements.length, "sum")}.`;
	}
	case "write": return `${who} ${verb("writes", "write")} sums to C: ${sectors}.`;
	case "wait": return opcode.includes("mbarrier") ? `${who} ${verb("goes", "go")} on: the phase of the mbarrier is complete.` : `${who} ${verb("goes", "go")} on: the oldest copies have arrived.`;
	case "arrive": return `${who} ${verb("arrives", "arrive")} at an mbarrier, which counts arrivals and copied bytes.`;
	}
	return `Barrier: all ${s.threads} threads have arrived, and go on together.`;
}

// racing returns the numbers of the two steps of a finding: those of its lines and threads that use
// the same word, as close to each other as possible. It returns one step for one place.
function racing(steps, lines, threads) {
	const of = i => steps.flatMap((s, n) => s.line === lines[i] && s.parts?.some(p => p.threads.includes(threads[i])) ? [n] : []);
	const words = (n, thread) => steps[n].parts.flatMap(p => p.words.filter((_, i) => (p.threads[i] ?? p.threads[0]) === thread));
	const first = of(0);
	if (lines.length < 2) return first.slice(0, 1);
	let best = [];
	for (const x of first) {
		const mine = words(x, threads[0]);
		for (const y of of(1)) {
			if (mine.length && !words(y, threads[1]).some(w => mine.includes(w))) continue;
			if (!best.length || Math.abs(x - y) < Math.abs(best[0] - best[1])) best = [x, y];
		}
	}
	return best;
}

export function watch(contents, remember) {
	const first = contents.rungs.find(r => r.id === "tiled-2");
	const state = { rung: first.id, ...first.watched, block: 0 };
	const form = byID("watch-form"), timeline = byID("timeline"), found = byID("watch-finding");
	const buttons = Object.fromEntries([...document.querySelectorAll("[data-go]")].map(b => [b.dataset.go, b]));
	let data, steps, stage, timer, saving, loads = 0, at = 0, element = 0, pair, scale;

	form.elements.rung.append(...contents.rungs.map(r => h("option", { value: r.id }, r.name)));
	form.elements.rung.addEventListener("change", () => {
		const r = contents.rungs.find(r => r.id === form.elements.rung.value);
		load({ rung: r.id, ...r.watched, block: 0 });
	});
	form.elements.block.addEventListener("change", () => another({ block: Number(form.elements.block.value) }));
	form.addEventListener("submit", event => event.preventDefault());
	const set = sliders(byID("watch-sizes"), contents.max_steps, { ...first.watched }, s => another({ ...s, block: 0 }));
	for (const name of ["row", "col"]) byID(`sum-${name}`).addEventListener("change", () => choose(Number(byID("sum-row").value) * data.b[0].length + Number(byID("sum-col").value)));

	// another shows another block of the kernel from its first step, without the finding.
	function another(changes) {
		const { threads, lines, ...kept } = state;
		load({ ...kept, at: 0, ...changes });
	}

	// load shows a block from its first step, or from the step in the state.
	async function load(next) {
		pause();
		for (const name in state) delete state[name];
		Object.assign(state, next);
		clearTimeout(saving);
		const mine = ++loads;
		form.elements.rung.value = state.rung;
		set({ m: state.m, n: state.n, k: state.k });
		remember(state);
		let answer;
		try {
			if (state.edited && !edited) throw new Error("This address is for a kernel that a reader edited, and this page does not have it: check the exercise again.");
			answer = await call("watch", { rung: state.rung, gpu: "h200", mistake: state.mistake ?? "", ptx: state.edited ? edited : "",
				m: state.m, n: state.n, k: state.k, block: state.block });
			if (mine !== loads) return; // the reader has gone on
			checkState(answer);
		} catch (error) {
			if (mine !== loads) return;
			steps = undefined;
			found.hidden = true;
			byID("inside").replaceChildren();
			byID("matrices").replaceChildren(failure(error));
			return;
		}
		data = answer;
		steps = data.steps;
		const names = Array.from({ length: data.grid[0] * data.grid[1] }, (_, i) => h("option", { value: i }, `(${i % data.grid[0]}, ${Math.floor(i / data.grid[0])})`));
		form.elements.block.replaceChildren(...names);
		form.elements.block.value = state.block;
		stage = new Stage(byID("matrices"), byID("inside"), data, choose, block => another({ block }));
		element = stage.mine[0] ?? 0;
		buildTimeline();
		listing(byID("watch-ptx"), { go: [], ptx: data.listing.ptx });
		showFinding();
		const r = contents.rungs.find(r => r.id === state.rung);
		byID("watch-facts").textContent = `Kernel ${r.name} with tile ${r.small}` +
			(r.small === r.tile ? "." : `: a smaller tile than the ladder's ${r.tile}, so that you can tell the elements apart.`);
	}

	// checkState refuses a step, a thread or a line that the block does not have.
	function checkState(answer) {
		whole(0, answer.steps.length)(String(state.at ?? 0), "at");
		for (const t of state.threads ?? []) whole(0, answer.block.reduce((a, b) => a * b) - 1)(String(t), "threads");
		for (const line of state.lines ?? []) whole(1, answer.listing.ptx.length)(String(line), "lines");
	}

	// showFinding jumps to the threads of a finding, if the address names them.
	function showFinding() {
		const threads = state.threads ?? [], lines = state.lines ?? [];
		const broken = !state.edited && contents.mistakes.find(m => m.id === state.mistake);
		pair = threads.length ? threads : undefined;
		found.hidden = !broken && !pair;
		const where = pair ? racing(steps, lines, threads) : [];
		const [x, y] = data.block, name = t => threadName(t % x, Math.floor(t / x) % y, Math.floor(t / x / y));
		const jump = n => h("button", { type: "button", onclick: () => go(n + 1) }, `Step ${number(n + 1)}`);
		found.replaceChildren(
			h("p", {}, h("strong", {}, broken ? `${broken.title}. ` : "Your kernel. "), pair ? pair.map((t, i) => [
				i ? " and " : "", h("span", { class: "key " + (i ? "other" : "at") }, name(t)), ...where[i] === undefined ? [] : [" in ", jump(where[i])]])
				: "This kernel has the mistake.", where.length > 1 ? " use the same word, and nothing orders one before the other." : "."),
			h("p", {}, h("a", { href: broken ? `#break?mistake=${broken.id}` : "#break" }, "Back to the finding"), " · ",
				h("a", { href: `#watch?rung=${state.rung}` }, "Watch the correct kernel")));
		go(where.length ? Math.max(...where) + 1 : state.at ?? 0);
	}

	function buildTimeline() {
		const bar = kind => h("path", { class: "tick " + kind, d: steps.flatMap((s, i) => kindOf[s.op] === kind ? [`M${i} 0h1v1h-1z`] : []).join("") });
		const starts = steps.flatMap((s, i) => i > 0 && s.phase !== steps[i - 1].phase ? [i] : []);
		const svg = h("svg", { viewBox: `0 0 ${steps.length} 1`, preserveAspectRatio: "none", class: "ticks", "aria-hidden": "true" },
			kinds.map(([kind]) => bar(kind)), starts.map(i => h("line", { x1: i, x2: i, y1: 0, y2: 1, class: "first" })));
		svg.addEventListener("click", event => {
			const r = svg.getBoundingClientRect();
			pause();
			go(Math.ceil((event.clientX - r.left) / r.width * steps.length));
		});
		scale = h("input", { type: "range", min: 0, max: steps.length, value: 0, "aria-label": "Step", oninput: () => {
			pause();
			go(Number(scale.value));
		} });
		timeline.replaceChildren(svg, scale);
	}

	function choose(e) {
		if (data && data.owner[e] >= 0) element = e;
		if (data) draw();
	}

	function go(to) {
		const forward = to === at + 1;
		at = Math.min(Math.max(to, 0), steps.length);
		draw();
		if (forward && steps[at - 1]) stage.fly(steps[at - 1]);
		clearTimeout(saving);
		saving = setTimeout(() => {
			if (byID("watch").hidden) return;
			state.at = at;
			remember(state);
		}, 400);
	}

	function draw() {
		const s = steps[at - 1], threads = data.block.reduce((a, b) => a * b);
		stage.draw(at, element, pair);
		scale.value = at;
		scale.setAttribute("aria-valuetext", s ? `Step ${at} of ${steps.length}` : "Before the first step");
		const text = s ? `${number(at)} of ${number(steps.length)}${s.phase >= 0 ? `, phase ${s.phase}` : ""}. ${describe(s, data.listing.ptx[s.line - 1].text)}`
			: stage.mine.length ? `The block computes ${plural(stage.mine.length, "element")} of C with ${plural(threads, "thread")}. Step forward, or play.`
				: "The block has no elements of C. Choose another.";
		byID("caption").replaceChildren(...s ? [h("span", { class: "key " + kindOf[s.op], "aria-hidden": "true" })] : [], text);
		if (!timer) announce(text);
		formula();
		const box = byID("watch-ptx").querySelector(".code"), lines = box.querySelectorAll(".line"), line = lines[(s?.line ?? 1) - 1];
		box.querySelector(".marked")?.classList.remove("marked");
		if (s) line.classList.add("marked");
		box.scrollTo({ top: line.offsetTop - box.clientHeight / 3 });
	}

	// formula shows the sum of the chosen element.
	function formula() {
		const n = data.b[0].length, k = data.b.length, r = Math.floor(element / n), c = element % n, parts = [], thread = data.owner[element];
		for (let q = 0; q < k; q++) {
			parts.push(q ? " + " : "", h("span", { class: stage.has(element, q, at) ? "term done" : "term" },
				h("span", { class: "of-a" }, String(data.a[r][q])), "·", h("span", { class: "of-b" }, String(data.b[q][c]))));
		}
		byID("formula").replaceChildren(h("p", { class: k > 16 ? "long" : "" }, `C[${r}][${c}] = `, parts),
			h("p", { class: "total" }, String(stage.sum(element, at)), h("small", {}, `after ${stage.terms(element, at)} of ${plural(k, "term")}`)),
			h("p", { class: "note" }, thread < 0 ? "" : `Lane ${thread % 32} of warp ${Math.floor(thread / 32)} holds the sum in a register.`));
		Object.assign(byID("sum-row"), { value: r, max: data.a.length - 1 });
		Object.assign(byID("sum-col"), { value: c, max: n - 1 });
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
		const slow = 900, fast = 60, all = 60000; // milliseconds of a step, and of all steps
		timer = setInterval(() => at < steps.length ? go(at + 1) : pause(), Math.min(slow, Math.max(fast, all / steps.length)));
	}
	const phaseStart = i => {
		while (i > 0 && steps[i - 1].phase === steps[i].phase) i--;
		return i;
	};
	const phaseEnd = i => {
		while (i < steps.length - 1 && steps[i + 1].phase === steps[i].phase) i++;
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
		const side = whole(1, contents.max_steps), many = Number.MAX_SAFE_INTEGER;
		const asked = read(query, { rung: oneOf(contents.rungs.map(r => r.id)), mistake: oneOf(contents.mistakes.map(m => m.id)), m: side, n: side, k: side,
			block: whole(0, many), at: whole(0, many), threads: listOf(0, many), lines: listOf(1, many), edited: any });
		const r = contents.rungs.find(r => r.id === (asked.rung ?? state.rung));
		if (asked.mistake) oneOf(contents.mistakes.filter(m => m.rung === r.id).map(m => m.id))(asked.mistake, `mistake of rung ${r.id}`);
		load({ rung: r.id, ...asked.rung ? r.watched : { m: state.m, n: state.n, k: state.k }, block: 0, ...asked });
	};
}
