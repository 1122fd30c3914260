import { cellAt } from "./selection.js";

// A row of keys for phones, whose keyboards have no Esc, Tab, Ctrl or arrows.
const KEYS = { Escape: "\x1b", Tab: "\t", Enter: "\r" };
const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D" };

// Ctrl counts for the next key. `modes()` are the terminal's, for which arrows have two codes.
export function startTouchKeys({ type, focus, modes }) {
  const row = document.getElementById("touch");
  const ctrl = row.querySelector('[data-key="Control"]');
  let held = false;

  function hold(on) {
    held = on;
    ctrl.setAttribute("aria-pressed", String(on));
  }

  function codeOf(key) {
    if (!(key in ARROWS)) return KEYS[key];
    if (held) return `\x1b[1;5${ARROWS[key]}`;
    return `${modes().applicationCursorKeysMode ? "\x1bO" : "\x1b["}${ARROWS[key]}`;
  }

  row.addEventListener("pointerdown", (event) => event.preventDefault()); // the keyboard stays as it is
  row.addEventListener("click", ({ target }) => {
    const key = target.closest("button")?.dataset.key;
    if (!key) return;
    if (key === "Control") return hold(!held);
    type(codeOf(key));
    hold(false);
    if (document.activeElement?.tagName !== "TEXTAREA") focus();
  });

  function withCtrl(data) {
    if (!held || !/^[a-z@[\\\]^_ ]$/i.test(data)) return data;
    hold(false);
    return String.fromCharCode(data.toUpperCase().charCodeAt(0) & 31);
  }

  return { withCtrl };
}

const SLOP = 10; // pixels that a tap may move

// A finger that moves is a wheel, where the app has the mouse. A tap stays a click of the browser's.
export function scrollByTouch(element, terminal, type) {
  let last = null;
  element.addEventListener("touchstart", ({ touches }) => (last = touches.length === 1 ? touches[0].clientY : null), { passive: true });
  element.addEventListener("touchend", () => (last = null), { passive: true });
  element.addEventListener(
    "touchmove",
    ({ touches }) => {
      if (last === null || touches.length !== 1) return;
      const { column, row, height } = cellAt(element, terminal, touches[0]);
      const step = Math.max(SLOP, height);
      for (; Math.abs(touches[0].clientY - last) >= step; last += Math.sign(touches[0].clientY - last) * step) {
        const button = touches[0].clientY > last ? 64 : 65;
        if (terminal.modes.mouseTrackingMode !== "none") type(`\x1b[<${button};${column + 1};${row + 1}M`);
      }
    },
    { passive: true },
  );
}
