// The cell of the terminal below a mouse or a finger.
export function cellAt(element, terminal, { clientX, clientY }) {
  const { left, top, width, height } = element.querySelector(".xterm-screen").getBoundingClientRect();
  const within = (part, whole, count) => Math.max(0, Math.min(count - 1, Math.floor((part / whole) * count)));
  return { column: within(clientX - left, width, terminal.cols), row: within(clientY - top, height, terminal.rows), height: height / terminal.rows };
}

const LEAST = 2; // cells in a line before it is a drag; the app counts the same

// A drag without Shift selects, once the app has said that it has no use for it. It sees where the button was pressed
// and released, but not the way between, which would also clear the selection.
export function startSelection(element, terminal) {
  let from = null;
  let free = false;
  let drawn = null;

  const index = ({ column, row }) => row * terminal.cols + column;

  function draw(to) {
    if (to.row === from.row && Math.abs(to.column - from.column) < LEAST) return;
    const [first, last] = [index(from), index(to)].sort((one, other) => one - other);
    drawn = [first % terminal.cols, Math.floor(first / terminal.cols), last - first + 1];
    terminal.select(...drawn);
  }

  function press(event) {
    from = event.button === 0 && !event.shiftKey ? cellAt(element, terminal, event) : null;
    free = false;
    drawn = null;
  }

  function move(event) {
    if (!event.buttons && terminal.hasSelection() && element.contains(event.target)) event.stopImmediatePropagation();
    if (!event.buttons || from === null || !free) return;
    event.stopImmediatePropagation();
    draw(cellAt(element, terminal, event));
  }

  function release() {
    const selected = drawn;
    from = drawn = null;
    if (selected) setTimeout(() => terminal.select(...selected)); // the report of the release has cleared it
  }

  element.addEventListener("mousedown", press, true);
  window.addEventListener("mousemove", move, true);
  window.addEventListener("mouseup", release, true);
  return { free: () => (free = true) };
}
