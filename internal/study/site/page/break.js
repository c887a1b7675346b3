// Planted mistakes with what the checkers find, and the exercises.
import { call, stop } from "./engine.js";
import { oneOf, read } from "./address.js";
import { byID, h, numbered, plural, runner, threadName } from "./dom.js";
import { failure, verdict } from "./ladder.js";
import { listing } from "./listing.js";
import { linkToThreads } from "./watch.js";

const kept = "tilework-study-solved"; // the key of the solved exercises in the browser's storage

// threads returns a drawing of a block with the two threads of a finding.
function threads(finding, dim) {
	const cell = 12, places = [finding.at, finding.other].filter(Boolean);
	const same = p => p.block.X === finding.at.block.X && p.block.Y === finding.at.block.Y;
	// A row is a row of the block, or a warp of a block of one dimension.
	const cols = dim[1] > 1 ? dim[0] : Math.min(dim[0], 32), rows = Math.ceil(dim[0] * dim[1] / cols), cells = [];
	const rect = (i, edge, name) => h("rect", { x: i % cols * cell - edge, y: Math.floor(i / cols) * cell - edge, width: cell - 2 + 2 * edge, height: cell - 2 + 2 * edge, class: name });
	for (let i = 0; i < dim[0] * dim[1]; i++) cells.push(rect(i, 0, "thread"));
	places.filter(same).forEach((p, i) => cells.push(rect(p.thread.X + dim[0] * p.thread.Y, 1, i ? "thread other" : "thread at")));
	const name = p => threadName(p.thread.X, p.thread.Y, p.thread.Z);
	const where = p => same(p) ? "" : ` of block (${p.block.X},${p.block.Y},${p.block.Z})`;
	const words = places.map((p, i) => h("span", { class: "key " + (i ? "other" : "at") }, `${name(p)}${where(p)}: ${p.opcode}`));
	return h("figure", { class: "threads" },
		h("svg", { viewBox: `-2 -2 ${cols * cell + 2} ${rows * cell + 2}`, role: "img", "aria-label": `The block, with ${places.map(name).join(" and ")}` }, cells),
		h("figcaption", {}, `Block (${finding.at.block.X},${finding.at.block.Y},${finding.at.block.Z}), indices as (x,y,z)`, words));
}

// findings returns the findings with the lines of their sources. request is that of a run which
// Watch can show.
export function findings(result, dim, request) {
	return result.findings.map(f => h("article", { class: "finding " + f.severity },
		h("div", {},
			h("h3", {}, `${f.severity === "error" ? "Fault" : "Advice"}: ${f.checker}`,
				h("small", {}, `${f.at.file ? `${f.at.file}:${f.at.source}, ` : ""}line ${f.at.line} of the PTX${f.count > 1 ? `, ${plural(f.count, "time")}` : ""}`)),
			h("p", {}, f.plain), h("p", { class: "message" }, f.message),
			request && f.severity === "error" && linkToThreads(f, request, result.grid, result.block)),
		dim && dim[0] * dim[1] > 1 && f.severity === "error" && threads(f, dim)));
}

// marksOf returns the marks of the findings for a listing.
export const marksOf = result => result.findings.flatMap(f => [
	{ line: f.at.line, text: f.severity === "error" ? `${f.checker}: here` : f.checker },
	...f.other ? [{ line: f.other.line, text: `${f.checker}: and here` }] : [],
]);

const wrong = result => result.first && h("p", { class: "facts" }, `The first wrong element: ${result.first}.`);

export function breaking(contents, remember) {
	const all = contents.mistakes.map(m => ({ ...m, rung: contents.rungs.find(r => r.id === m.rung) }));
	let chosen = all[0];
	const out = byID("break-verdict");

	for (const m of all) {
		byID("switches").append(h("label", { class: "switch" },
			h("input", { type: "radio", name: "mistake", value: m.id, onchange: () => choose(m) }),
			h("span", {}, m.title, h("small", {}, m.rung.name))));
	}

	const run = runner(byID("break-run"), "Run again", async progress => {
		const mine = chosen;
		out.replaceChildren(h("p", { class: "note" }, "Running …"));
		try {
			const x = await call("run", { rung: mine.rung.id, gpu: "h200", mistake: mine.id, ...mine.sizes }, progress);
			if (mine !== chosen) return;
			out.replaceChildren(...[verdict(x), h("p", { class: "why" }, mine.why), wrong(x),
				x.stopped && h("p", { class: "facts" }, x.stopped), ...findings(x, x.block, { rung: mine.rung.id, mistake: mine.id, ...mine.sizes })].filter(Boolean));
			listing(byID("break-listing"), x.listing)(marksOf(x));
		} catch (error) {
			if (mine === chosen) out.replaceChildren(failure(error));
		}
	}, stop);

	function choose(m) {
		chosen = m;
		for (const input of byID("switches").querySelectorAll("input")) input.checked = input.value === m.id;
		remember({ mistake: m.id });
		stop();
		run();
	}

	let solved = new Set();
	try {
		solved = new Set(JSON.parse(localStorage.getItem(kept)) ?? []);
	} catch {
		// The storage is not available or damaged: the progress starts anew.
	}
	all.filter(m => m.hints).forEach((m, i) => byID("exercises").append(exercise(m, i)));

	function exercise(m, i) {
		const request = { rung: m.rung.id, gpu: "h200", ...m.sizes };
		const state = h("span", { class: "state" });
		const mark = () => {
			state.textContent = solved.has(m.id) ? "solved" : "open";
			state.className = "state " + (solved.has(m.id) ? "good" : "");
		};
		mark();
		const text = h("textarea", { spellcheck: false, rows: 18, "aria-label": `PTX of exercise ${i + 1}`, autocapitalize: "off" });
		const said = h("div", { class: "result", "aria-live": "polite" }), buttons = h("div", { class: "run" });
		const load = async () => {
			try {
				text.value = (await call("list", { ...request, mistake: m.id })).ptx.map(l => l.text).join("\n") + "\n";
				text.dispatchEvent(new Event("input"));
			} catch (error) {
				said.replaceChildren(failure(error));
			}
		};
		runner(buttons, "Check", async progress => {
			said.replaceChildren(h("p", { class: "note" }, "Running …"));
			try {
				const mine = { ...request, mistake: m.id, ptx: text.value }, x = await call("run", mine, progress);
				said.replaceChildren(...[verdict(x), x.solved && h("p", { class: "why" }, h("strong", {}, "Learnt: "), m.learnt), wrong(x), x.stopped && h("p", { class: "facts" }, x.stopped), ...findings(x, x.block, mine)].filter(Boolean));
				if (x.solved) {
					solved.add(m.id);
					try {
						localStorage.setItem(kept, JSON.stringify([...solved]));
					} catch {
						// Without storage the progress lasts as long as the page.
					}
					mark();
				}
			} catch (error) {
				said.replaceChildren(failure(error));
			}
		}, stop);
		buttons.append(h("button", { type: "button", onclick: load }, "Start over"));
		return h("details", { class: "exercise", ontoggle: event => event.target.open && !text.value && load() },
			h("summary", {}, `Exercise ${i + 1}: kernel ${m.rung.name}, ${m.sizes.m}×${m.sizes.n}×${m.sizes.k} `, state),
			numbered(text), buttons, said,
			m.hints.map((hint, n) => h("details", { class: "hint" }, h("summary", {}, `Hint ${n + 1}`), h("p", {}, hint))));
	}

	return query => {
		const { mistake } = read(query, { mistake: oneOf(all.map(m => m.id)) });
		choose(all.find(m => m.id === mistake) ?? chosen);
	};
}
