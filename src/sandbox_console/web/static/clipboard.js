// What goes into the clipboard and what comes out of it.
const SHOWN = 200;

// Without controls nothing in a pasted text can end the paste and be typed.
export function withoutControls(text) {
  return text.replace(/(?:\x1b\[|\x9b)20[01]~/g, "").replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g, "");
}

// Lines are copied without the spaces that fill them up. An empty selection leaves the clipboard as it is.
export function copySelection(event, terminal) {
  event.preventDefault();
  event.stopImmediatePropagation();
  const text = terminal
    .getSelection()
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n");
  if (text.trim()) event.clipboardData.setData("text/plain", text);
}

// Typed text as people read it; empty for reports of the mouse and the like, which nobody typed.
export function shownKeys(text) {
  const keys = text
    .replace(/\x1b\[<[\d;]+[Mm]/g, "")
    .replace(/\x1b\[20[01]~/g, "")
    .replace(/\x1b\[[\d;?]*[A-Za-z~]|\x1bO[A-Z]/g, "⌨")
    .replace(/\r/g, "⏎")
    .replace(/[\x00-\x1f\x7f-\x9f]/g, "⌨");
  return keys.length > SHOWN ? `${keys.slice(0, SHOWN)}…` : keys;
}
