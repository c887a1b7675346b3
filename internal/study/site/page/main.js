// The parts of the page, and the address that selects one with its state: #ladder?rung=mma&m=64.
import { call } from "./engine.js";
import { oneOf } from "./address.js";
import { byID, h } from "./dom.js";
import { ladder } from "./ladder.js";
import { watch } from "./watch.js";
import { breaking } from "./break.js";
import { occupancy } from "./occupancy.js";
import { own } from "./own.js";

const hidden = "view"; // the target of the link that skips the navigation
const makers = { ladder, watch, break: breaking, own, occupancy };
const parts = {};
let shown; // the address whose state the page shows

function address() {
	const [name, query] = location.hash.slice(1).split("?");
	return [name || "ladder", Object.fromEntries(new URLSearchParams(query))];
}

function show(contents) {
	const [name, query] = address();
	if (name === hidden && shown !== undefined) return;
	shown = location.hash;
	const select = id => document.querySelectorAll("main > section").forEach(section => (section.hidden = section.id !== id));
	select(name);
	document.body.dataset.part = name;
	for (const a of document.querySelectorAll("nav a")) {
		if (a.hash === "#" + name) a.setAttribute("aria-current", "page");
		else a.removeAttribute("aria-current");
	}
	const remember = state => {
		if (location.hash !== shown) return; // a new address, whose event is on its way
		history.replaceState(null, "", `#${name}?${new URLSearchParams(state)}`);
		shown = location.hash;
	};
	byID("refused").hidden = true;
	try {
		oneOf(Object.keys(makers))(name, "The part of the page");
		parts[name] ??= makers[name](contents, remember);
		parts[name](query);
	} catch (error) {
		select("");
		byID("refused").hidden = false;
		byID("refused").replaceChildren(h("strong", {}, "The page cannot show this address. "), `${error.message} `,
			h("a", { href: `#${Object.hasOwn(makers, name) ? name : "ladder"}` }, "Show the page without it"));
	}
}

try {
	const contents = await call("contents");
	byID("loading").remove();
	addEventListener("hashchange", () => show(contents));
	show(contents);
} catch (error) {
	byID("loading").replaceChildren(
		h("strong", {}, "The emulator cannot be loaded. "), `${error.message}. The page needs a browser of 2023 or later.`);
}
