// The ladder: the rungs, a run of one, and its counters beside those of the rung below.
import { call, stop, Stopped } from "./engine.js";
import { announce, byID, h, number, plural, runner, significant, sliders } from "./dom.js";
import { any, oneOf, read, whole } from "./address.js";
import { listing } from "./listing.js";
import { roofline } from "./roofline.js";

const sum = (list, field) => (list ?? []).reduce((n, a) => n + a[field], 0);

// rows are the counters: a name, an explanation, a function of the measured run, and whether more is
// better.
const rows = [
	["FLOP per byte loaded", "operations per byte that the threads load, in whole tiles", (m, x) => x, true],
	["Bytes requested", "from global memory, by all threads", m => sum(m.global, "asked")],
	["Sectors", "pieces of 32 bytes that move, once per request of a warp", m => sum(m.global, "sectors")],
	["Distinct sectors", "what would move with an unlimited cache", m => m.distinct_sectors],
	["Wavefronts", "passes over the 32 banks of shared memory", m => sum(m.shared, "wavefronts")],
	["Extra wavefronts", "caused by bank conflicts", m => sum(m.shared, "wavefronts") - sum(m.shared, "ideal")],
	["Time steps", "instructions of warps, one after the other", m => m.instructions],
];

// counters returns the table of counters.
export function counters(result, name) {
	const mine = result.explanation, below = result.below;
	const line = ([title, what, value, more]) => {
		const a = value(mine.measured, mine.phase.intensity), b = below && value(below.measured, below.intensity);
		const ratio = below && b > 0 && a > 0 ? a / b : 0;
		const better = ratio && (more ? ratio > 1.005 : ratio < 0.995), worse = ratio && (more ? ratio < 0.995 : ratio > 1.005);
		return h("tr", {},
			h("th", { scope: "row" }, title, h("small", {}, what)),
			h("td", { class: "number" }, significant(a)),
			below && h("td", { class: "number faint" }, significant(b)),
			below && h("td", { class: "number " + (better ? "better" : worse ? "worse" : "") }, ratio ? "× " + significant(ratio) : "–"));
	};
	return h("div", { class: "scroll" }, h("table", {},
		h("caption", {}, "Counters of the run"),
		h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Counted by the emulator"), h("th", { scope: "col", class: "number" }, name),
			below && h("th", { scope: "col", class: "number" }, below.name), below && h("th", { scope: "col", class: "number" }, "change"))),
		h("tbody", {}, rows.map(line))));
}

// verdict returns the outcome of a run in one line.
export function verdict(result) {
	const errors = result.findings.filter(f => f.severity === "error").length;
	const right = result.stopped ? "The emulator stopped the kernel."
		: result.elements === undefined ? "The kernel has ended."
		: result.wrong === 0 ? `All ${number(result.elements)} elements of C are right.`
		: `${plural(result.wrong, "element")} of C ${result.wrong === 1 ? "is" : "are"} wrong, of ${number(result.elements)}.`;
	const advice = result.findings.length - errors;
	const found = (errors === 0 ? "No fault is found" : `The checkers report ${plural(errors, "fault")}`) +
		(advice ? `, and ${plural(advice, "remark")} about speed.` : ".");
	announce(`${right} ${found}`);
	return h("p", { class: "verdict " + (result.solved ? "good" : "bad") }, `${right} ${found}`);
}

// failure returns an error as a notice.
export function failure(error) {
	return h("p", { class: "notice", role: "alert" }, error instanceof Stopped ? "Stopped." : error.message);
}

