// The terminal of one session: xterm.js, its keys, its clipboard, and the bar and the line that belong to it.
import { Terminal } from "./vendor/xterm.mjs";
import { FitAddon } from "./vendor/addon-fit.mjs";
import { Unicode11Addon } from "./vendor/addon-unicode11.mjs";
import { WebglAddon } from "./vendor/addon-webgl.mjs";
import { chosenSize, followTheme, setAbout, setFaults, setState, startBar } from "./bar.js";
import { copySelection, shownKeys, withoutControls } from "./clipboard.js";
import { Line } from "./line.js";
import { startSelection } from "./selection.js";
import { scrollByTouch, startTouchKeys } from "./touch.js";
import { download, pickFiles, startTransfers } from "./transfer.js";

const FONT = '"Roboto Mono", ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const LEAST_FONT_SIZE = 8;
const TOUCH_FONT_SIZE = 14;
const TOUCH_LINE = 22.5; // two lines, which is what the app gives a row or a tab, are 44 pixels
const ASCENT = 1.3; // the height of a line of Roboto Mono, in parts of its size, and a little less
const LOW = 480;
const COLUMNS = 40; // the least that the app draws on: letters become smaller for it, but not on a phone
const ADVANCE = 0.602; // of Roboto Mono, in parts of its size, and a little more
const HABIT_MS = 3000; // a tab that is closed so soon after a key was perhaps closed by one: Ctrl+W in a shell
const UNSENT_MS = 10000;
const byTouch = matchMedia("(pointer: coarse)").matches;

const element = document.getElementById("terminal");
const notice = document.getElementById("notice");
const unsent = document.getElementById("unsent");
let typedAt = -Infinity;
let unsentTimer = 0;

const terminal = new Terminal({
  allowProposedApi: true, // the width tables of unicode 11 are one
  fontFamily: FONT,
  fontSize: chosenSize(),
  scrollback: 0,
  macOptionClickForcesSelection: true, // elsewhere Shift selects: the app has the mouse
  theme: { background: "#121212" },
  linkHandler: { activate: () => {} }, // what a sandbox prints does not become a link
});
const fit = new FitAddon();

function fill() {
  const fitting = Math.floor((2 * element.clientWidth) / (COLUMNS * ADVANCE)) / 2;
  const size = Math.max(byTouch ? TOUCH_FONT_SIZE : LEAST_FONT_SIZE, Math.min(chosenSize(), fitting));
  const low = byTouch && innerHeight < LOW; // the phone's keyboard is open
  document.body.classList.toggle("low", low);
  terminal.options.fontSize = size;
  terminal.options.lineHeight = byTouch && !low ? Math.max(1, TOUCH_LINE / (size * ASCENT)) : 1;
  fit.fit();
}

// Without a graphics card the browser draws WebGL with the processor, in 200 ms of it for each key's frame; the DOM
// renderer takes 10. A phone has one, and the narrower cells of WebGL give it more columns.
function hasGraphicsCard() {
  if (byTouch) return true;
  const gl = document.createElement("canvas").getContext("webgl2");
  const info = gl?.getExtension("WEBGL_debug_renderer_info");
  const renderer = info ? gl.getParameter(info.UNMASKED_RENDERER_WEBGL) : "";
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  return gl !== null && !/swiftshader|llvmpipe|softpipe|software|basic render/i.test(renderer);
}

function paintWithWebgl() {
  if (!hasGraphicsCard()) return;
  try {
    const webgl = new WebglAddon();
    webgl.onContextLoss(() => webgl.dispose()); // back to the DOM renderer
    terminal.loadAddon(webgl);
  } catch {
    // no WebGL 2 here: the DOM renderer stays
  }
}

function onMessage(kind, value) {
  if (kind === "about") setAbout(value);
  else if (kind === "faults") setFaults(value);
  else if (kind === "copy") navigator.clipboard?.writeText(value).catch(() => {});
  else if (kind === "open_url") openAddress(value.url);
  else if (kind === "deliver_file_start") download(value);
  else if (kind === "pick_files") pickFiles();
  else if (kind === "free_drag") selection.free();
}

function onReady() {
  sessionStorage.removeItem("sandbox-console.passed");
  terminal.reset();
  line.send("resize", { width: terminal.cols, height: terminal.rows });
  if (document.hasFocus()) line.send("focus");
  terminal.focus();
}

