// The terminal of one session: a ticket, a websocket, xterm.js, and a way back after a dropped connection.
import { Terminal } from "./vendor/xterm.mjs";
import { FitAddon } from "./vendor/addon-fit.mjs";
import { Unicode11Addon } from "./vendor/addon-unicode11.mjs";
import { WebglAddon } from "./vendor/addon-webgl.mjs";

const FONT = '"Roboto Mono", ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const FONT_SIZE = 15;
const LEAST_FONT_SIZE = 8;
const COLUMNS = 60; // the least that the app draws on: a phone held upright gets smaller letters
const ADVANCE = 0.602; // of Roboto Mono, in parts of its size, and a little more
const PIECE = 8192; // characters: as JSON well under the server's 64 KiB a message
const RETRY_FOR_MS = 30000;
const RETRY_SLOWLY_MS = 5000;
const ANSWER_MS = 10000; // a sleeping laptop or a dead tunnel closes no socket: only silence tells
const HABIT_MS = 3000; // a tab that is closed so soon after a key was perhaps closed by one: Ctrl+W in a shell
const ENDED = { 1008: "The server refused a message.", 1013: "As many sessions are open as are allowed.", 1011: "The app could not be started." };

const element = document.getElementById("terminal");
const notice = document.getElementById("notice");
let socket = null;
let lostAt = 0;
let again = 0; // the timer of the next attempt to connect
let attempt = 0; // the button may begin one while another waits for its ticket
let unanswered = false;
let typedAt = -Infinity;

const terminal = new Terminal({
  allowProposedApi: true, // the width tables of unicode 11 are one
  fontFamily: FONT,
  fontSize: FONT_SIZE,
  scrollback: 0,
  macOptionClickForcesSelection: true, // elsewhere Shift selects: the app has the mouse
  theme: { background: "#121212" },
  linkHandler: { activate: () => {} }, // what a sandbox prints does not become a link
});
const fit = new FitAddon();

function fill() {
  const fitting = Math.floor((2 * element.clientWidth) / (COLUMNS * ADVANCE)) / 2;
  terminal.options.fontSize = Math.max(LEAST_FONT_SIZE, Math.min(FONT_SIZE, fitting));
  fit.fit();
}

function paintWithWebgl() {
  try {
    const webgl = new WebglAddon();
    webgl.onContextLoss(() => webgl.dispose()); // back to the DOM renderer
    terminal.loadAddon(webgl);
  } catch {
    // no WebGL 2 here: the DOM renderer stays
  }
}

function send(...message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function sendTyped(text) {
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + PIECE, text.length);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end -= 1; // keep a surrogate pair together
    send("stdin", text.slice(at, end));
    at = end;
  }
}

async function fetchTicket() {
  const answer = await fetch("ticket", {
    method: "POST",
    signal: AbortSignal.timeout(ANSWER_MS),
    headers: { "Content-Type": "application/json", "X-Sandbox-Console": localStorage.getItem("sandbox-console.key") ?? "" },
    body: JSON.stringify({ columns: terminal.cols, rows: terminal.rows, view: sessionStorage.getItem("sandbox-console.view") }),
  });
  if (answer.status === 401) location.replace("login");
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { final: true });
  const { ticket, gone } = await answer.json();
  if (!gone) return ticket;
  sessionStorage.removeItem("sandbox-console.view");
  throw Object.assign(new Error(`The session that was here is gone: ${gone}. "Open again" begins a new one.`), { final: true });
}

