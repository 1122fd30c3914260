// The cell of the terminal below a mouse or a finger.
export function cellAt(element, terminal, { clientX, clientY }) {
  const { left, top, width, height } = element.querySelector(".xterm-screen").getBoundingClientRect();
  const within = (part, whole, count) => Math.max(0, Math.min(count - 1, Math.floor((part / whole) * count)));
  return { column: within(clientX - left, width, terminal.cols), row: within(clientY - top, height, terminal.rows), height: height / terminal.rows };
}
