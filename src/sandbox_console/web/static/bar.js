// The bar above the terminal: the line's state, the user, the session's age, and what one can do with the page itself.
import { since } from "./api.js";

const byId = (id) => document.getElementById(id);
const TITLE = "sandbox-console";
const STATES = {
  connecting: "connecting",
  open: "connected",
  silent: "no answer: keys are not sent",
  lost: "no connection",
  over: "session over",
};
const SIZES = { least: 8, usual: 15, most: 32 };

let state = "connecting";
let faults = 0;
let began = 0;

export function setState(now) {
  state = now;
  byId("line").dataset.state = now;
  byId("line").textContent = STATES[now];
  drawTitle();
}

export function setAbout({ user, seconds }) {
  byId("user").textContent = user.replace(/^browser:/, "");
  began = performance.now() - seconds * 1000;
  drawAge();
}

export function setFaults(count) {
  faults = count;
  drawTitle();
}

function drawTitle() {
  const dead = state === "silent" || state === "lost";
  const words = dead ? STATES.lost : faults ? `${faults} ${faults === 1 ? "fault" : "faults"}` : "";
  document.title = words ? `${words} · ${TITLE}` : TITLE;
  const icon = words ? "static/logo-fault.svg" : "static/logo.svg";
  if (!byId("icon").href.endsWith(icon)) byId("icon").href = icon;
}

function drawAge() {
  byId("age").textContent = began ? since((performance.now() - began) / 1000) : "";
}

// The size of letters that was chosen here; without a choice, 15 pixels.
export const chosenSize = () => Number(localStorage.getItem("sandbox-console.size")) || SIZES.usual;

function changeSize(by, redraw) {
  const size = Math.max(SIZES.least, Math.min(SIZES.most, chosenSize() + by));
  localStorage.setItem("sandbox-console.size", String(size));
  redraw();
}

function switchFullScreen() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen?.().catch(() => {});
}

function askForPaste(paste, focus) {
  byId("pasted").value = "";
  byId("pasting").returnValue = "";
  byId("pasting").showModal();
  const closed = () => {
    if (byId("pasting").returnValue) paste(byId("pasted").value);
    focus();
  };
  byId("pasting").addEventListener("close", closed, { once: true });
}

// The bar takes the colours of the app's first row, whatever theme it has.
export function followTheme(terminal) {
  const cell = terminal.buffer.active.getLine(0)?.getCell(0);
  if (!cell?.isBgRGB()) return;
  const colour = cell.getBgColor();
  const bright = [16, 8, 0].reduce((sum, shift) => sum + ((colour >> shift) & 255), 0) > 382;
  byId("bar").style.setProperty("--bar", `#${colour.toString(16).padStart(6, "0")}`);
  document.body.classList.toggle("bright", bright);
}

export function startBar({ redraw, paste, switchTheme, focus }) {
  const on = (id, action) =>
    byId(id).addEventListener("click", () => {
      action();
      focus();
    });
  on("smaller", () => changeSize(-1, redraw));
  on("larger", () => changeSize(1, redraw));
  on("theme", switchTheme);
  on("full", switchFullScreen);
  byId("paste").addEventListener("click", () => askForPaste(paste, focus));
  setInterval(drawAge, 1000);
}
