// The page of one's own sessions; the server's owner sees everybody's.
import { logOut, post, since } from "./api.js";

const problem = document.getElementById("problem");

function cell(text) {
  const made = document.createElement("td");
  made.textContent = text;
  return made;
}

function row(session) {
  const made = document.createElement("tr");
  const began = new Date(session.began_at * 1000).toLocaleString();
  const page = session.away_s === null ? "open" : `gone for ${since(session.away_s)}`;
  made.append(cell(session.actor), cell(began), cell(`${since(session.idle_s)} ago`), cell(page));
  const end = document.createElement("button");
  end.type = "button";
  end.textContent = "End";
  end.setAttribute("aria-label", `End the session of ${session.actor} that began ${began}`);
  end.addEventListener("click", () => attempt(() => post("sessions/end", { id: session.id }).then(show)));
  const last = document.createElement("td");
  last.append(end);
  made.append(last);
  return made;
}

async function show() {
  const { actor, all, sessions } = await post("sessions/ls", {});
  document.getElementById("who").textContent = all
    ? `You are ${actor}. These are the sessions of everybody.`
    : `You are ${actor}. These are your sessions.`;
  document.querySelector("#sessions tbody").replaceChildren(...sessions.map(row));
  problem.textContent = sessions.length ? "" : "None runs.";
}

async function attempt(action) {
  try {
    await action();
  } catch (error) {
    problem.textContent = error.final ? error.message : "The server does not answer.";
  }
}

document.getElementById("logout").addEventListener("click", () => attempt(logOut));
await attempt(show);
