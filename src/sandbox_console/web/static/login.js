// Exchanges the token for a cookie. It comes in the address's fragment, which browsers never send, or is typed.
import { hasKey, keepKey } from "./api.js";

const form = document.getElementById("form");
const field = document.getElementById("token");
const problem = document.getElementById("problem");

async function logIn(token) {
  const answer = await fetch("login", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Sandbox-Console": "login" },
    body: JSON.stringify({ token }),
  });
  if (!answer.ok) throw new Error(await answer.text());
  const { key } = await answer.json();
  keepKey(key);
  location.replace("./");
}

async function attempt(token) {
  form.querySelector("button").disabled = true;
  problem.textContent = "";
  try {
    await logIn(token);
  } catch (error) {
    problem.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
    form.querySelector("button").disabled = false;
    field.select();
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(field.value.trim());
});

// A link of another page leads here without the cookie; from this page the browser sends it.
function passOn() {
  if (location.pathname.endsWith("/login") || !hasKey()) return;
  if (sessionStorage.getItem("sandbox-console.passed")) return sessionStorage.removeItem("sandbox-console.passed");
  sessionStorage.setItem("sandbox-console.passed", "yes");
  location.replace("./");
}

function useFragment() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return passOn();
  history.replaceState(null, "", "login");
  attempt(token);
}

window.addEventListener("hashchange", useFragment);
useFragment();
