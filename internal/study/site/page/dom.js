// Small helpers for the document.

const svgNames = new Set(["svg", "g", "path", "line", "rect", "circle", "text"]);

// h returns an element with properties and children. Properties that begin with "on" are listeners,
// "class" and names with a dash are attributes.
export function h(name, props = {}, ...children) {
	const svg = svgNames.has(name);
	const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
	for (const [key, value] of Object.entries(props)) {
		if (value === undefined || value === false) continue;
		if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
		else if (svg || key === "class" || key === "for" || key.includes("-")) e.setAttribute(key, value);
		else e[key] = value;
	}
	e.append(...children.flat(Infinity).filter(c => c !== undefined && c !== null && c !== false));
	return e;
}

export const byID = id => document.getElementById(id);

// number formats n with thousands separators and at most the given fraction digits.
export function number(n, digits = 0) {
	return n.toLocaleString("en", { maximumFractionDigits: digits });
}

// significant formats n with three significant digits.
export function significant(n) {
	return n >= 1000 ? number(n) : n.toLocaleString("en", { maximumSignificantDigits: 3 });
}

// si formats n with an SI prefix: 4.19 T.
export function si(n) {
	const prefixes = ["", "k", "M", "G", "T", "P"];
	let i = 0;
	for (; n >= 999.5 && i < prefixes.length - 1; i++) n /= 1000;
	return significant(n) + " " + prefixes[i];
}

// threadName names a thread as the messages of the checkers do.
export const threadName = (x, y, z) => `thread (${x},${y},${z})`;

export function plural(n, noun) {
	return `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
}

// sliders returns a slider with a number for each size, and calls changed with {m, n, k}.
export function sliders(parent, max, sizes, changed) {
	const inputs = {};
	for (const side of ["m", "n", "k"]) {
		const id = `${parent.id}-${side}`;
		const range = h("input", { type: "range", min: 1, max, value: sizes[side], id, name: side });
		const exact = h("input", {
			type: "number", min: 1, max, value: sizes[side], "aria-label": `${side.toUpperCase()}, exact`, class: "exact",
		});
		const read = from => {
			const n = Math.round(Number(from.value));
			if (!(n >= 1 && n <= max)) {
				from.reportValidity();
				return;
			}
			sizes[side] = n;
			range.value = exact.value = n;
			changed(sizes);
		};
		range.addEventListener("input", () => (exact.value = range.value));
		range.addEventListener("change", () => read(range));
		exact.addEventListener("change", () => read(exact));
		inputs[side] = n => (range.value = exact.value = n);
		parent.append(h("div", { class: "slider" }, h("label", { for: id }, side.toUpperCase()), range, exact));
	}
	return next => {
		Object.assign(sizes, next);
		for (const side in inputs) inputs[side](sizes[side]);
	};
}

// numbered returns a text field with the numbers of its lines.
export function numbered(text) {
	const numbers = h("div", { class: "numbers", "aria-hidden": "true" });
	const count = () => (numbers.textContent = Array.from({ length: text.value.split("\n").length }, (_, i) => i + 1).join("\n"));
	text.addEventListener("input", count);
	text.addEventListener("scroll", () => (numbers.scrollTop = text.scrollTop));
	count();
	return h("div", { class: "numbered" }, numbers, text);
}

// announce makes a screen reader say a sentence.
export function announce(text) {
	byID("said").textContent = text;
}

// runner fills an element with a button, a progress bar and a stop button. start returns a promise
// and gets a function that takes the progress. Pressing the button while it runs does nothing.
export function runner(parent, label, start, stop) {
	const button = h("button", { type: "button", class: "primary" }, label);
	const bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Blocks" });
	const end = h("button", { type: "button", hidden: true, onclick: stop }, "Stop");
	parent.replaceChildren(button, end, bar);
	let runs = 0;
	const run = async () => {
		const mine = ++runs;
		const busy = on => {
			button.disabled = on;
			bar.hidden = end.hidden = !on;
			bar.value = 0;
		};
		busy(true);
		try {
			await start((done, all) => (bar.value = done / all));
		} finally {
			if (mine === runs) busy(false);
		}
	};
	button.addEventListener("click", run);
	return run;
}
