// Go and PTX side by side, with matching lines.
import { h } from "./dom.js";

// kinds of instructions. Each has one color in all parts of the page.
export const kinds = [
	["global", /\b(ld|st)\.global|cp\.async|cp\.reduce/, "global memory"],
	["shared", /\b(ld|st)\.shared|ldmatrix|stmatrix/, "shared memory"],
	["sync", /\bbar(rier)?\.|mbarrier|fence|wait_group|commit_group/, "barriers and waits"],
	["math", /\bfma\.|mma/, "multiply-adds"],
];

// kindOf returns the kind of an instruction, and "" for directives, comments and labels.
const kindOf = text => /^\t[^./].*;$/.test(text) ? kinds.find(([, pattern]) => pattern.test(text))?.[0] ?? "" : "";

export const legend = () => h("p", { class: "legend", "aria-hidden": "true" },
	kinds.map(([kind, , name]) => h("span", { class: "key " + kind }, name)));

// code returns a line of Go or PTX with its comment in a lighter color.
function code(text) {
	const at = text.search(/(^|\s)\/\//);
	return at < 0 ? [text || " "] : [text.slice(0, at), h("span", { class: "comment" }, text.slice(at))];
}

function pane(name, lines) {
	const list = h("div", { class: "code", tabIndex: 0, role: "listbox", "aria-label": name }, lines);
	return h("div", { class: "pane" }, h("p", { class: "title" }, name), list);
}

// listing fills parent and returns a function that marks lines of PTX: [{line, text}], and scrolls
// to the first. Without marks it scrolls to the first multiply-add.
export function listing(parent, data) {
	const go = [], ptx = [], byKey = new Map();
	const own = line => line.file && line.line ? `${line.file}:${line.line}` : "";
	const add = (list, element, key) => {
		element.id = `${parent.id}-${list === go ? "go" : "ptx"}-${list.length}`;
		if (key) {
			element.dataset.key = key;
			byKey.set(key, [...byKey.get(key) ?? [], element]);
		}
		list.push(element);
		return element;
	};
	const line = (number, text, kind = "") => h("div", { class: "line " + kind, role: "option", "aria-selected": "false" },
		h("span", { class: "number" }, String(number)), h("span", { class: "text" }, code(text.replaceAll("\t", "  "))));
	data.ptx.forEach((l, i) => add(ptx, line(i + 1, l.text, kindOf(l.text)), own(l)));
	const written = new Set(byKey.keys());
	const parts = data.go.flatMap(c => [
		h("div", { class: "file" }, c.file),
		...c.lines.map((text, i) => {
			const key = `${c.file}:${c.first + i}`;
			return add(go, line(c.first + i, text), written.has(key) ? key : "");
		}),
	]);
	const panes = go.length ? [pane("Go", parts), pane("PTX", ptx)] : [pane("PTX", ptx)];
	parent.replaceChildren(legend(), h("div", { class: "listing" }, panes));
	const boxes = panes.map(p => p.querySelector(".code"));

	const reveal = (box, element) => box.scrollTo({ top: element.offsetTop - box.clientHeight / 3 });
	let chosen = [];
	const choose = (element, from) => {
		for (const e of chosen) {
			e.classList.remove("chosen");
			e.setAttribute("aria-selected", "false");
		}
		chosen = element.dataset.key ? byKey.get(element.dataset.key) : [element];
		for (const e of chosen) {
			e.classList.add("chosen");
			e.setAttribute("aria-selected", "true");
		}
		for (const box of boxes) {
			const first = box.contains(element) ? element : chosen.find(e => box.contains(e));
			if (first) box.setAttribute("aria-activedescendant", first.id);
			if (first && box !== from) reveal(box, first);
		}
	};
	for (const box of boxes) {
		const lines = box === boxes.at(-1) ? ptx : go;
		box.addEventListener("click", event => {
			const element = event.target.closest(".line");
			if (element) choose(element, box);
		});
		box.addEventListener("keydown", event => {
			const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
			if (!by) return;
			event.preventDefault();
			const at = lines.findIndex(e => e.id === box.getAttribute("aria-activedescendant"));
			const next = lines[Math.min(Math.max(at + by, 0), lines.length - 1)];
			choose(next, box);
			next.scrollIntoView({ block: "nearest" });
		});
	}

	return (marks = []) => {
		if (marks.length === 0) choose(ptx.find(e => e.classList.contains("math")) ?? ptx[0], null);
		marks.forEach(({ line: n, text }, i) => {
			const at = ptx[n - 1];
			if (!at) return;
			at.classList.add("marked");
			at.append(h("span", { class: "mark" }, text));
			for (const e of at.dataset.key ? byKey.get(at.dataset.key) : []) if (go.includes(e)) e.classList.add("marked");
			if (i === 0) choose(at, null);
		});
	};
}
