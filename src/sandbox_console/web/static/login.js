// Exchanges a token, or a name and password, for a cookie. A token in the address's fragment is never sent by browsers.
import { hasKey, keepKey } from "./api.js";

const form = document.getElementById("form");
const field = document.getElementById("token");
const nameField = document.getElementById("name");
const problem = document.getElementById("problem");
const cameWithFragment = location.hash !== "";

async function logIn(credentials) {
  const answer = await fetch("login", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Sandbox-Console": "login" },
    body: JSON.stringify(credentials),
  });
  if (!answer.ok) throw new Error(await answer.text());
  const { key } = await answer.json();
  keepKey(key);
  location.replace("./");
}

async function attempt(credentials) {
  form.querySelector("button").disabled = true;
  problem.textContent = "";
  try {
    await logIn(credentials);
  } catch (error) {
    problem.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
    form.querySelector("button").disabled = false;
    field.select();
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const name = nameField.value.trim();
  attempt(name ? { name, password: field.value } : { token: field.value.trim() });
});

// A link of another page leads here without the cookie; from this page the browser sends it.
function passOn() {
  if (location.pathname.endsWith("/login") || !hasKey()) return;
  if (sessionStorage.getItem("sandbox-console.passed")) return sessionStorage.removeItem("sandbox-console.passed");
  sessionStorage.setItem("sandbox-console.passed", "yes");
  location.replace("./");
}

function useFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token");
  if (given.has("failed")) {
    history.replaceState(null, "", "login");
    problem.textContent = "The login at the provider did not succeed. The server's terminal says why.";
    return undefined;
  }
  if (!token) return passOn();
  history.replaceState(null, "", "login");
  attempt({ token });
}

// Without users who have passwords, the page is the one for the printed token.
async function offerWays() {
  const answer = await fetch("login/ways");
  if (!answer.ok) return undefined;
  const { password, proxy, oidc } = await answer.json();
  if (proxy && !cameWithFragment) return attempt({ proxy: true });
  const provider = document.getElementById("provider");
  provider.hidden = !oidc;
  provider.textContent = `Log in with ${oidc}`;
  if (!password) return undefined;
  document.getElementById("how").textContent = "Log in with your name and password. With a token, leave the name empty.";
  document.getElementById("what").textContent = "Password or token";
  document.getElementById("who").hidden = false;
  field.autocomplete = "current-password";
  nameField.focus();
  return undefined;
}

window.addEventListener("hashchange", useFragment);
useFragment();
offerWays().catch(() => {});
