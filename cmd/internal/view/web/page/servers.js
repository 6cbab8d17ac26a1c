// The colors and signs of servers. The sign tells servers apart without colors.
import { h } from "./dom.js";

const signs = ["●", "■", "▲", "◆", "▼", "★", "✚"];

export const serverColors = 8; // in tokens.css

// serverSign returns the sign of a server by its index.
export function serverSign(index) {
  return signs[index % signs.length];
}

// serverClass returns the class with the color of a server.
export function serverClass(index) {
  return "srv-" + (index % serverColors);
}

// serverMark returns an element with the sign in its color.
export function serverMark(index) {
  return h("span", { class: "srv " + serverClass(index), "aria-hidden": "true", text: serverSign(index) });
}

// captureLetter returns the letters before the numbers of a capture's events, as the server does.
export function captureLetter(index) {
  let s = "";
  for (let i = index; i >= 0; i = Math.floor(i / 26) - 1) s = String.fromCharCode(97 + (i % 26)) + s;
  return s;
}
