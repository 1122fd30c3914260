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
