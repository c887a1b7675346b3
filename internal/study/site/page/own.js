// The reader's own PTX with all checkers.
import { call, stop } from "./engine.js";
import { any, read } from "./address.js";
import { byID, h, numbered, plural, runner } from "./dom.js";
import { findings, marksOf } from "./break.js";
import { failure, verdict } from "./ladder.js";
import { listing } from "./listing.js";

const kinds = [
	["in", "1, 2, … 9"], ["file", "file (.npy)"], ["out", "output"], ["update", "1, 2, … 9 and output"],
	["zeros", "zeros and output"], ["inout", "file and output"], ["number", "number"],
];
const longest = 16000; // characters of an address with a kernel

// base64 returns the contents of a file.
const base64 = file => new Promise((resolve, reject) => {
	const reader = new FileReader();
	reader.onload = () => resolve(reader.result.split(",")[1] ?? "");
	reader.onerror = () => reject(reader.error);
	reader.readAsDataURL(file);
});

// onDrop lets the reader drop a file on an element.
function onDrop(element, opened) {
	element.addEventListener("dragover", event => {
		event.preventDefault();
		element.classList.add("over");
	});
	element.addEventListener("dragleave", () => element.classList.remove("over"));
	element.addEventListener("drop", event => {
		event.preventDefault();
		element.classList.remove("over");
		if (event.dataTransfer.files[0]) opened(event.dataTransfer.files[0]);
	});
}

// fileButton returns a button that opens a file.
const fileButton = (label, accept, name, opened) => h("label", { class: "file-button" }, label,
	h("input", { type: "file", accept, "aria-label": name, onchange: event => event.target.files[0] && opened(event.target.files[0]) }));

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

// The fields of a launch in an address, each with a check of its form. Running it checks the numbers.
const counts = v => Array.isArray(v) && v.length === 3 && v.every(Number.isInteger);
const argument = a => [...kinds.map(([kind]) => kind), "unused"].includes(a?.kind);
const fields = {
	ptx: v => typeof v === "string", entry: v => typeof v === "string", grid: counts, block: counts, shared: Number.isInteger,
	args: v => Array.isArray(v) && v.every(argument),
};
const isLaunch = object => Object.keys(object).every(name => Object.hasOwn(fields, name)) &&
	Object.entries(fields).every(([name, valid]) => valid(object[name]));

