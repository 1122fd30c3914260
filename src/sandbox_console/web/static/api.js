// Requests of a page that is logged in: the cookie goes along by itself, the key is in the storage of this origin.
const KEY = "sandbox-console.key";
const ANSWER_MS = 10000;

export const keepKey = (key) => localStorage.setItem(KEY, key);
export const hasKey = () => Boolean(localStorage.getItem(KEY));
export const headers = () => ({ "X-Sandbox-Console": localStorage.getItem(KEY) ?? "" });

export async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    signal: AbortSignal.timeout(ANSWER_MS),
    headers: { "Content-Type": "application/json", ...headers() },
    body: JSON.stringify(body),
  });
  if (answer.status === 401) location.replace("login");
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { final: true });
  return answer.json();
}

export async function logOut() {
  const { elsewhere } = await post("logout", {});
  localStorage.removeItem(KEY);
  sessionStorage.removeItem("sandbox-console.view");
  location.replace(elsewhere || "login");
}

export function since(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
