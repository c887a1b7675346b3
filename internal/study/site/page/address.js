// The address of a part of the page with its state: #ladder?rung=mma&m=64. A value that the page
// cannot show is refused, never changed.
import { number } from "./dom.js";

// whole returns a reader of a whole number in a range.
export const whole = (min, max) => (text, name) => {
	const n = Number(text);
	if (!/^\d+$/.test(text) || n < min || n > max) throw new Error(`${name} is ${text || "empty"}: want ${number(min)} to ${number(max)}.`);
	return n;
};

// oneOf returns a reader of a text in a list.
export const oneOf = list => (text, name) => {
	if (!list.includes(text)) throw new Error(`${name} is ${text || "empty"}: want one of ${list.filter(Boolean).join(", ")}.`);
	return text;
};

// listOf returns a reader of whole numbers, separated by commas.
export const listOf = (min, max) => (text, name) => text.split(",").map(n => whole(min, max)(n, name));

// any reads any text.
export const any = text => text;

// read returns the values of an address. fields holds a reader for each name.
export function read(query, fields) {
	const values = {};
	for (const [name, text] of Object.entries(query)) {
		if (!Object.hasOwn(fields, name)) throw new Error(`${name} is no part of this address: want ${Object.keys(fields).join(", ")}.`);
		values[name] = fields[name](text, name);
	}
	return values;
}
