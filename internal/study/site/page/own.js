// The reader's own PTX with all checkers.
import { call, stop } from "./engine.js";
import { byID, h, plural, runner } from "./dom.js";
import { findings, marksOf } from "./break.js";
import { failure, verdict } from "./ladder.js";
import { listing } from "./listing.js";

const types = ["float32", "float64", "float16", "bfloat16", "int32", "int8"];
const longest = 16000; // characters of an address with a kernel

// pack and unpack store an object in a part of an address.
async function pack(object) {
	const stream = new Blob([JSON.stringify(object)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
	const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
	return btoa(Array.from(bytes, b => String.fromCharCode(b)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpack(text) {
	const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), c => c.charCodeAt(0));
	return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).json();
}

export function own(contents, remember) {
	const text = byID("own-ptx"), form = byID("own-form"), out = byID("own-result");
	let q = { ptx: "", entry: "", grid: [1, 1, 1], block: [1, 1, 1], shared: 0, args: [] };
	let kernels = [];

	const count = (label, value, min, set) => h("input", {
		type: "number", min, value, "aria-label": label, onchange: event => set(Number(event.target.value)),
	});
	const three = (name, sides) => h("div", { class: "three" }, h("span", {}, name),
		["x", "y", "z"].map((side, i) => count(`${name}, ${side}`, sides[i], 1, n => (sides[i] = n))));

	const fresh = p => p.pointer ? { kind: "in", type: "float32", rows: 32, cols: 32 } : { kind: "number", value: p.type.startsWith("f") ? "1" : "32" };

	function argument(p, i) {
		const box = h("div", { class: "argument" });
		const fill = () => {
			const a = q.args[i];
			const kind = p.pointer ? h("select", {
				"aria-label": `${p.name}, kind`, onchange: event => {
					q.args[i] = event.target.value === "number" ? { kind: "number", value: "32" } : { ...fresh(p), ...a, kind: event.target.value };
					fill();
				},
			}, [["in", "input matrix"], ["out", "output matrix"], ["number", "number"]].map(([value, name]) => h("option", { value, selected: value === a.kind }, name)))
				: h("input", { type: "text", value: a.value, "aria-label": `${p.name}, number`, onchange: event => (a.value = event.target.value.trim()) });
			box.replaceChildren(h("span", { class: "name" }, `${p.name} `, h("small", {}, `.${p.type}`)), kind);
			if (p.pointer && a.kind === "number") {
				box.append(h("span"), h("input", { type: "text", value: a.value, "aria-label": `${p.name}, number`, onchange: event => (a.value = event.target.value.trim()) }));
			} else if (p.pointer) {
				box.append(h("div", { class: "shape" }, count(`${p.name}, rows`, a.rows, 1, n => (a.rows = n)), "×",
					count(`${p.name}, columns`, a.cols, 1, n => (a.cols = n)),
					h("select", { "aria-label": `${p.name}, type`, onchange: event => (a.type = event.target.value) },
						types.map(value => h("option", { value, selected: value === a.type }, value)))));
			}
		};
		fill();
		return box;
	}

	const buttons = h("div", { class: "run" });
	const run = runner(buttons, "Run and check", async progress => {
		out.replaceChildren(h("p", { class: "note" }, "Running …"));
		byID("own-listing").replaceChildren();
		const launch = structuredClone(q); // the form can change q meanwhile
		try {
			const x = await call("own", launch, progress);
			out.replaceChildren(...[verdict(x), x.stopped && h("p", { class: "facts" }, x.stopped),
				h("p", { class: "facts" }, `${plural(x.instructions, "warp instruction")}, ${plural(x.flops, "operation")}, ` +
					`${plural(x.sectors, "sector")} of global memory, ${plural(x.wavefronts, "wavefront")} of shared memory.`),
				...findings(x, x.block), ...x.outputs.map(output)].filter(Boolean));
			listing(byID("own-listing"), x.listing)(marksOf(x));
			const z = await pack(launch);
			remember(z.length <= longest ? { z } : {});
		} catch (error) {
			out.replaceChildren(failure(error));
		}
	}, stop);

	const output = o => h("div", { class: "output" }, h("h4", {}, `${o.name}, ${o.rows}×${o.cols}${o.rows > 8 || o.cols > 8 ? ", the first 8 rows and columns" : ""}`),
		h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, o.values.map(row => h("tr", {}, row.map(v => h("td", {}, v))))))));

	function fill() {
		const k = kernels.find(k => k.name === q.entry);
		form.replaceChildren(
			h("label", { class: "field" }, h("span", {}, "Kernel"), h("select", { onchange: event => choose(event.target.value) },
				kernels.map(k => h("option", { value: k.name, selected: k.name === q.entry, disabled: Boolean(k.refused) }, k.name)))),
			three("Grid", q.grid), three("Block", q.block),
			h("label", { class: "field" }, h("span", {}, "Dynamic shared memory, bytes"), count("Dynamic shared memory, bytes", q.shared, 0, n => (q.shared = n))),
			h("fieldset", {}, h("legend", {}, plural(k.params.length, "argument")), h("div", { class: "arguments" }, k.params.map(argument))),
			h("p", { class: "note" }, "An input matrix holds 1, 2, … 9, 1, 2, … in row-major order."), buttons,
			...kernels.filter(k => k.refused).map(k => h("p", { class: "note" }, `${k.name} cannot run: ${k.refused}`)));
	}

	function choose(name) {
		q.entry = name;
		q.args = kernels.find(k => k.name === name).params.map(fresh);
		fill();
	}

	// read lists the kernels of the PTX. It keeps the launch if the kernel has as many parameters as
	// before.
	async function read() {
		q.ptx = text.value;
		try {
			kernels = (await call("kernels", q)).kernels;
		} catch (error) {
			form.replaceChildren();
			out.replaceChildren(failure(error));
			return false;
		}
		const runnable = kernels.filter(k => !k.refused);
		if (runnable.length === 0) {
			form.replaceChildren();
			out.replaceChildren(failure(new Error(kernels.map(k => `${k.name} cannot run: ${k.refused}`).join(" "))));
			return false;
		}
		out.replaceChildren();
		byID("own-listing").replaceChildren();
		const k = runnable.find(k => k.name === q.entry) ?? runnable[0];
		const kept = k.params.length === q.args.length && k.params.every((p, i) => p.pointer || q.args[i].kind === "number");
		if (k.name === q.entry && kept) fill();
		else choose(k.name);
		return true;
	}
	const open = async file => {
		text.value = await file.text();
		read();
	};
	form.addEventListener("submit", event => event.preventDefault());
	text.addEventListener("change", read);
	byID("own-file").addEventListener("change", event => event.target.files[0] && open(event.target.files[0]));
	text.addEventListener("dragover", event => {
		event.preventDefault();
		text.classList.add("over");
	});
	text.addEventListener("dragleave", () => text.classList.remove("over"));
	text.addEventListener("drop", event => {
		event.preventDefault();
		text.classList.remove("over");
		if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
	});

	return async query => {
		try {
			if (query.z) q = { ...q, ...await unpack(query.z) };
			else if (!q.ptx) q = await call("example", { rung: "tiled-16", gpu: "h200", m: 40, n: 40, k: 40 });
		} catch {
			out.replaceChildren(failure(new Error("The address is damaged: want one that this page made.")));
			return;
		}
		text.value = q.ptx;
		if (await read()) run();
	};
}