async function connect() {
  clearTimeout(again);
  const mine = ++attempt;
  notice.hidden = true;
  let ticket;
  try {
    ticket = await fetchTicket();
  } catch (error) {
    if (mine === attempt) error.final ? tell(error.message) : retry();
    return;
  }
  if (mine !== attempt) return;
  const address = new URL("ws", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  const opened = new WebSocket(address, ["sandbox-console.v1", `ticket.${ticket}`]);
  opened.binaryType = "arraybuffer";
  opened.onmessage = (event) => opened === socket && onMessage(event);
  opened.onclose = (event) => opened === socket && onClose(event);
  socket = opened;
  unanswered = false;
}

function askForAnswer() {
  if (socket === null) return;
  if (!unanswered) {
    unanswered = true;
    return send("ping", "");
  }
  const silent = socket;
  socket = null;
  silent.close();
  retry();
}

function onMessage({ data }) {
  unanswered = false; // whatever comes is a sign of life, and a ping's answer no more than that
  if (typeof data !== "string") return terminal.write(new Uint8Array(data));
  const [kind, value] = JSON.parse(data);
  if (kind === "ready") onReady(value);
  else if (kind === "copy") navigator.clipboard?.writeText(value).catch(() => {});
  else if (kind === "open_url") openAddress(value.url);
  else if (kind === "deliver_file_start") download(value);
}

function onReady(view) {
  lostAt = 0;
  sessionStorage.setItem("sandbox-console.view", view);
  sessionStorage.removeItem("sandbox-console.passed");
  terminal.reset();
  send("resize", { width: terminal.cols, height: terminal.rows });
  if (document.hasFocus()) send("focus");
  terminal.focus();
}

function onClose({ code, reason }) {
  socket = null;
  if (code === 4001) tell("This session was opened in another tab.");
  else if (code >= 4000 || code in ENDED) {
    sessionStorage.removeItem("sandbox-console.view");
    tell(reason ? `Session over: ${reason}.` : (ENDED[code] ?? "The session has ended."));
  } else retry();
}

function retry() {
  lostAt ||= performance.now();
  const long = performance.now() - lostAt > RETRY_FOR_MS;
  tell(long ? "The server does not answer. Does sandbox-console serve still run? Trying again…" : "Connection lost. Trying again…");
  again = setTimeout(connect, long ? RETRY_SLOWLY_MS : 500);
}

function tell(text) {
  document.getElementById("reason").textContent = text;
  notice.hidden = false;
}

function openAddress(address) {
  const url = new URL(address, location.href);
  if (url.protocol === "https:" || url.protocol === "http:") window.open(url.href, "_blank", "noopener,noreferrer");
}

function download(key) {
  const link = document.createElement("a");
  link.href = `download/${encodeURIComponent(key)}`;
  link.download = "";
  link.click();
}

// The browser keeps its own keys for full screen and its tools, and pastes; Ctrl+C copies where something is selected.
terminal.attachCustomKeyEventHandler((event) => {
  if (event.key === "F11" || event.key === "F12") return false;
  if (event.shiftKey && (event.key === "PageUp" || event.key === "PageDown")) {
    // The terminal would scroll its own lines, of which there are none: the app scrolls what it shows.
    event.preventDefault();
    if (event.type === "keydown") sendTyped(event.key === "PageUp" ? "\x1b[5;2~" : "\x1b[6;2~");
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
    const text = event.clipboardData?.getData("text/plain") ?? "";
    terminal.paste(text.replace(/(?:\x1b\[|\x9b)20[01]~/g, "").replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g, ""));
  },
  true,
);
terminal.onData(sendTyped);
terminal.onKey(() => {
  typedAt = performance.now();
});
terminal.onBinary(sendTyped);
terminal.onResize(({ cols, rows }) => send("resize", { width: cols, height: rows }));
document.getElementById("again").addEventListener("click", () => {
  lostAt = 0;
  connect();
});
window.addEventListener("beforeunload", (event) => {
  if (socket && performance.now() - typedAt < HABIT_MS) event.preventDefault();
});
window.addEventListener("online", () => socket === null && !notice.hidden && lostAt && connect());
window.addEventListener("focus", () => send("focus"));
window.addEventListener("blur", () => send("blur"));

if (location.hash) history.replaceState(null, "", "./"); // a link's token, not needed where one is logged in
await document.fonts.load(`${FONT_SIZE}px "Roboto Mono"`);
terminal.loadAddon(fit);
terminal.loadAddon(new Unicode11Addon());
terminal.unicode.activeVersion = "11";
terminal.open(element);
paintWithWebgl();
fill();
new ResizeObserver(fill).observe(element);

// Rows as text: for screen readers' tools and tests; the terminal itself is a canvas.
window.sandboxConsole = {
  rows: () => Array.from({ length: terminal.rows }, (_, row) => terminal.buffer.active.getLine(row)?.translateToString(true) ?? ""),
};
setInterval(askForAnswer, ANSWER_MS);
await connect();
