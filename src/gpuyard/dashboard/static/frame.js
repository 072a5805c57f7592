// What every page has: light and dark, remembered; dates in the viewer's zone; the stream of changes.

import { duration } from "/static/drawing.js";

const root = document.documentElement;

/** What the page was made with. */
export const pageData = JSON.parse(document.getElementById("data").textContent);

function setTheme(theme) {
  if (theme) root.dataset.theme = theme;
  document.dispatchEvent(new Event("themechange"));
}

setTheme(localStorage.getItem("gpuyard-theme"));
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("gpuyard-theme", dark ? "light" : "dark");
  setTheme(dark ? "light" : "dark");
});

/** A moment (Unix seconds) on the viewer's clock. */
export function momentHere(seconds, precise = false) {
  const style = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", ...(precise ? { second: "2-digit" } : {}) };
  return new Date(seconds * 1000).toLocaleString(undefined, style);
}

// A page without a script of its own is ready as it is.
if (document.querySelectorAll("script[type=module]").length === 1) root.dataset.drawn = "all";

const connection = document.getElementById("connection");

/**
 * Follow a stream of server-sent events. Handlers get the data of events by name; "trouble" and a lost connection
 * are told at the top of the page. A page that nobody sees follows nothing: browsers hold few connections open.
 */
export function follow(address, handlers) {
  let stream = null, last = null;
  const say = (text) => {
    connection.hidden = !text;
    connection.textContent = text;
  };
  const open = () => {
    if (stream) return;
    stream = new EventSource(address);
    stream.onerror = () => say(last ? `Not connected to the server: this is how it stood at ${momentHere(last, true)}.` : "Not connected to the server.");
    stream.addEventListener("trouble", (event) => {
      const told = JSON.parse(event.data);
      say(told ? `${told}. This page keeps what it last knew.` : "");
    });
    for (const [name, take] of Object.entries(handlers)) {
      stream.addEventListener(name, (event) => {
        last = Date.now() / 1000;
        take(JSON.parse(event.data));
      });
    }
  };
  const close = () => {
    stream?.close();
    stream = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", () => { if (!document.hidden) open(); });
  if (!document.hidden) open();
}

/** Ask the server to change something; the answer, or an error with what it said. */
export async function send(address, document_ = {}) {
  const answer = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(document_) });
  const told = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  if (!answer.ok) throw new Error(told.error);
  return told;
}

/** Get a JSON document; an error has what the server said. */
export async function get(address) {
  const answer = await fetch(address);
  const told = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  if (!answer.ok) throw new Error(told.error);
  return told;
}

/** How long ago a moment (Unix seconds) was. */
export function agoText(seconds) {
  const age = Math.max(0, Date.now() / 1000 - seconds);
  return age < 2 ? "just now" : `${duration(age < 60 ? Math.round(age) : age)} ago`;
}