export function ladder(contents, remember) {
	const state = { rung: "naive", tile: "", gpu: "h200", m: 64, n: 64, k: 64 };
	const form = byID("ladder-form"), result = byID("ladder-result");
	const rungOf = id => contents.rungs.find(r => r.id === id);

	const highest = Math.max(...contents.rungs.map(r => Math.log2(r.intensity * 8)));
	for (const r of contents.rungs) {
		const step = h("span", { class: "step" });
		step.style.height = `${6 + 78 * Math.log2(r.intensity * 8) / highest}%`;
		byID("stairs").append(h("label", { class: "stair" },
			h("input", { type: "radio", name: "rung", value: r.id, onchange: () => choose({ rung: r.id, tile: "", ...r.sizes }, true) }),
			h("span", { class: "shaft" }, h("span", { class: "value" }, significant(r.intensity)), step),
			h("span", { class: "name" }, r.name)));
	}
	form.elements.gpu.append(...contents.gpus.map(g => h("option", { value: g.name }, g.device)));
	form.elements.gpu.addEventListener("change", () => choose({ gpu: form.elements.gpu.value }, true));
	form.addEventListener("submit", event => event.preventDefault());
	const set = sliders(byID("ladder-sizes"), contents.max_side, { m: state.m, n: state.n, k: state.k }, s => choose(s, true));

	const tile = form.elements.tile;
	tile.addEventListener("input", () => (byID("tile-name").textContent = rungOf(state.rung).tiles[tile.value]));
	tile.addEventListener("change", () => {
		const name = rungOf(state.rung).tiles[tile.value], own = contents.rungs.find(r => r.kernel === rungOf(state.rung).kernel && r.tile === name);
		choose(own ? { rung: own.id, tile: "" } : { tile: name }, true);
	});

	const run = runner(form.querySelector(".run"), "Run and check", async progress => {
		const asked = JSON.stringify(state), r = rungOf(state.rung);
		result.replaceChildren(h("p", { class: "note" }, `Running ${r.name} on ${state.m}×${state.n}×${state.k} …`));
		try {
			const x = await call("run", { ...state }, progress);
			if (asked !== JSON.stringify(state)) return;
			result.replaceChildren(...outcome(x, r));
			await new Promise(done => setTimeout(done)); // the browser draws the result first
			if (asked === JSON.stringify(state)) showListing(x.listing);
		} catch (error) {
			if (asked !== JSON.stringify(state)) return;
			result.replaceChildren(failure(error));
			call("list", { ...state }).then(data => asked === JSON.stringify(state) && showListing(data), () => {
				listed = "";
				byID("ladder-listing").replaceChildren();
			});
		}
	}, stop);

	// showListing shows the source of the kernel unless it is there, where the reader may have chosen
	// a line.
	let listed;
	function showListing(data) {
		const key = [state.rung, state.tile, state.gpu].join();
		if (key !== listed) listing(byID("ladder-listing"), data)();
		listed = key;
	}

	function outcome(x, r) {
		const e = x.explanation;
		const points = [{ x: e.phase.intensity, name: r.name }];
		if (x.below && x.below.intensity !== e.phase.intensity) points.push({ x: x.below.intensity, name: x.below.name, below: true });
		const advice = x.findings.filter(f => f.severity !== "error");
		return [
			verdict(x),
			h("p", { class: "facts" }, `${plural(e.launch.blocks, "block")} of ${plural(e.launch.threads, "thread")}, ` +
				`${e.fit.occupancy.blocks} at a time on an SM (limited by ${e.fit.occupancy.binding.join(" and ")}` +
				`${e.fit.registers_counted ? "" : ", registers not counted"}). ` +
				`${plural(e.phase.count, "step")} along K.`),
			h("div", { class: "columns even" }, counters(x, r.name),
				e.roof ? roofline(e.roof, points, x.bounds) : h("p", { class: "notice" }, `No roofline: ${e.no_roof}.`)),
			advice.length > 0 && h("details", {}, h("summary", {}, `${plural(advice.length, "remark")} of the checkers`),
				h("ul", {}, advice.map(f => h("li", {}, f.message)))),
			r.id === "wgmma" && h("p", { class: "note" },
				"Wavefronts count accesses of threads. The reads of wgmma and the writes of TMA bypass the threads."),
		].filter(Boolean);
	}

	function choose(next, again) {
		Object.assign(state, next);
		const r = rungOf(state.rung);
		for (const input of byID("stairs").querySelectorAll("input")) input.checked = input.value === r.id;
		set({ m: state.m, n: state.n, k: state.k });
		form.elements.gpu.value = state.gpu;
		const chosen = state.tile || r.tile;
		tile.max = r.tiles.length - 1;
		tile.value = r.tiles.indexOf(chosen);
		tile.disabled = r.tiles.length === 1;
		tile.setAttribute("aria-valuetext", chosen);
		byID("tile-name").textContent = chosen;
		byID("rung-title").textContent = r.title;
		byID("rung-idea").replaceChildren(...r.idea.map(s => h("li", {}, s)));
		const above = contents.rungs[contents.rungs.indexOf(r) + 1];
		const gpu = contents.gpus.find(g => g.name === state.gpu), figures = r.measured?.gpu === state.gpu ? r.figures : gpu.limits[r.arithmetic];
		byID("rung-limit").replaceChildren(h("strong", {}, "Limit: "), `${r.limit} ${figures} `,
			above ? h("a", { href: `#ladder?rung=${above.id}` }, `Next: ${above.name}`) : "");
		byID("rung-facts").textContent = `Kernel ${r.name} · tile ${chosen} · ${r.arithmetic}`;
		remember(state);
		if (again) stop();
		run();
	}

	return query => {
		const side = whole(1, contents.max_side);
		const asked = read(query, { rung: oneOf(contents.rungs.map(r => r.id)), tile: any, gpu: oneOf(contents.gpus.map(g => g.name)), m: side, n: side, k: side });
		const r = rungOf(asked.rung ?? state.rung);
		if (asked.tile) oneOf(r.tiles)(asked.tile, "tile");
		choose({ ...asked.rung ? { tile: "", ...r.sizes } : {}, ...asked }, false);
	};
}