export function own(contents, remember) {
	const text = byID("own-ptx"), form = byID("own-form"), out = byID("own-result");
	let q = { ptx: "", entry: "", grid: [1, 1, 1], block: [1, 1, 1], shared: 0, args: [] };
	let kernels = [];

	const count = (label, value, min, set) => h("input", {
		type: "number", min, value, "aria-label": label, onchange: event => set(Number(event.target.value)),
	});
	const three = (name, sides) => h("div", { class: "three" }, h("span", {}, name),
		["x", "y", "z"].map((side, i) => count(`${name}, ${side}`, sides[i], 1, n => (sides[i] = n))));

	// opening returns a function that opens a file, and shows the error of a file that cannot be read.
	const opening = open => file => open(file).catch(error => out.replaceChildren(failure(new Error(`${file.name}: ${error.message}`))));

	// argument returns the fields of a parameter.
	function argument(p, i) {
		const box = h("div", { class: "argument" });
		const open = opening(async file => {
			q.args[i] = { ...q.args[i], kind: q.args[i].kind === "inout" ? "inout" : "file", file: file.name, data: await base64(file) };
			fill();
		});
		const shape = a => h("div", { class: "shape" }, count(`${p.name}, rows`, a.rows, 1, n => (a.rows = n)), "×",
			h("input", {
				type: "number", min: 1, value: a.cols || "", placeholder: "1-D", "aria-label": `${p.name}, columns (empty for an array of one dimension)`,
				onchange: event => (a.cols = Number(event.target.value)),
			}),
			h("select", { "aria-label": `${p.name}, type`, onchange: event => (a.type = event.target.value) },
				contents.types.map(value => h("option", { value, selected: value === a.type }, value))));
		const fill = () => {
			const a = q.args[i];
			const value = () => h("input", { type: "text", value: a.value, "aria-label": `${p.name}, number`, onchange: event => (a.value = event.target.value.trim()) });
			const kind = p.pointer ? h("select", {
				"aria-label": `${p.name}, kind`, onchange: event => {
					const kind = event.target.value;
					q.args[i] = kind === "number" ? { kind, value: "32" } : { type: "float32", rows: 32, cols: 32, ...p.arg, ...a, kind };
					fill();
				},
			}, kinds.filter(([value]) => value !== "number" || !p.array).map(([value, name]) => h("option", { value, selected: value === a.kind }, name))) : value();
			box.replaceChildren(h("span", { class: "name" }, `${p.name} `, h("small", {}, p.type)), kind);
			if (!p.pointer) return;
			if (a.kind === "number") box.append(h("span"), value());
			else if (a.kind === "file" || a.kind === "inout") {
				box.append(h("div", { class: "shape npy" }, fileButton("Choose", ".npy", `${p.name}, file`, open), h("span", { class: a.data ? "" : "missing" }, a.file ? `${a.file}${a.data ? "" : ": choose it again"}` : "or drop it here")));
			} else box.append(shape(a));
		};
		if (p.pointer) onDrop(box, open);
		fill();
		return box;
	}

	const buttons = h("div", { class: "run" });
	const run = runner(buttons, "Run and check", async progress => {
		discard();
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
			for (const a of launch.args) delete a.data; // files are too large for an address
			const z = await pack(launch);
			remember(z.length <= longest ? { z } : {});
		} catch (error) {
			out.replaceChildren(failure(error));
		}
	}, stop);

	const output = o => h("div", { class: "output" }, h("p", { class: "title" }, `${o.name}: ${o.shape.join("×")} of type ${o.type}`,
		Math.max(...o.shape) > 8 || o.shape.length !== 2 ? h("small", {}, o.shape.length === 2 ? "the first 8 rows and columns" : "the first elements") : "",
		o.unwritten > 0 && h("small", {}, `${plural(o.unwritten, "element")} not written`)),
	h("div", { class: "scroll" }, h("table", { "aria-label": o.name }, h("tbody", {}, (o.values ?? []).map(row => h("tr", {}, row.map(v => h("td", {}, v || "–"))))))),
	o.npy ? download(o) : h("p", { class: "note" }, `NumPy has no type ${o.type}, so there is no file.`));

	// download returns a link to the .npy file of an output.
	const download = o => h("a", {
		class: "download", download: `${o.name}.npy`,
		href: URL.createObjectURL(new Blob([Uint8Array.from(atob(o.npy), c => c.charCodeAt(0))], { type: "application/octet-stream" })),
	}, `Download ${o.name}.npy`);
	const discard = () => out.querySelectorAll(".download").forEach(a => URL.revokeObjectURL(a.href));

	function fill() {
		const k = kernels.find(k => k.name === q.entry);
		const used = k.params.flatMap((p, i) => q.args[i].kind === "unused" ? [] : argument(p, i));
		const unused = k.params.filter((p, i) => q.args[i].kind === "unused").map(p => p.name);
		form.replaceChildren(...[
			h("label", { class: "field" }, h("span", {}, "Kernel"), h("select", { onchange: event => choose(event.target.value) },
				kernels.map(k => h("option", { value: k.name, selected: k.name === q.entry, disabled: Boolean(k.refused) }, k.title)))),
			three("Grid", q.grid), three("Block", q.block),
			h("label", { class: "field" }, h("span", {}, "Dynamic shared memory, bytes"), count("Dynamic shared memory, bytes", q.shared, 0, n => (q.shared = n))),
			k.shared > 0 && h("p", { class: "note" }, "The PTX does not tell the size of the dynamic shared memory. Triton has it in ", h("code", {}, "kernel.metadata.shared"), "."),
			h("fieldset", {}, h("legend", {}, plural(used.length, "argument")), h("div", { class: "arguments" }, used)),
			unused.length > 0 && h("p", { class: "note" }, `The kernel does not read ${unused.join(", ")}.`),
			h("p", { class: "note" }, "1, 2, … 9 begins anew after 9, row by row. Drop an .npy file on an argument to use it."), buttons,
			...kernels.filter(k => k.refused).map(k => h("p", { class: "note" }, `${k.title} cannot run: ${k.refused}`)),
		].filter(Boolean));
	}

	// choose selects a kernel with the launch to begin with.
	function choose(name) {
		const { params, grid, block, shared } = kernels.find(k => k.name === name);
		q = structuredClone({ ptx: q.ptx, entry: name, grid, block, shared, args: params.map(p => p.arg) });
		fill();
	}

	// list lists the kernels of the PTX. It keeps the launch if the kernel has as many parameters as
	// before. Otherwise it begins with another, or refuses the launch if that is fixed.
	async function list(fixed) {
		q.ptx = text.value;
		text.dispatchEvent(new Event("input"));
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
			out.replaceChildren(failure(new Error(kernels.map(k => `${k.title} cannot run: ${k.refused}`).join(" "))));
			return false;
		}
		out.replaceChildren();
		byID("own-listing").replaceChildren();
		const k = runnable.find(k => k.name === q.entry) ?? runnable[0];
		const kept = k.params.length === q.args.length &&
			k.params.every((p, i) => q.args[i].kind === "unused" ? p.arg.kind === "unused" : p.pointer || q.args[i].kind === "number");
		if (k.name === q.entry && kept) fill();
		else if (fixed) {
			form.replaceChildren();
			out.replaceChildren(failure(new Error("The address has a kernel or arguments that its PTX does not have.")));
			return false;
		} else {
			choose(k.name);
			text.scrollTop = 0;
		}
		return true;
	}
	const open = opening(async file => {
		if (/\.np[yz]$/.test(file.name)) {
			out.replaceChildren(failure(new Error(`${file.name} holds numbers: want PTX here. Drop the file on an argument of the kernel.`)));
			return;
		}
		text.value = await file.text();
		await list();
	});
	form.addEventListener("submit", event => event.preventDefault());
	// Pasted text was read already. Reading it again when the text loses the focus would replace the
	// form, and with it the button that is being clicked.
	text.addEventListener("change", () => { if (text.value !== q.ptx) list(); });
	text.addEventListener("paste", () => setTimeout(list)); // after the text has changed
	const place = h("span");
	text.before(place);
	place.replaceWith(numbered(text));
	byID("own-file").replaceWith(fileButton("Open a file", ".ptx,.txt", "Open a file with PTX", open));
	onDrop(text, open);

	return query => {
		read(query, { z: any });
		show(query);
	};

	async function show(query) {
		try {
			if (query.z) {
				const launch = await unpack(query.z);
				if (!isLaunch(launch)) throw new Error("no launch");
				q = launch;
			} else if (!q.ptx) q = await call("example", { rung: "tiled-16", gpu: "h200", m: 40, n: 40, k: 40 });
		} catch {
			out.replaceChildren(failure(new Error("The address is damaged: want one that this page made.")));
			return;
		}
		text.value = q.ptx;
		if (await list(Boolean(query.z))) run();
	}
}