function tell(text) {
  document.getElementById("reason").textContent = text;
  notice.hidden = false;
}

function tellUnsent(text, sure) {
  const keys = shownKeys(text);
  if (!keys) return;
  unsent.textContent = `${sure ? "Not sent" : "Perhaps not sent"}: ${keys}`;
  unsent.hidden = false;
  clearTimeout(unsentTimer);
  unsentTimer = setTimeout(() => (unsent.hidden = true), UNSENT_MS);
}

function openAddress(address) {
  const url = new URL(address, location.href);
  if (url.protocol === "https:" || url.protocol === "http:") window.open(url.href, "_blank", "noopener,noreferrer");
}

const line = new Line({
  size: () => ({ columns: terminal.cols, rows: terminal.rows, touch: byTouch }),
  output: (bytes) => terminal.write(bytes),
  message: onMessage,
  ready: onReady,
  state: setState,
  tell,
  hush: () => (notice.hidden = true),
  unsent: tellUnsent,
});
const paste = (text) => terminal.paste(withoutControls(text));
const touch = startTouchKeys({ type: (text) => line.type(text), focus: () => terminal.focus(), modes: () => terminal.modes });
const selection = startSelection(element, terminal);
scrollByTouch(element, terminal, (text) => line.type(text));

// The browser keeps its own keys for full screen and its tools, and pastes; Ctrl+C copies where something is selected.
terminal.attachCustomKeyEventHandler((event) => {
  if (event.key === "F11" || event.key === "F12") return false;
  if (event.shiftKey && (event.key === "PageUp" || event.key === "PageDown")) {
    // The terminal would scroll its own lines, of which there are none: the app scrolls what it shows.
    event.preventDefault();
    if (event.type === "keydown") line.type(event.key === "PageUp" ? "\x1b[5;2~" : "\x1b[6;2~");
    return false;
  }
  if (!event.ctrlKey || event.altKey || event.metaKey) return true;
  const letter = event.key.toLowerCase();
  if (letter === "v") return false;
  if (letter !== "c" || !(event.shiftKey || terminal.hasSelection())) return true;
  if (event.shiftKey && event.type === "keydown") {
    event.preventDefault(); // the browser's tools would open
    document.execCommand("copy");
  }
  return false;
});
// A clipboard's text is never keys: without controls nothing in it can end the paste and be typed.
element.addEventListener(
  "paste",
  (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    paste(event.clipboardData?.getData("text/plain") ?? "");
  },
  true,
);
element.addEventListener("copy", (event) => copySelection(event, terminal), true);
terminal.onData((data) => line.type(touch.withCtrl(data)));
terminal.onKey(() => {
  typedAt = performance.now();
});
terminal.onBinary((data) => line.type(data));
terminal.onResize(({ cols, rows }) => line.send("resize", { width: cols, height: rows }));
document.getElementById("again").addEventListener("click", () => line.begin());
window.addEventListener("beforeunload", (event) => {
  if (line.isShown && performance.now() - typedAt < HABIT_MS) event.preventDefault();
});
window.addEventListener("focus", () => line.send("focus"));
window.addEventListener("blur", () => line.send("blur"));

if (location.hash) history.replaceState(null, "", "./"); // a link's token, not needed where one is logged in
document.body.classList.toggle("touch", byTouch);
startBar({ redraw: fill, paste, switchTheme: () => line.send("theme"), focus: () => terminal.focus() });
startTransfers(() => terminal.focus());
await document.fonts.load(`${terminal.options.fontSize}px "Roboto Mono"`);
terminal.loadAddon(fit);
terminal.loadAddon(new Unicode11Addon());
terminal.unicode.activeVersion = "11";
terminal.open(element);
paintWithWebgl();
fill();
new ResizeObserver(fill).observe(element);
setInterval(() => followTheme(terminal), 500);

// Rows as text: for screen readers' tools and tests; the terminal itself is a canvas.
window.sandboxConsole = {
  columns: () => terminal.cols,
  selected: () => terminal.getSelection(),
  rows: () => Array.from({ length: terminal.rows }, (_, row) => terminal.buffer.active.getLine(row)?.translateToString(true) ?? ""),
};
await line.begin();
