// Files: what the app saves is downloaded, what is picked or dropped here is sent to the app, with its progress.
import { headers } from "./api.js";

const byId = (id) => document.getElementById(id);

export function download(key) {
  const link = document.createElement("a");
  link.href = `download/${encodeURIComponent(key)}`;
  link.download = "";
  link.click();
}

function line(file) {
  const made = document.createElement("li");
  const name = document.createElement("span");
  const progress = document.createElement("progress");
  const word = document.createElement("span");
  name.textContent = file.name;
  progress.max = 1;
  made.append(name, progress, word);
  byId("sent").append(made);
  return {
    at: (part) => (progress.value = part),
    end: (text) => {
      word.textContent = text;
      progress.remove();
    },
  };
}

// XMLHttpRequest, as fetch has no progress of what is sent.
function send(file, shown) {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.upload.onprogress = ({ loaded, total }) => shown.at(loaded / total);
    request.onload = () => done(request.status === 200 ? "" : request.responseText.trim() || "refused");
    request.onerror = () => done("the server does not answer");
    request.open("POST", "upload");
    const all = { ...headers(), "X-Session": sessionStorage.getItem("sandbox-console.view") ?? "", "X-File-Name": encodeURIComponent(file.name) };
    for (const [name, value] of Object.entries(all)) request.setRequestHeader(name, value);
    request.send(file);
  });
}

async function sendAll(files) {
  const dialog = byId("uploading");
  if (!dialog.open) dialog.showModal();
  let failed = false;
  for (const file of files) {
    const shown = line(file);
    const problem = await send(file, shown);
    failed ||= Boolean(problem);
    shown.end(problem ? `not sent: ${problem}` : "sent");
  }
  if (!failed) dialog.close();
}

export function pickFiles() {
  byId("sent").replaceChildren();
  byId("files").value = "";
  if (!byId("uploading").open) byId("uploading").showModal();
}

export function startTransfers(focus) {
  byId("upload").addEventListener("click", pickFiles);
  byId("files").addEventListener("change", ({ target }) => sendAll([...target.files]));
  byId("uploading").addEventListener("close", focus);
  window.addEventListener("dragover", (event) => event.preventDefault());
  window.addEventListener("drop", (event) => {
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length) {
      byId("sent").replaceChildren();
      sendAll(files);
    }
  });
}
